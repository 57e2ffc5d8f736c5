use std::fmt;

use bytes::Bytes;
use trellis_types::Timestamp;

/// What a leader proposes as one entry. Cloning it copies no bytes; nothing looks into the batches
/// before apply.
#[derive(Clone, Default, PartialEq)]
pub struct Payload {
    /// Cluster time.
    pub at: Timestamp,
    /// Batches in the order the leader took them, each as
    /// [`check_batch`](trellis_rpc::queue::check_batch) has passed it.
    pub batches: Vec<Bytes>,
    /// The leader's own commands, each as [`encode_leader`](trellis_rpc::queue::encode_leader) made
    /// it. They are carried out before the batches.
    pub leader: Vec<Bytes>,
}

impl Payload {
    /// Bytes of all batches and commands.
    pub fn bytes(&self) -> usize {
        self.batches
            .iter()
            .chain(&self.leader)
            .map(Bytes::len)
            .sum()
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            batches,
            leader,
        } = self;
        let (batches, leader) = (batches.len(), leader.len());
        write!(
            f,
            "{batches} batches and {leader} leader commands at {} ms",
            at.0
        )
    }
}

/// Short: entries show up in traces.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
