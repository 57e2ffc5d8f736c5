use std::time::Duration;

/// Timings of Raft. The defaults are meant for one site; they were chosen against flapping on a
/// loaded machine with two cores (architecture, section 14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsensusSettings {
    /// A leader shows itself so often.
    pub heartbeat: Duration,
    /// A follower that hears no leader stands for election not before this.
    pub election_min: Duration,
    /// … and at the latest after this, which is also a leader's lease: nobody grants a vote to
    /// another within it.
    pub election_max: Duration,
    /// A follower that does not answer an append for this long has lost the stream.
    pub append_timeout: Duration,
    /// A snapshot of which no part moves for this long has failed.
    pub snapshot_stall: Duration,
    /// A read index takes at most this long.
    pub read_timeout: Duration,
}

impl Default for ConsensusSettings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_millis(500),
            election_max: Duration::from_millis(900),
            append_timeout: Duration::from_secs(3),
            snapshot_stall: Duration::from_secs(30),
            read_timeout: Duration::from_secs(1),
        }
    }
}
