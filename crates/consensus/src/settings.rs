use std::time::Duration;

use openraft::{Config, SnapshotPolicy};

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
    /// A follower that has got all parts of a snapshot may sync and load it for this long.
    pub snapshot_install: Duration,
    /// Bytes a second that one snapshot is sent with at most, so that it starves nobody.
    pub snapshot_rate: u64,
    /// A read index takes at most this long.
    pub read_timeout: Duration,
    /// A change of the membership whose fate is not known after this long counts as unknown.
    pub change_timeout: Duration,
}

impl Default for ConsensusSettings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_millis(500),
            election_max: Duration::from_millis(900),
            append_timeout: Duration::from_secs(3),
            snapshot_stall: Duration::from_secs(30),
            snapshot_install: Duration::from_secs(600),
            snapshot_rate: 128 * 1024 * 1024,
            read_timeout: Duration::from_secs(1),
            change_timeout: Duration::from_secs(30),
        }
    }
}

/// Entries in one append: what follows at once travels together; bytes are bounded by the log's
/// reader.
const APPEND_ENTRIES_MAX: u64 = 4096;
/// Entries that are purged in one go.
const PURGE_BATCH: u64 = 1024;

/// openraft's tick is so many times slower than it would choose by the heartbeat: 60 ms instead of
/// 20 ms, beside election time-outs of half a second and more.
const TICK_STRETCH: u64 = 3;

impl ConsensusSettings {
    /// As openraft has them.
    ///
    /// # Errors
    ///
    /// A sentence, if the timings contradict each other.
    pub(crate) fn to_raft(self) -> Result<Config, String> {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let (heartbeat, election_max) = (ms(self.heartbeat), ms(self.election_max));
        // Heartbeats are sent by `watchers::show_leader`. What is left for openraft's own interval is
        // to pace its tick (a fifth of it), which an idle node wakes up for: it looks at nothing but
        // whether to stand for election.
        let unhurried = heartbeat
            .saturating_mul(TICK_STRETCH)
            .min(ms(self.election_min) * 3 / 5);
        let config = Config {
            cluster_name: "trellis".into(),
            heartbeat_interval: heartbeat.max(unhurried),
            enable_heartbeat: false,
            election_timeout_min: ms(self.election_min),
            election_timeout_max: election_max,
            install_snapshot_timeout: ms(self.snapshot_install),
            max_payload_entries: APPEND_ENTRIES_MAX,
            // Snapshots and purges go by bytes, and the store knows them.
            snapshot_policy: SnapshotPolicy::Never,
            replication_lag_threshold: u64::MAX,
            max_in_snapshot_log_to_keep: u64::MAX,
            purge_batch_size: PURGE_BATCH,
            // Followers sync while the leader does, instead of after it.
            broadcast_submitted_on_append: Some(true),
            enable_pre_vote: Some(true),
            // A restarted leader stands for election like any other.
            enable_leader_restore: Some(false),
            // A leader whose words arrive but who hears nobody falls silent, so that others can
            // elect (asymmetric cuts).
            quorum_loss_probe_interval: Some(election_max.saturating_mul(3)),
            // A follower that is back gets its entries within a heartbeat or two.
            backoff: "50ms 100ms 200ms ...500ms".into(),
            ..Config::default()
        };
        config.validate().map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_what_the_architecture_says() {
        let config = ConsensusSettings::default()
            .to_raft()
            .expect("sound timings");
        assert_eq!(ConsensusSettings::default().heartbeat.as_millis(), 100);
        assert!(
            !config.enable_heartbeat && config.heartbeat_interval == 300,
            "heartbeats are sent by ourselves, and openraft's tick is slow"
        );
        assert_eq!(
            (config.election_timeout_min, config.election_timeout_max),
            (500, 900)
        );
        assert_eq!(
            config.enable_leader_restore,
            Some(false),
            "leader restore must be off"
        );
        assert_eq!(config.enable_pre_vote, Some(true));
        assert_eq!(config.snapshot_policy, SnapshotPolicy::Never);
        assert_eq!(config.max_in_snapshot_log_to_keep, u64::MAX);
        assert!(config.max_payload_entries >= 1024 && config.purge_batch_size >= 1024);
    }

    #[test]
    fn timings_that_contradict_each_other_are_a_sentence() {
        let settings = ConsensusSettings {
            election_min: Duration::from_secs(2),
            ..ConsensusSettings::default()
        };
        assert!(settings.to_raft().is_err());
        let settings = ConsensusSettings {
            heartbeat: Duration::from_millis(500),
            ..ConsensusSettings::default()
        };
        assert!(
            settings.to_raft().is_err(),
            "a heartbeat as rare as elections"
        );
    }
}
