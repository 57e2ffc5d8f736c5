use trellis_types::{JobId, NodeId, OriginId, SessionId};

use crate::Change;

/// What one entry did: what to tell whom, and what changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// In the order in which they happened. A batch's event stands before the deferred answers
    /// that the batch itself caused.
    pub events: Vec<Event>,
    /// Every row that may differ from before, and the bodies of new jobs. May name a key twice.
    pub changes: Vec<Change>,
}

/// Something that an origin's node has to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// What became of a batch.
    Batch {
        /// Whose.
        origin: OriginId,
        /// Which.
        seq: u64,
        /// What.
        fate: Fate,
    },
    /// A reserve that was parked is answered.
    Deferred {
        /// Whose.
        session: SessionId,
        /// `Reserved`, `TimedOut` or `DeadlineSoon`.
        answer: Answer,
    },
    /// The origin may send batches from now on.
    Opened(OriginId),
    /// The origin is over; so are its sessions.
    Ended(OriginId),
    /// The node is out of the cluster for ever.
    Retired(NodeId),
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// It was carried out now: one verdict per item.
    Applied(Vec<Verdict>),
    /// seq ≤ last: it was carried out before.
    Duplicate,
    /// seq > last + 1: refused whole; the origin sends again from `last` + 1.
    Hole {
        /// The last seq carried out.
        last: u64,
    },
    /// The origin is not open: refused whole.
    NotOpen,
}

/// What became of one command of an applied batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It has this answer.
    Answer(Answer),
    /// A reserve that waits; a [`Event::Deferred`] will follow.
    Parked,
    /// Not carried out, because a reserve of the same session before it in this batch parked, or
    /// was parked already; to be submitted again when the wait is over.
    Skipped,
    /// Carried out; nobody waits for an answer (`EndWait`, `CloseSession`).
    Silent,
}

/// A reply of the machine. Bodies are not in it: they are read from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The job's id.
    Inserted(JobId),
    /// A hold begins.
    Reserved {
        /// Of this job.
        job: JobId,
        /// The fencing token: how often the job has been reserved, this time included.
        attempt: u32,
        /// The body's length.
        body_bytes: u32,
    },
    /// A held job is inside its safety margin and nothing is ready.
    DeadlineSoon,
    /// The wait is over without a job.
    TimedOut,
    /// Done (delete).
    Deleted,
    /// Done (release).
    Released,
    /// Done (bury).
    Buried,
    /// Done (touch).
    Touched,
    /// So many jobs were kicked.
    Kicked(u32),
    /// The same for a portion of a kick.
    KickedPortion {
        /// How many.
        count: u32,
        /// How many of the kind that it looked at are left in the tube.
        left: u32,
    },
    /// Done (kick-job).
    KickedJob,
    /// Done (pause-tube).
    Paused,
    /// No such job or tube, or not in the state or hand that the command needs.
    NotFound,
    /// A bound of the cluster is reached, or puts are refused for want of disk.
    OutOfMemory,
    /// The reference is set or cleared.
    Referenced,
    /// The command could not be decoded.
    Undecodable,
}
