use trellis_queue::ServerView;

use crate::Counters;

/// `stats` (protocol specification, 7.2): what the cluster knows, what the front ends of all nodes
/// count, and what is of this node alone. The door adds what is of the process (pid, version, CPU
/// time, host).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// The replicated part.
    pub view: ServerView,
    /// Of all nodes that answered, the running `stats` included.
    pub counters: Counters,
    /// `max-job-size`
    pub body_bytes_max: u32,
    /// Whether this node takes no puts.
    pub draining: bool,
    /// Whole seconds since this node started.
    pub uptime_seconds: u64,
    /// This node's name.
    pub node: String,
    /// The leader's name, if this node knows it.
    pub leader: Option<String>,
    /// Members of the cluster, learners included.
    pub members: u64,
    /// Members whose counters are not in, by name.
    pub silent: Vec<String>,
}
