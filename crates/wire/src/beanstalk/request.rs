use bytes::Bytes;
use trellis_types::{JobId, Priority, Seconds, TubeName};

use super::Counted;

/// One well-formed command of a client. Holding one is the proof that its line was checked.
///
/// Source: protocol specification, section 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `put <pri> <delay> <ttr> <bytes>` and its body (5.1). A `ttr` of 0 stays 0 here: that it
    /// means 1 is decided where the job is made.
    Put {
        /// Its urgency.
        priority: Priority,
        /// How long it stays delayed; 0 makes it ready at once.
        delay: Seconds,
        /// How long a worker may hold it.
        ttr: Seconds,
        /// Its opaque content.
        body: Bytes,
    },
    /// `use <tube>` (5.2).
    Use(TubeName),
    /// `watch <tube>` (5.9).
    Watch(TubeName),
    /// `ignore <tube>` (5.9).
    Ignore(TubeName),
    /// `reserve` (5.3): waits for ever.
    Reserve,
    /// `reserve-with-timeout <seconds>` (5.3): 0 to 2^31-1.
    ReserveWithTimeout(Seconds),
    /// `reserve-job <id>` (5.4).
    ReserveJob(JobId),
    /// `delete <id>` (5.5).
    Delete(JobId),
    /// `release <id> <pri> <delay>` (5.6).
    Release {
        /// Which job.
        job: JobId,
        /// Its new urgency.
        priority: Priority,
        /// How long it stays delayed.
        delay: Seconds,
    },
    /// `bury <id> <pri>` (5.7).
    Bury {
        /// Which job.
        job: JobId,
        /// Its new urgency.
        priority: Priority,
    },
    /// `touch <id>` (5.8).
    Touch(JobId),
    /// `kick <bound>` (5.11); the bound is what beanstalkd makes of the loose number (2.4).
    Kick {
        /// At most so many jobs.
        bound: u32,
    },
    /// `kick-job <id>` (5.12).
    KickJob(JobId),
    /// `peek <id>` (5.10).
    Peek(JobId),
    /// `peek-ready` (5.10).
    PeekReady,
    /// `peek-delayed` (5.10).
    PeekDelayed,
    /// `peek-buried` (5.10).
    PeekBuried,
    /// `stats-job <id>` (5.14).
    StatsJob(JobId),
    /// `stats-tube <tube>` (5.14).
    StatsTube(TubeName),
    /// `stats` (5.14).
    Stats,
    /// `list-tubes` (5.15).
    ListTubes,
    /// `list-tubes-watched` (5.15).
    ListTubesWatched,
    /// `list-tube-used` (5.15).
    ListTubeUsed,
    /// `pause-tube <tube> <delay>` (5.13).
    PauseTube {
        /// Which tube.
        tube: TubeName,
        /// For how long; 0 ends a pause.
        delay: Seconds,
    },
    /// `quit` (5.16): closes without a reply.
    Quit,
}

impl Request {
    /// The counter that this request raises, whatever its outcome; `None` for the three commands
    /// that are counted nowhere (4.5).
    pub const fn counted(&self) -> Option<Counted> {
        Some(match self {
            Self::Put { .. } => Counted::Put,
            Self::Use(_) => Counted::Use,
            Self::Watch(_) => Counted::Watch,
            Self::Ignore(_) => Counted::Ignore,
            Self::Reserve => Counted::Reserve,
            Self::ReserveWithTimeout(_) => Counted::ReserveWithTimeout,
            Self::Delete(_) => Counted::Delete,
            Self::Release { .. } => Counted::Release,
            Self::Bury { .. } => Counted::Bury,
            Self::Touch(_) => Counted::Touch,
            Self::Kick { .. } => Counted::Kick,
            Self::Peek(_) => Counted::Peek,
            Self::PeekReady => Counted::PeekReady,
            Self::PeekDelayed => Counted::PeekDelayed,
            Self::PeekBuried => Counted::PeekBuried,
            Self::StatsJob(_) => Counted::StatsJob,
            Self::StatsTube(_) => Counted::StatsTube,
            Self::Stats => Counted::Stats,
            Self::ListTubes => Counted::ListTubes,
            Self::ListTubesWatched => Counted::ListTubesWatched,
            Self::ListTubeUsed => Counted::ListTubeUsed,
            Self::PauseTube { .. } => Counted::PauseTube,
            Self::ReserveJob(_) | Self::KickJob(_) | Self::Quit => return None,
        })
    }
}
