use std::{io, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout, timeout_at},
};
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
    used: TubeName,
    watched: Vec<TubeName>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Silence {
    /// Not within the time given.
    Late,
    /// The connection is over.
    Closed(String),
}

impl Silence {
    pub(super) fn words(&self) -> String {
        match self {
            Self::Late => "timeout".to_owned(),
            Self::Closed(why) => format!("closed: {why}"),
        }
    }
}

impl From<io::Error> for Silence {
    fn from(error: io::Error) -> Self {
        Self::Closed(error.kind().to_string())
    }
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
            used: TubeName::default_tube(),
            watched: vec![TubeName::default_tube()],
        })
    }

    /// Sends requests in one go.
    pub(super) async fn send(&mut self, requests: &[Request]) -> Result<(), Silence> {
        let mut out = BytesMut::new();
        for request in requests {
            encode_request(request, &mut out);
        }
        Ok(self.end.write_all(&out).await?)
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
                Ok(Err(error)) => return Err(error.into()),
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

    /// Makes the connection use `tube`.
    pub(super) async fn use_tube(
        &mut self,
        tube: &TubeName,
        patience: Duration,
    ) -> Result<(), Silence> {
        if self.used == *tube {
            return Ok(());
        }
        match self.ask(Request::Use(tube.clone()), patience).await? {
            Reply::Using(_) => {
                self.used = tube.clone();
                Ok(())
            }
            other => Err(Silence::Closed(format!("use was answered {other:?}"))),
        }
    }

    /// Makes the connection watch exactly `tubes`.
    pub(super) async fn watch_tubes(
        &mut self,
        tubes: &[TubeName],
        patience: Duration,
    ) -> Result<(), Silence> {
        for tube in tubes {
            if !self.watched.contains(tube) {
                match self.ask(Request::Watch(tube.clone()), patience).await? {
                    Reply::Watching(_) => self.watched.push(tube.clone()),
                    other => return Err(Silence::Closed(format!("watch was answered {other:?}"))),
                }
            }
        }
        for tube in self.watched.clone() {
            if !tubes.contains(&tube) {
                match self.ask(Request::Ignore(tube.clone()), patience).await? {
                    Reply::Watching(_) => self.watched.retain(|watched| *watched != tube),
                    other => return Err(Silence::Closed(format!("ignore was answered {other:?}"))),
                }
            }
        }
        Ok(())
    }

    /// Waits until the other side has closed.
    pub(super) async fn closed(&mut self) {
        let mut waste = [0; 64];
        while !matches!(self.end.read(&mut waste).await, Ok(0) | Err(_)) {}
    }
}
