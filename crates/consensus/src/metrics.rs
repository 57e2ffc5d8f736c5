use std::time::Duration;

use trellis_types::NodeId;

use crate::{Position, Role};

/// How far Raft is. Indexes are `None` before the first entry.
#[derive(Clone, Debug)]
pub struct RaftMetrics {
    /// The newest term that this node knows.
    pub term: u64,
    /// What it is in it.
    pub role: Role,
    /// The last entry in its log, durable or not.
    pub last_log: Option<u64>,
    /// The last entry that it knows to be committed.
    pub committed: Option<u64>,
    /// The last entry that it has applied.
    pub applied: Option<u64>,
    /// The last entry in its newest snapshot.
    pub snapshot: Option<Position>,
    /// The last entry that is gone from its log.
    pub purged: Option<u64>,
    /// While it leads: every other member.
    pub peers: Vec<PeerProgress>,
}

/// How far a leader knows a member to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProgress {
    /// Which.
    pub node: NodeId,
    /// The last entry that surely lies on its disk as on the leader's.
    pub matched: Option<u64>,
    /// How long ago the newest message was sent that it has acknowledged.
    pub acked_age: Option<Duration>,
}
