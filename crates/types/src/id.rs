use std::fmt;

use serde::{Deserialize, Serialize};

/// Names one job for the life of the cluster: 1, 2, 3 … in commit order. Never reused, not even
/// after `delete`, and always below 2^53 so that JavaScript clients read it exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

/// Names one node: random at its first start, never used again once the node is removed.
/// 0 is nobody.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u64);

/// Counts the origins that one node has opened; raised and fsynced before each is used.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Run(pub u64);

/// Numbers the connections of one origin: 1, 2, 3 …, never reused within it. 0 is nobody.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ConnectionId(pub u64);

/// One run of one node: the unit that holds sessions, dedupes batches and is leased.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OriginId {
    /// The node.
    pub node: NodeId,
    /// Which of its runs.
    pub run: Run,
}

/// A client as the cluster knows it. Its socket is a connection of the origin's node.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct SessionId {
    /// Where its socket is.
    pub origin: OriginId,
    /// Which socket.
    pub connection: ConnectionId,
}

impl From<u64> for NodeId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Sixteen lower-case hexadecimal digits, as in logs, folders and the admin API.
impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// As people see it everywhere else.
impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As people see it everywhere else.
impl fmt::Debug for OriginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for OriginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.run)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.origin, self.connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_reads_node_run_connection() {
        let origin = OriginId {
            node: NodeId(0xab),
            run: Run(3),
        };
        let session = SessionId {
            origin,
            connection: ConnectionId(7),
        };
        assert_eq!(session.to_string(), "00000000000000ab/3/7");
        assert_eq!(format!("{:?}", Some(origin)), "Some(00000000000000ab/3)");
    }
}
