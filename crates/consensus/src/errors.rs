use trellis_types::NodeId;

/// Why Raft could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The timings contradict each other.
    #[error("{0}")]
    Settings(String),
    /// The log or the state cannot be read, or do not fit together.
    #[error("the log and the state cannot be loaded: {0}")]
    Storage(String),
}

/// Why a proposal has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// This node does not lead in that term, or a majority has not acknowledged it lately: surely
    /// nothing was appended.
    #[error("not the leader")]
    NotLeader {
        /// Who leads, as far as this node knows.
        leader: Option<NodeId>,
    },
    /// It was appended and leadership was lost: it may still be committed.
    #[error("the fate of the proposal is unknown")]
    Unknown,
    /// Raft does not run.
    #[error("raft has stopped")]
    Stopped,
}

/// Why there is no read index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Ask the leader.
    #[error("not the leader")]
    NotLeader {
        /// Who leads, as far as this node knows.
        leader: Option<NodeId>,
    },
    /// No majority confirmed the leadership in time.
    #[error("no majority answered")]
    NoMajority,
    /// Raft does not run.
    #[error("raft has stopped")]
    Stopped,
}

/// Why the membership did not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Ask the leader.
    #[error("not the leader")]
    NotLeader {
        /// Who leads, as far as this node knows.
        leader: Option<NodeId>,
    },
    /// Another change is under way, or it makes no sense now.
    #[error("{0}")]
    Refused(String),
    /// Leadership was lost meanwhile: it may still happen.
    #[error("the fate of the change is unknown")]
    Unknown,
    /// Raft does not run.
    #[error("raft has stopped")]
    Stopped,
}

/// The time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not in time")]
pub struct Elapsed;
