use bytes::{Bytes, BytesMut};
use trellis_types::{JobId, TubeName};

use super::{Refusal, decimal::put_decimal};

/// One answer of a server.
///
/// Source: protocol specification, 3.1 and 1.9.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `INSERTED <id>`
    Inserted(JobId),
    /// `BURIED <id>`: how beanstalkd answers a put that it could only bury. Trellis never says it.
    InsertedBuried(JobId),
    /// `BURIED` (bury; beanstalkd also answers a release so)
    Buried,
    /// `USING <tube>`
    Using(TubeName),
    /// `RESERVED <id> <bytes>` and the body
    Reserved {
        /// Which job.
        job: JobId,
        /// Its content.
        body: Bytes,
    },
    /// `DEADLINE_SOON`
    DeadlineSoon,
    /// `TIMED_OUT`
    TimedOut,
    /// `DELETED`
    Deleted,
    /// `RELEASED`
    Released,
    /// `TOUCHED`
    Touched,
    /// `WATCHING <n>`: the size of the watch list
    Watching(usize),
    /// `NOT_IGNORED`
    NotIgnored,
    /// `FOUND <id> <bytes>` and the body
    Found {
        /// Which job.
        job: JobId,
        /// Its content.
        body: Bytes,
    },
    /// `KICKED <n>` (kick)
    Kicked(u32),
    /// `KICKED` (kick-job)
    KickedJob,
    /// `PAUSED`
    Paused,
    /// `NOT_FOUND`
    NotFound,
    /// `OUT_OF_MEMORY`
    OutOfMemory,
    /// `INTERNAL_ERROR`
    InternalError,
    /// `DRAINING`
    Draining,
    /// `BAD_FORMAT`
    BadFormat,
    /// `UNKNOWN_COMMAND`
    UnknownCommand,
    /// `EXPECTED_CRLF`
    ExpectedCrlf,
    /// `JOB_TOO_BIG`
    JobTooBig,
    /// `OK <bytes>` and YAML, as [`yaml`](super::yaml) writes it
    Ok(Bytes),
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::BadFormat => Self::BadFormat,
            Refusal::UnknownCommand => Self::UnknownCommand,
            Refusal::ExpectedCrlf => Self::ExpectedCrlf,
            Refusal::JobTooBig => Self::JobTooBig,
        }
    }
}

impl Reply {
    /// Appends the whole reply: its line, and the body with its CRLF if it has one.
    pub fn encode(&self, out: &mut BytesMut) {
        self.encode_line(out);
        if let Some(body) = self.body() {
            out.reserve(body.len() + 2);
            out.extend_from_slice(body);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// The body that follows the line, without its CRLF. With [`Self::encode_line`] it lets a
    /// large body go to the socket without being copied; the CRLF behind it is then the caller's.
    pub fn body(&self) -> Option<&Bytes> {
        match self {
            Self::Reserved { body, .. } | Self::Found { body, .. } | Self::Ok(body) => Some(body),
            _ => None,
        }
    }

    /// Appends only the line, its CRLF included.
    pub fn encode_line(&self, out: &mut BytesMut) {
        match self {
            Self::Inserted(job) => with_number(out, b"INSERTED ", job.0),
            Self::InsertedBuried(job) => with_number(out, b"BURIED ", job.0),
            Self::Buried => out.extend_from_slice(b"BURIED\r\n"),
            Self::Using(tube) => {
                out.extend_from_slice(b"USING ");
                out.extend_from_slice(tube.as_str().as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Self::Reserved { job, body } => with_job(out, b"RESERVED ", *job, body),
            Self::DeadlineSoon => out.extend_from_slice(b"DEADLINE_SOON\r\n"),
            Self::TimedOut => out.extend_from_slice(b"TIMED_OUT\r\n"),
            Self::Deleted => out.extend_from_slice(b"DELETED\r\n"),
            Self::Released => out.extend_from_slice(b"RELEASED\r\n"),
            Self::Touched => out.extend_from_slice(b"TOUCHED\r\n"),
            Self::Watching(count) => with_number(out, b"WATCHING ", *count as u64),
            Self::NotIgnored => out.extend_from_slice(b"NOT_IGNORED\r\n"),
            Self::Found { job, body } => with_job(out, b"FOUND ", *job, body),
            Self::Kicked(count) => with_number(out, b"KICKED ", u64::from(*count)),
            Self::KickedJob => out.extend_from_slice(b"KICKED\r\n"),
            Self::Paused => out.extend_from_slice(b"PAUSED\r\n"),
            Self::NotFound => out.extend_from_slice(b"NOT_FOUND\r\n"),
            Self::OutOfMemory => out.extend_from_slice(b"OUT_OF_MEMORY\r\n"),
            Self::InternalError => out.extend_from_slice(b"INTERNAL_ERROR\r\n"),
            Self::Draining => out.extend_from_slice(b"DRAINING\r\n"),
            Self::BadFormat => out.extend_from_slice(b"BAD_FORMAT\r\n"),
            Self::UnknownCommand => out.extend_from_slice(b"UNKNOWN_COMMAND\r\n"),
            Self::ExpectedCrlf => out.extend_from_slice(b"EXPECTED_CRLF\r\n"),
            Self::JobTooBig => out.extend_from_slice(b"JOB_TOO_BIG\r\n"),
            Self::Ok(yaml) => with_number(out, b"OK ", yaml.len() as u64),
        }
    }
}

fn with_number(out: &mut BytesMut, word: &[u8], number: u64) {
    out.extend_from_slice(word);
    put_decimal(out, number);
    out.extend_from_slice(b"\r\n");
}

fn with_job(out: &mut BytesMut, word: &[u8], job: JobId, body: &Bytes) {
    out.extend_from_slice(word);
    put_decimal(out, job.0);
    out.extend_from_slice(b" ");
    put_decimal(out, body.len() as u64);
    out.extend_from_slice(b"\r\n");
}
