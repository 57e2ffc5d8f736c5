use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::{Buf, BytesMut};
use trellis_wire::beanstalk::{Reply, Request};

use super::dialect::Dialect;
use super::tally::Step;

/// What a reply is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) step: Step,
    /// Nanoseconds: when the step began. For the first step of an operation, when it was due.
    pub(super) since: u64,
    /// Nanoseconds: when the operation began, or was due.
    pub(super) begun: u64,
}

/// A client's socket: what must still be written, and which replies are awaited, in order.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) target: SocketAddr,
    dialect: Box<dyn Dialect>,
    pub(super) out: BytesMut,
    pub(super) expected: VecDeque<Expected>,
    /// The socket was full: epoll tells when it has room.
    pub(super) blocked: bool,
    pub(super) dead: bool,
}

impl Connection {
    /// Connects, and says what must be said before the run, waiting for each answer.
    pub(super) fn open(
        target: SocketAddr,
        dialect: Box<dyn Dialect>,
        first: &[Request],
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let stream = TcpStream::connect_timeout(&target, patience)
            .with_context(|| format!("can't connect to {target}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        let mut connection = Self {
            stream,
            target,
            dialect,
            out: BytesMut::new(),
            expected: VecDeque::new(),
            blocked: false,
            dead: false,
        };
        for request in first {
            match connection
                .ask(request)
                .with_context(|| format!("{target} after {request:?}"))?
            {
                Reply::Using(_) | Reply::Watching(_) => {}
                other => bail!("{target} answers {request:?} with {other:?}"),
            }
        }
        Ok(connection)
    }

    /// Asks and waits for the answer, before the run.
    pub(super) fn ask(&mut self, request: &Request) -> anyhow::Result<Reply> {
        self.dialect.ask(request, &mut self.out);
        let mut bytes = [0; 1024];
        loop {
            let reply = self.dialect.step(&mut self.out)?;
            self.stream.write_all(&self.out)?;
            self.out.clear();
            if let Some(reply) = reply {
                return Ok(reply);
            }
            match self.stream.read(&mut bytes)? {
                0 => bail!("the connection was closed"),
                count => self.dialect.feed(&bytes[..count]),
            }
        }
    }

    /// Puts a request behind what must still be written, and its reply behind those that are awaited.
    pub(super) fn send(&mut self, request: &Request, expected: Expected) {
        self.dialect.ask(request, &mut self.out);
        self.expected.push_back(expected);
    }

    /// The next reply of what was read.
    pub(super) fn step(&mut self) -> anyhow::Result<Option<Reply>> {
        self.dialect.step(&mut self.out)
    }

    /// Writes what the socket takes.
    pub(super) fn flush(&mut self) -> std::io::Result<()> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(count) => self.out.advance(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.blocked = false;
        Ok(())
    }

    /// Reads what is there, at most one scratch buffer full: epoll tells if there is more.
    pub(super) fn read(&mut self, scratch: &mut [u8]) -> std::io::Result<()> {
        match self.stream.read(scratch) {
            Ok(0) => Err(std::io::Error::new(
                ErrorKind::UnexpectedEof,
                "the server closed the connection",
            )),
            Ok(count) => {
                self.dialect.feed(&scratch[..count]);
                Ok(())
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
