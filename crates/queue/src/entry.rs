use trellis_types::{ConnectionId, OriginId, Timestamp};

use crate::{Command, LeaderCommand};

/// One committed line of the replicated log: what time it was, and who asked for what.
///
/// Source: architecture, section 3.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Cluster time, stamped by the leader that proposed the entry.
    pub at: Timestamp,
    /// What is to be done then.
    pub content: Content,
}

/// What an entry carries: the merged batches of all nodes, or words of the leader alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Batches in the order the leader took them.
    Batches(Vec<Batch>),
    /// Commands of the leader itself.
    Leader(Vec<LeaderCommand>),
}

/// Commands of one origin's sessions that travel together.
///
/// `seq` counts 1, 2, 3 … without holes per origin. Once handed to any leader, seq and bytes of a
/// batch never change. Source: architecture, section 5.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Whose sessions these are.
    pub origin: OriginId,
    /// Its place among the origin's batches, from 1.
    pub seq: u64,
    /// The commands in order.
    pub items: Vec<Item>,
}

/// One command of a batch and the connection that it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Which connection of the origin; 0 for the origin's own commands (`TubeRef`).
    pub connection: ConnectionId,
    /// What is to be done.
    pub command: Command,
}
