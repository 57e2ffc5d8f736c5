use bytes::Bytes;
use trellis_types::{JobId, NodeId, OriginId, Priority, Seconds, TubeName};

/// Everything that a session or an origin can do to the world. What is not listed here cannot
/// happen. Reads are not listed: they never enter the log.
///
/// Source: architecture, section 3; protocol specification, section 5.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// A new job (5.1). `ttr` 0 becomes 1 in apply.
    Put {
        /// Where it goes.
        tube: TubeName,
        /// Its urgency.
        priority: Priority,
        /// How long it stays delayed; 0 makes it ready at once.
        delay: Seconds,
        /// How long a worker may hold it.
        ttr: Seconds,
        /// Its opaque content.
        body: Bytes,
    },
    /// The best ready job of `tubes`, or a place in line for one (5.3).
    Reserve {
        /// The watch list; never empty.
        tubes: Vec<TubeName>,
        /// How long to wait: not at all (0), so many seconds, or for ever (`None`).
        timeout: Option<Seconds>,
    },
    /// That very job, wherever it is, unless it is held (5.4).
    ReserveJob {
        /// Which.
        job: JobId,
    },
    /// Ends a job (5.5).
    Delete {
        /// Which.
        job: JobId,
    },
    /// Gives a held job back (5.6).
    Release {
        /// Which.
        job: JobId,
        /// Its new urgency.
        priority: Priority,
        /// How long it stays delayed.
        delay: Seconds,
    },
    /// Lays a held job aside (5.7).
    Bury {
        /// Which.
        job: JobId,
        /// Its new urgency.
        priority: Priority,
    },
    /// Starts the hold's TTR again (5.8).
    Touch {
        /// Which.
        job: JobId,
    },
    /// Makes buried, else delayed, jobs of a tube ready (5.11).
    Kick {
        /// The used tube.
        tube: TubeName,
        /// At most so many.
        bound: u32,
    },
    /// A portion of a kick that is too large for one entry: looks at one kind of jobs only, so that
    /// what comes behind the last buried one is not kicked as well.
    KickPortion {
        /// The used tube.
        tube: TubeName,
        /// At most so many.
        bound: u32,
        /// Delayed jobs instead of buried ones.
        delayed: bool,
    },
    /// Makes one buried or delayed job ready (5.12).
    KickJob {
        /// Which.
        job: JobId,
    },
    /// Holds back a tube's ready jobs (5.13).
    PauseTube {
        /// Which.
        tube: TubeName,
        /// For how long; 0 ends a pause.
        delay: Seconds,
    },
    /// The client closed its sending side: if its reserve is still parked the reply is
    /// `TIMED_OUT`, else nothing. Never Skipped.
    EndWait,
    /// The session is over: its wait goes, then its holds return in order of reservation. Never
    /// Skipped.
    CloseSession,
    /// Of the origin itself: it has (`set`) or no longer has sessions that use or watch `tube`.
    /// Idempotent. Never Skipped.
    TubeRef {
        /// Which tube.
        tube: TubeName,
        /// Whether the reference is set or cleared.
        set: bool,
    },
    /// A command that this binary could not decode although its frame was sound. Every node
    /// decides so equally; its answer is [`Answer::Undecodable`](crate::Answer::Undecodable).
    Undecodable,
}

/// What the leader alone may say. Those that name an origin do nothing to another run of the same
/// node.
///
/// Source: architecture, sections 3, 6, 7, 11, 12.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderCommand {
    /// A new run of a node may send batches. Ignored unless above the highest run known of that
    /// node; a repeat changes nothing; a higher one ends the earlier run.
    OpenOrigin(OriginId),
    /// The origin is not present: its waiters are passed over.
    SuspendOrigin(OriginId),
    /// The origin is present again: ready jobs are offered to its waiters in the same apply.
    ResumeOrigin(OriginId),
    /// The origin's lease is over: its waits go, then all its holds return.
    ExpireOrigin(OriginId),
    /// Only moves time.
    Tick,
    /// Changes one replicated setting.
    Set(Setting),
    /// The node left the cluster for ever: its id is never accepted again, its origin ends.
    RetireNode(NodeId),
}

/// A replicated setting and its new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Puts get `OUT_OF_MEMORY` because a present voter is short of disk.
    PutsRefused(bool),
    /// Most jobs in the cluster.
    JobsMax(u64),
    /// Most body bytes in the cluster.
    JobBytesMax(u64),
    /// Most tubes in the cluster.
    TubesMax(u64),
    /// Most names in one reserve.
    WatchNamesMax(u32),
    /// What all members agree to understand; never decreases.
    FeatureLevel(u32),
}
