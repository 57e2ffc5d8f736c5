use bytes::{Bytes, BytesMut};
use trellis_node::{Answer, Owed};
use trellis_types::JobId;
use trellis_wire::beanstalk::{Refusal, Reply, yaml};

use crate::stats;

/// An answer as the wire knows it: a reply that can be written now, or one whose body is still to
/// be fetched.
pub(crate) enum Wired {
    /// All of it is here.
    Whole(Reply),
    /// Its body is somewhere else.
    Owing(Owing),
}

/// A reply whose body is read when the socket has room for it.
pub(crate) struct Owing {
    /// `RESERVED`, else `FOUND`.
    reserved: bool,
    job: JobId,
    body: Owed,
}

impl Owing {
    /// The job whose body is owed, for the log.
    pub(crate) fn job(&self) -> JobId {
        self.job
    }

    /// Bytes of the body.
    pub(crate) fn bytes(&self) -> usize {
        self.body.bytes() as usize
    }

    /// Bytes of memory that it takes up.
    pub(crate) fn held(&self) -> usize {
        if self.body.is_held() { self.bytes() } else { 0 }
    }

    /// The reply, if its body is in memory.
    pub(crate) fn ready(&self) -> Option<Reply> {
        self.body.ready().map(|body| self.with(body))
    }

    /// The reply; reads the body from disk and may block.
    pub(crate) fn read(&self) -> std::io::Result<Reply> {
        self.body.read().map(|body| self.with(body))
    }

    fn with(&self, body: Bytes) -> Reply {
        let job = self.job;
        if self.reserved {
            Reply::Reserved { job, body }
        } else {
            Reply::Found { job, body }
        }
    }
}

/// Translates one answer. Source: protocol specification, 3.1.
pub(crate) fn wired(answer: Answer) -> Wired {
    Wired::Whole(match answer {
        Answer::Reserved { job, body } => {
            return Wired::Owing(Owing {
                reserved: true,
                job,
                body,
            });
        }
        Answer::Found { job, body } => {
            return Wired::Owing(Owing {
                reserved: false,
                job,
                body,
            });
        }
        Answer::Inserted(job) => Reply::Inserted(job),
        Answer::Using(tube) => Reply::Using(tube),
        Answer::Watching(count) => Reply::Watching(count),
        Answer::NotIgnored => Reply::NotIgnored,
        Answer::DeadlineSoon => Reply::DeadlineSoon,
        Answer::TimedOut => Reply::TimedOut,
        Answer::Deleted => Reply::Deleted,
        Answer::Released => Reply::Released,
        Answer::Buried => Reply::Buried,
        Answer::Touched => Reply::Touched,
        Answer::Kicked(count) => Reply::Kicked(count),
        Answer::KickedJob => Reply::KickedJob,
        Answer::Paused => Reply::Paused,
        Answer::NotFound => Reply::NotFound,
        Answer::OutOfMemory => Reply::OutOfMemory,
        Answer::InternalError => Reply::InternalError,
        Answer::Draining => Reply::Draining,
        Answer::JobStats(view) => Reply::Ok(stats::job(&view)),
        Answer::TubeStats(tube) => Reply::Ok(stats::tube(&tube)),
        Answer::ServerStats(server) => Reply::Ok(stats::server(&server)),
        Answer::Tubes(names) => {
            let mut list = yaml::List::new();
            for name in &names {
                list.entry(name);
            }
            Reply::Ok(list.finish())
        }
        Answer::Refused(tag) => refusal_of(tag).into(),
    })
}

const REFUSALS: [Refusal; 4] = [
    Refusal::BadFormat,
    Refusal::UnknownCommand,
    Refusal::ExpectedCrlf,
    Refusal::JobTooBig,
];

/// The tag under which a refusal goes through the node, to keep its place among the answers.
pub(crate) fn tag_of(refusal: Refusal) -> u32 {
    match refusal {
        Refusal::BadFormat => 0,
        Refusal::UnknownCommand => 1,
        Refusal::ExpectedCrlf => 2,
        Refusal::JobTooBig => 3,
    }
}

fn refusal_of(tag: u32) -> Refusal {
    REFUSALS
        .get(tag as usize)
        .copied()
        .unwrap_or(Refusal::BadFormat)
}

/// Bodies up to this many bytes are copied behind their line, so that the reply goes out as one
/// segment; longer ones are written from where they are.
pub(crate) const COPIED_BODY_BYTES_MAX: usize = 32 * 1024;

/// Appends a whole reply to `out`, except for a long body, which is handed back: behind it comes
/// its CRLF.
pub(crate) fn encode(reply: &Reply, out: &mut BytesMut) -> Option<Bytes> {
    match reply.body() {
        Some(body) if body.len() > COPIED_BODY_BYTES_MAX => {
            reply.encode_line(out);
            Some(body.clone())
        }
        _ => {
            reply.encode(out);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_comes_back_as_it_went_in() {
        for refusal in REFUSALS {
            assert_eq!(refusal_of(tag_of(refusal)), refusal);
        }
    }
}
