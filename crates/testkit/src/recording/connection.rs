use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use trellis_checker::history::Call;
use trellis_types::TubeName;
use trellis_wire::beanstalk::{
    Reply, Request,
    client::{ReplyDecoder, encode_request},
};

use super::{Silence, Tubes};

/// How long connecting may take.
const CONNECT_MAX: Duration = Duration::from_millis(1_000);

/// One client's socket, and what its connection uses and watches there.
pub(super) struct Connection {
    socket: TcpStream,
    decoder: ReplyDecoder,
    tubes: Tubes,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            decoder: ReplyDecoder::new(),
            tubes: Tubes::default(),
        })
    }

    /// Sends a request. What a full socket cannot take within `patience` counts as silence.
    pub(super) fn send(&mut self, requests: &[Request], patience: Duration) -> Result<(), Silence> {
        let mut out = BytesMut::new();
        for request in requests {
            encode_request(request, &mut out);
        }
        self.socket.set_write_timeout(Some(patience))?;
        Ok(self.socket.write_all(&out)?)
    }

    /// The next answer, within `patience`.
    pub(super) fn hear(&mut self, patience: Duration) -> Result<Reply, Silence> {
        let until = Instant::now() + patience;
        loop {
            match self.decoder.step() {
                Some(Ok(reply)) => return Ok(reply),
                Some(Err(bad)) => return Err(Silence::Closed(bad.to_string())),
                None => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Silence::Late);
            }
            self.socket.set_read_timeout(Some(left))?;
            let mut bytes = [0; 16 * 1024];
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(Silence::Closed("end of input".to_owned())),
                Ok(count) => self.decoder.feed(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn ask(&mut self, request: Request, patience: Duration) -> Result<Reply, Silence> {
        self.send(&[request], patience)?;
        self.hear(patience)
    }

    /// Says what has to be said before `call`.
    pub(super) fn prepare(&mut self, call: &Call, patience: Duration) -> Result<(), Silence> {
        let first = self.tubes.before(call);
        self.say_first(first, patience)
    }

    /// Makes the connection watch exactly `tubes`.
    pub(super) fn watch(&mut self, tubes: &[TubeName], patience: Duration) -> Result<(), Silence> {
        let first = self.tubes.watch(tubes);
        self.say_first(first, patience)
    }

    fn say_first(&mut self, first: Vec<Request>, patience: Duration) -> Result<(), Silence> {
        for request in first {
            Tubes::agreed(&self.ask(request, patience)?)?;
        }
        Ok(())
    }

    /// Whether the other side has closed, as far as can be seen without waiting.
    pub(super) fn is_closed(&mut self) -> bool {
        let mut byte = [0; 1];
        let looked = self
            .socket
            .set_nonblocking(true)
            .and_then(|()| self.socket.peek(&mut byte));
        let closed = match looked {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        self.socket.set_nonblocking(false).is_err() || closed
    }
}
