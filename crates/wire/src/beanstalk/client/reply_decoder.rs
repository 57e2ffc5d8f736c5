use std::{error, fmt};

use bytes::{Buf, Bytes, BytesMut};
use trellis_types::{JobId, TubeName};

use crate::beanstalk::{Reply, lexer::Lexer};

/// Bytes of a reply's line including its CRLF. The longest is `USING` with a 200-byte name; twice
/// that leaves room for a server with a longer word.
const REPLY_LINE_BYTES_MAX: usize = 512;

/// Turns the bytes of a server into replies. After a [`BadReply`] the stream makes no sense any
/// more and the connection should be dropped.
#[derive(Debug, Default)]
pub struct ReplyDecoder {
    buffer: BytesMut,
    /// A line that was read and whose body is still arriving.
    head: Option<Head>,
}

/// A server said something that is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadReply {
    /// The line, or as much of it as had arrived when it became too long; or the two bytes that
    /// stand where a body's CRLF belongs.
    pub found: Bytes,
}

impl fmt::Display for BadReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no beanstalk reply: \"{}\"", self.found.escape_ascii())
    }
}

impl error::Error for BadReply {}

#[derive(Clone, Copy, Debug)]
struct Head {
    kind: Kind,
    body_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Reserved(JobId),
    Found(JobId),
    Ok,
}

enum Line {
    Whole(Reply),
    Head(Head),
}

impl ReplyDecoder {
    /// For a new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends what the server sent.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Where to read a socket straight into. Only append to it.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Takes the next whole reply; `None` asks for more bytes.
    ///
    /// # Errors
    ///
    /// [`BadReply`] if what has arrived cannot be the beginning of a reply.
    pub fn step(&mut self) -> Option<Result<Reply, BadReply>> {
        let head = match self.head {
            Some(head) => head,
            None => {
                let window = &self.buffer[..self.buffer.len().min(REPLY_LINE_BYTES_MAX)];
                let Some(lf) = memchr::memchr(b'\n', window) else {
                    return (window.len() == REPLY_LINE_BYTES_MAX).then(|| {
                        Err(BadReply {
                            found: Bytes::copy_from_slice(window),
                        })
                    });
                };
                let line = window[..lf].strip_suffix(b"\r").and_then(parse);
                match line {
                    None => {
                        return Some(Err(BadReply {
                            found: self.take(lf + 1, 0),
                        }));
                    }
                    Some(Line::Whole(reply)) => {
                        self.buffer.advance(lf + 1);
                        return Some(Ok(reply));
                    }
                    Some(Line::Head(head)) => {
                        self.buffer.advance(lf + 1);
                        self.head = Some(head);
                        head
                    }
                }
            }
        };
        let whole = head.body_bytes.saturating_add(2);
        if self.buffer.len() < whole {
            return None;
        }
        self.head = None;
        if &self.buffer[head.body_bytes..whole] != b"\r\n" {
            let found = Bytes::copy_from_slice(&self.buffer[head.body_bytes..whole]);
            return Some(Err(BadReply { found }));
        }
        let body = self.take(head.body_bytes, 2);
        Some(Ok(match head.kind {
            Kind::Reserved(job) => Reply::Reserved { job, body },
            Kind::Found(job) => Reply::Found { job, body },
            Kind::Ok => Reply::Ok(body),
        }))
    }

    fn take(&mut self, length: usize, trailer: usize) -> Bytes {
        let taken = self.buffer.split_to(length).freeze();
        self.buffer.advance(trailer);
        taken
    }
}

/// Reads one line, without its CRLF.
fn parse(line: &[u8]) -> Option<Line> {
    let (word, args) = match memchr::memchr(b' ', line) {
        Some(space) => (&line[..space], Some(&line[space..])),
        None => (line, None),
    };
    let number = || {
        let mut lexer = Lexer::new(args?);
        let value = lexer.u64()?;
        lexer.end()?;
        Some(value)
    };
    let job_head = |kind: fn(JobId) -> Kind| {
        let mut lexer = Lexer::new(args?);
        let job = JobId(lexer.u64()?);
        let body_bytes = lexer.u32()? as usize;
        lexer.end()?;
        Some(Line::Head(Head {
            kind: kind(job),
            body_bytes,
        }))
    };
    let reply = match (word, args.is_some()) {
        (b"INSERTED", true) => Reply::Inserted(JobId(number()?)),
        (b"RESERVED", true) => return job_head(Kind::Reserved),
        (b"FOUND", true) => return job_head(Kind::Found),
        (b"OK", true) => {
            let body_bytes = u32::try_from(number()?).ok()? as usize;
            return Some(Line::Head(Head {
                kind: Kind::Ok,
                body_bytes,
            }));
        }
        (b"USING", true) => Reply::Using(TubeName::parse(args?.strip_prefix(b" ")?).ok()?),
        (b"WATCHING", true) => Reply::Watching(usize::try_from(number()?).ok()?),
        (b"KICKED", true) => Reply::Kicked(u32::try_from(number()?).ok()?),
        (b"BURIED", true) => Reply::InsertedBuried(JobId(number()?)),
        (b"BURIED", false) => Reply::Buried,
        (b"KICKED", false) => Reply::KickedJob,
        (b"DEADLINE_SOON", false) => Reply::DeadlineSoon,
        (b"TIMED_OUT", false) => Reply::TimedOut,
        (b"DELETED", false) => Reply::Deleted,
        (b"RELEASED", false) => Reply::Released,
        (b"TOUCHED", false) => Reply::Touched,
        (b"NOT_IGNORED", false) => Reply::NotIgnored,
        (b"PAUSED", false) => Reply::Paused,
        (b"NOT_FOUND", false) => Reply::NotFound,
        (b"OUT_OF_MEMORY", false) => Reply::OutOfMemory,
        (b"INTERNAL_ERROR", false) => Reply::InternalError,
        (b"DRAINING", false) => Reply::Draining,
        (b"BAD_FORMAT", false) => Reply::BadFormat,
        (b"UNKNOWN_COMMAND", false) => Reply::UnknownCommand,
        (b"EXPECTED_CRLF", false) => Reply::ExpectedCrlf,
        (b"JOB_TOO_BIG", false) => Reply::JobTooBig,
        _ => return None,
    };
    Some(Line::Whole(reply))
}
