use trellis_types::NodeId;

/// What a node is in Raft at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads. Whether a majority still acknowledges it, only
    /// [`Consensus::quorum_ack_age`](crate::Consensus::quorum_ack_age) tells.
    Leader {
        /// Its term.
        term: u64,
    },
    /// It votes.
    Follower {
        /// The newest term that it knows.
        term: u64,
        /// Who leads in it, as far as it knows.
        leader: Option<NodeId>,
    },
    /// It stands for election.
    Candidate {
        /// The term that it wants to lead.
        term: u64,
    },
    /// It gets the log but has no vote.
    Learner {
        /// The newest term that it knows.
        term: u64,
        /// Who leads in it, as far as it knows.
        leader: Option<NodeId>,
    },
    /// Raft does not run (yet, or any more).
    Stopped,
}

impl Role {
    /// The term, if it leads.
    pub fn leads(self) -> Option<u64> {
        match self {
            Self::Leader { term } => Some(term),
            _ => None,
        }
    }

    /// Whom it follows, if it knows a leader that is another one.
    pub fn follows(self) -> Option<NodeId> {
        match self {
            Self::Follower { leader, .. } | Self::Learner { leader, .. } => leader,
            _ => None,
        }
    }
}
