use std::{io, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout, timeout_at},
};
use trellis_checker::history::Call;
use trellis_testkit::recording::{Silence, Tubes};
use trellis_types::TubeName;
use trellis_wire::beanstalk::{
    Reply, Request,
    client::{ReplyDecoder, encode_request},
};

use super::{
    net::{CLIENTS, Net, Port},
    pipe::End,
};

/// How long connecting may take.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// One client's connection, and what it uses and watches.
pub(super) struct Talk {
    end: End,
    decoder: ReplyDecoder,
    tubes: Tubes,
}

/// An error of a world in which nobody's patience is the socket's.
fn over(error: io::Error) -> Silence {
    Silence::Closed(error.kind().to_string())
}

impl Talk {
    /// Connects to the node called `name`.
    pub(super) async fn open(net: &Net, name: &str) -> io::Result<Self> {
        let connecting = net.connect(CLIENTS, name, Port::Clients);
        let end = match timeout(CONNECT_MAX, connecting).await {
            Ok(Ok(end)) => end?,
            Ok(Err(_)) => return Err(io::ErrorKind::ConnectionReset.into()),
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        };
        Ok(Self {
            end,
            decoder: ReplyDecoder::new(),
            tubes: Tubes::default(),
        })
    }

    /// Sends requests in one go.
    pub(super) async fn send(&mut self, requests: &[Request]) -> Result<(), Silence> {
        let mut out = BytesMut::new();
        for request in requests {
            encode_request(request, &mut out);
        }
        self.end.write_all(&out).await.map_err(over)
    }

    /// The next answer, within `patience`.
    pub(super) async fn hear(&mut self, patience: Duration) -> Result<Reply, Silence> {
        let until = Instant::now() + patience;
        loop {
            match self.decoder.step() {
                Some(Ok(reply)) => return Ok(reply),
                Some(Err(bad)) => return Err(Silence::Closed(bad.to_string())),
                None => {}
            }
            let mut bytes = BytesMut::with_capacity(16 * 1024);
            match timeout_at(until, self.end.read_buf(&mut bytes)).await {
                Err(_) => return Err(Silence::Late),
                Ok(Err(error)) => return Err(over(error)),
                Ok(Ok(0)) => return Err(Silence::Closed("end of input".to_owned())),
                Ok(Ok(_)) => self.decoder.feed(&bytes),
            }
        }
    }

    pub(super) async fn ask(
        &mut self,
        request: Request,
        patience: Duration,
    ) -> Result<Reply, Silence> {
        match timeout(patience, self.send(&[request])).await {
            Ok(sent) => sent?,
            Err(_) => return Err(Silence::Late),
        }
        self.hear(patience).await
    }

    /// Says what has to be said before `call`.
    pub(super) async fn prepare(&mut self, call: &Call, patience: Duration) -> Result<(), Silence> {
        let first = self.tubes.before(call);
        self.say_first(first, patience).await
    }

    /// Makes the connection watch exactly `tubes`.
    pub(super) async fn watch(
        &mut self,
        tubes: &[TubeName],
        patience: Duration,
    ) -> Result<(), Silence> {
        let first = self.tubes.watch(tubes);
        self.say_first(first, patience).await
    }

    async fn say_first(&mut self, first: Vec<Request>, patience: Duration) -> Result<(), Silence> {
        for request in first {
            Tubes::agreed(&self.ask(request, patience).await?)?;
        }
        Ok(())
    }

    /// Waits until the other side has closed.
    pub(super) async fn closed(&mut self) {
        let mut waste = [0; 64];
        while !matches!(self.end.read(&mut waste).await, Ok(0) | Err(_)) {}
    }
}
