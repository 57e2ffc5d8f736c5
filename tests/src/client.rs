use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use trellis_types::{JobId, Priority, Seconds, TubeName};
use trellis_wire::beanstalk::{
    Reply, Request,
    client::{ReplyDecoder, encode_request},
};

use crate::roles::pairs;

/// Longer than anything that a client is asked to sit out.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that asks one thing at a time and waits for the answer.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    decoder: ReplyDecoder,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    ///
    /// As the socket has it.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let decoder = ReplyDecoder::new();
        Ok(Self { stream, decoder })
    }

    /// A client that puts into `tube` and reserves only from there.
    ///
    /// # Errors
    ///
    /// As [`Self::connect`], or the server answers something unexpected.
    pub fn at_tube(address: SocketAddr, tube: &TubeName) -> io::Result<Self> {
        let mut client = Self::connect(address)?;
        let default = TubeName::parse(b"default").map_err(io::Error::other)?;
        for request in [
            Request::Use(tube.clone()),
            Request::Watch(tube.clone()),
            Request::Ignore(default),
        ] {
            match client.ask(&request)? {
                Reply::Using(_) | Reply::Watching(_) => {}
                other => return Err(unexpected(&request, &other)),
            }
        }
        Ok(client)
    }

    /// Sends one request and waits for its reply.
    ///
    /// # Errors
    ///
    /// As the socket has it, or no reply of the protocol.
    pub fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        self.send(request)?;
        self.hear()
    }

    /// Sends one request.
    ///
    /// # Errors
    ///
    /// As the socket has it.
    pub fn send(&mut self, request: &Request) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        encode_request(request, &mut bytes);
        self.stream.write_all(&bytes)
    }

    /// Waits for the reply to the oldest request that has none yet.
    ///
    /// # Errors
    ///
    /// As the socket has it, or no reply of the protocol.
    pub fn hear(&mut self) -> io::Result<Reply> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(reply) = self.decoder.step() {
                return reply.map_err(io::Error::other);
            }
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.decoder.feed(&bytes[..count]),
            }
        }
    }

    /// True if a reply came within `time`; [`Self::hear`] then returns it.
    ///
    /// # Errors
    ///
    /// As the socket has it, or it was closed.
    pub fn hears_within(&mut self, time: Duration) -> io::Result<bool> {
        self.stream.set_read_timeout(Some(time))?;
        let mut byte = [0];
        let seen = self.stream.peek(&mut byte);
        self.stream.set_read_timeout(Some(PATIENCE))?;
        match seen {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Puts a job with an hour to run and waits for its id.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`], or any other answer.
    pub fn put(&mut self, body: &str, delay: u32) -> io::Result<JobId> {
        let request = Request::Put {
            priority: Priority(1024),
            delay: Seconds(delay),
            ttr: Seconds(3600),
            body: Bytes::copy_from_slice(body.as_bytes()),
        };
        match self.ask(&request)? {
            Reply::Inserted(job) => Ok(job),
            other => Err(unexpected(&request, &other)),
        }
    }

    /// Reserves a job and waits at most `seconds` for one.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`], or any other answer.
    pub fn reserve(&mut self, seconds: u32) -> io::Result<Option<(JobId, String)>> {
        let request = Request::ReserveWithTimeout(Seconds(seconds));
        match self.ask(&request)? {
            Reply::Reserved { job, body } => Ok(Some((job, text(&body)))),
            Reply::TimedOut => Ok(None),
            other => Err(unexpected(&request, &other)),
        }
    }

    /// Asks for something whose only good answer is `wanted`.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`], or any other answer.
    pub fn demand(&mut self, request: &Request, wanted: &Reply) -> io::Result<()> {
        let reply = self.ask(request)?;
        if reply == *wanted {
            Ok(())
        } else {
            Err(unexpected(request, &reply))
        }
    }

    /// The statistics that `request` asks for.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`], or any other answer.
    pub fn statistics(&mut self, request: &Request) -> io::Result<BTreeMap<String, String>> {
        match self.ask(request)? {
            Reply::Ok(yaml) => Ok(pairs(&text(&yaml))),
            other => Err(unexpected(request, &other)),
        }
    }
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn unexpected(request: &Request, reply: &Reply) -> io::Error {
    io::Error::other(format!("{request:?} was answered with {reply:?}"))
}
