use std::time::Duration;

use trellis_types::limits;

/// The longest time without a leader that is waited before a node stops being ready.
const READY_WITHIN_MAX: Duration = Duration::from_secs(5);

/// What an operator may change about a running node's mind. Local: nothing here decides inside
/// `apply`.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSettings {
    /// How long a silent node keeps its sessions (architecture, section 7). Equal on all nodes.
    pub node_lease: Duration,
    /// How long a command waits for a leader before its client is told (section 9).
    pub commit_timeout: Duration,
    /// How reads are served (section 8).
    pub reads: Reads,
    /// The longest job body, for `stats`; the doors enforce it.
    pub body_bytes_max: u32,
    /// Client connections of this node.
    pub connections_max: usize,
    /// The largest step of cluster time at a cold start of the whole cluster (section 4).
    pub max_downtime: Duration,
    /// How long `stats` waits for the other nodes' counters.
    pub census_timeout: Duration,
    /// The longest election time-out: a leader that no majority has acknowledged for longer has
    /// lost its quorum lease.
    pub election_timeout_max: Duration,
}

/// How reads are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// Never older than anything that had finished before the read began, on any node.
    #[default]
    Linearizable,
    /// Without asking the leader; never older than what this node has told its own clients.
    Local,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            node_lease: Duration::from_secs(10),
            commit_timeout: Duration::from_secs(5),
            reads: Reads::Linearizable,
            body_bytes_max: limits::BODY_BYTES_DEFAULT,
            connections_max: limits::CONNECTIONS_MAX_DEFAULT,
            max_downtime: Duration::from_secs(30 * 24 * 3600),
            census_timeout: Duration::from_secs(1),
            election_timeout_max: Duration::from_millis(900),
        }
    }
}

impl NodeSettings {
    /// A node that has heard no leader for so long gives its sessions up before the leader does.
    pub fn fence_after(&self) -> Duration {
        self.node_lease.mul_f64(0.8)
    }

    /// A node is ready while a leader was heard within this time: an election passes unnoticed, and
    /// a node whose clients are told `INTERNAL_ERROR` is not ready any more. 5 s, or
    /// `commit_timeout` where that is less, but no less than two elections take (architecture,
    /// section 9).
    pub fn ready_within(&self) -> Duration {
        let most = self.commit_timeout.min(READY_WITHIN_MAX);
        most.max(self.election_timeout_max * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_lasts_no_longer_than_a_command_waits_and_no_shorter_than_two_elections() {
        let ready = |commit_ms, election_ms| {
            let settings = NodeSettings {
                commit_timeout: Duration::from_millis(commit_ms),
                election_timeout_max: Duration::from_millis(election_ms),
                ..NodeSettings::default()
            };
            settings.ready_within().as_millis()
        };
        assert_eq!(ready(5_000, 900), 5_000);
        assert_eq!(ready(60_000, 900), 5_000);
        assert_eq!(ready(3_000, 900), 3_000);
        assert_eq!(ready(100, 900), 1_800);
    }
}
