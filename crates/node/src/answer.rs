use trellis_queue::{JobView, TubeView};
use trellis_types::{JobId, TubeName};

use crate::{Owed, ServerStats};

/// What a client is told. A door translates it into its protocol's word.
///
/// Source: protocol specification, 3.1.
#[derive(Debug)]
pub enum Answer {
    /// The job is on the disks of a majority.
    Inserted(JobId),
    /// The used tube.
    Using(TubeName),
    /// The length of the watch list.
    Watching(usize),
    /// The only watched tube stays watched.
    NotIgnored,
    /// A hold begins.
    Reserved {
        /// Of this job.
        job: JobId,
        /// Its content, to be read when the socket has room.
        body: Owed,
    },
    /// A job is shown.
    Found {
        /// This one.
        job: JobId,
        /// Its content, to be read when the socket has room.
        body: Owed,
    },
    /// A held job is inside its safety margin and nothing is ready.
    DeadlineSoon,
    /// Nothing came in time.
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
    /// Done (kick-job).
    KickedJob,
    /// Done (pause-tube).
    Paused,
    /// No such job or tube, or not in the state or hand that the command needs.
    NotFound,
    /// A bound is reached.
    OutOfMemory,
    /// It could not be done, or its outcome is unknown; in that case the connection closes.
    InternalError,
    /// Puts are not taken now.
    Draining,
    /// `stats-job`
    JobStats(Box<JobView>),
    /// `stats-tube`
    TubeStats(Box<TubeStats>),
    /// `stats`
    ServerStats(Box<ServerStats>),
    /// `list-tubes` and `list-tubes-watched`
    Tubes(Vec<TubeName>),
    /// The refusal that the door itself handed in.
    Refused(u32),
}

/// `stats-tube` (protocol specification, 7.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TubeStats {
    /// The replicated part.
    pub view: TubeView,
    /// Connections that use it, on the nodes that answered.
    pub using: u64,
    /// Connections that watch it, on the nodes that answered.
    pub watching: u64,
}
