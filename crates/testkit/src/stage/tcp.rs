use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use super::{Heard, House, Stage, Troupe};
use crate::{process::Server, talk::Talk};

/// How long a connection or a write may take before the stage gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Servers count in milliseconds, and round.
const EARLY: Duration = Duration::from_millis(3);

/// Real sockets to a server that runs elsewhere, or to one of its own.
pub struct TcpStage {
    addresses: Vec<SocketAddr>,
    server: Option<Server>,
    connections: BTreeMap<String, TcpStream>,
    connected: usize,
    begun: Instant,
    late: Duration,
}

impl TcpStage {
    /// Connects to `addresses` in turn, one per person.
    pub fn new(addresses: Vec<SocketAddr>, late: Duration) -> Self {
        let (connections, begun) = (BTreeMap::new(), Instant::now());
        Self {
            addresses,
            server: None,
            connections,
            connected: 0,
            begun,
            late,
        }
    }

    /// Connects to a server that lives as long as this stage.
    pub fn with_server(server: Server, late: Duration) -> Self {
        Self {
            server: Some(server),
            ..Self::new(Vec::new(), late)
        }
    }

    fn connection(&mut self, who: &str) -> io::Result<&mut TcpStream> {
        self.connections
            .get_mut(who)
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn server(&mut self) -> io::Result<&mut Server> {
        self.server
            .as_mut()
            .ok_or_else(|| io::Error::other("this stage has no server of its own"))
    }
}

impl Stage for TcpStage {
    fn connect(&mut self, who: &str) -> io::Result<()> {
        let address = match &self.server {
            Some(server) => server.address(),
            None => self.addresses[self.connected % self.addresses.len()],
        };
        self.connected += 1;
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        self.connections.insert(who.into(), stream);
        Ok(())
    }

    fn send(&mut self, who: &str, bytes: &[u8]) -> io::Result<()> {
        self.connection(who)?.write_all(bytes)
    }

    fn receive(&mut self, who: &str, patience: Duration) -> io::Result<Heard> {
        let stream = self.connection(who)?;
        // A time-out of zero would mean for ever.
        stream.set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
        let mut bytes = vec![0; 64 * 1024];
        match stream.read(&mut bytes) {
            Ok(0) => Ok(Heard::End),
            Ok(length) => {
                bytes.truncate(length);
                Ok(Heard::Bytes(bytes))
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(Heard::Nothing),
                io::ErrorKind::Interrupted => Ok(Heard::Nothing),
                io::ErrorKind::ConnectionReset => Ok(Heard::End),
                _ => Err(error),
            },
        }
    }

    fn half_close(&mut self, who: &str) -> io::Result<()> {
        self.connection(who)?.shutdown(Shutdown::Write)
    }

    fn close(&mut self, who: &str) -> io::Result<()> {
        let gone = self.connections.remove(who);
        gone.map(drop)
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn pass_time(&mut self, time: Duration) {
        thread::sleep(time);
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn early(&self) -> Duration {
        EARLY
    }

    fn late(&self) -> Duration {
        self.late
    }

    fn drain(&mut self) -> io::Result<()> {
        self.server()?.drain()
    }

    fn restart(&mut self, flags: Option<&[String]>) -> io::Result<()> {
        self.connections.clear();
        self.server()?.restart(flags)
    }

    fn stall(&mut self, time: Duration) -> io::Result<()> {
        self.server()?.stall(time)
    }
}

/// How a house starts a server with the flags that a talk asks for.
type Starter = Box<dyn Fn(&[String]) -> io::Result<Server> + Sync + Send>;

/// Servers behind real sockets: one for all talks, and new ones for those that need their own.
pub struct TcpHouse {
    /// The name in reports.
    pub name: String,
    /// Whose words to expect.
    pub troupe: Troupe,
    /// Where the shared server listens; several for several nodes of one cluster; none if every
    /// talk gets a server of its own.
    pub addresses: Vec<SocketAddr>,
    /// How to start one that belongs to a single talk, if that can be done here.
    pub starter: Option<Starter>,
    /// See [`Stage::late`].
    pub late: Duration,
}

impl House for TcpHouse {
    fn name(&self) -> &str {
        &self.name
    }

    fn troupe(&self) -> Troupe {
        self.troupe
    }

    fn open(&self, talk: &Talk) -> io::Result<Result<Box<dyn Stage>, String>> {
        let flags = match &talk.needs.fresh {
            Some(flags) => Some(&flags[..]),
            None => self.addresses.is_empty().then_some(&[][..]),
        };
        let stage = match (flags, &self.starter) {
            (None, _) => TcpStage::new(self.addresses.clone(), self.late),
            (Some(flags), Some(starter)) => TcpStage::with_server(starter(flags)?, self.late),
            (Some(_), None) => return Ok(Err("needs a server of its own".into())),
        };
        Ok(Ok(Box::new(stage)))
    }
}
