use std::time::Duration;

/// Log bytes since the last snapshot that call for the next, at least.
pub(super) const SNAPSHOT_LOG_BYTES_MIN: u64 = 256 * 1024 * 1024;

/// Two snapshots are at least this far apart.
pub(super) const SNAPSHOT_INTERVAL_MIN: Duration = Duration::from_secs(60);

/// Bytes of log kept behind a snapshot for live members that lack them, so that they need no
/// snapshot themselves.
pub(crate) const LOG_KEPT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Decides when to take a snapshot and how far to purge the log behind it: by bytes, because
/// entries differ in size by four orders of magnitude.
///
/// Moments are durations since the node's start. Source: `storage-and-raft.md`, 5.5;
/// architecture, section 10, rule 3 (the log is purged only up to a durable snapshot), and 11.
#[derive(Debug, Default)]
pub(crate) struct SnapshotPolicy {
    begun: Option<Duration>,
    purged: u64,
}

/// What the policy looks at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogView {
    /// Since the node's start.
    pub(crate) now: Duration,
    /// Bytes of log behind the newest durable snapshot.
    pub(crate) grown: u64,
    /// Bytes of the state on disk.
    pub(crate) state: u64,
    /// The last applied index.
    pub(crate) applied: u64,
    /// The last index of the newest durable snapshot; 0 if there is none.
    pub(crate) snapshot: u64,
    /// The last index that live members all have; `None` if there are no others.
    pub(crate) matched: Option<u64>,
    /// The greatest index behind which [`LOG_KEPT_BYTES_MAX`] are left; `None` if the log has no
    /// more than that.
    pub(crate) keeping: Option<u64>,
    /// Whether the disk is below its mark: then the size of the log does not matter.
    pub(crate) short_of_disk: bool,
}

impl SnapshotPolicy {
    /// Whether to take a snapshot now. Saying so counts as having begun one.
    pub(crate) fn due(&mut self, view: &LogView) -> bool {
        if self
            .begun
            .is_some_and(|begun| view.now < begun + SNAPSHOT_INTERVAL_MIN)
        {
            return false;
        }
        let enough = view.grown > SNAPSHOT_LOG_BYTES_MIN.max(view.state / 2);
        let new = view.applied > view.snapshot;
        // The wish for room is granted even if nothing new is to be saved: what may be purged or
        // compacted meanwhile is not known here.
        let due = (enough && new) || view.short_of_disk;
        if due {
            self.begun = Some(view.now);
        }
        due
    }

    /// Up to which index the log may be purged now, if further than before.
    pub(crate) fn purge_to(&mut self, view: &LogView) -> Option<u64> {
        let kept = match view.matched {
            // What is behind the kept bytes goes, whoever lacks it.
            Some(matched) if !view.short_of_disk => matched.max(view.keeping.unwrap_or(0)),
            _ => u64::MAX,
        };
        let upto = view.snapshot.min(kept);
        (upto > self.purged).then(|| {
            self.purged = upto;
            upto
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// Entries of 1 MiB each, none of them in a snapshot.
    fn at(seconds: u64, entries: u64) -> LogView {
        LogView {
            now: Duration::from_secs(seconds),
            grown: entries * MIB,
            applied: entries,
            keeping: entries.checked_sub(256).filter(|index| *index > 0),
            ..LogView::default()
        }
    }

    #[test]
    fn a_quarter_gibibyte_of_log_calls_for_a_snapshot() {
        let mut policy = SnapshotPolicy::default();
        assert!(!policy.due(&at(1, 256)));
        assert!(policy.due(&at(2, 257)));
        assert!(!policy.due(&at(3, 257)), "it is being taken");
        let taken = |view: LogView| LogView {
            snapshot: 257,
            grown: view.grown - 257 * MIB,
            ..view
        };
        assert!(!policy.due(&taken(at(100, 513))));
        assert!(policy.due(&taken(at(101, 514))), "and again after as much");
    }

    #[test]
    fn a_large_state_is_saved_less_often() {
        let mut policy = SnapshotPolicy::default();
        let large = |view: LogView| LogView {
            state: 2_000 * MIB,
            ..view
        };
        assert!(!policy.due(&large(at(1, 1_000))));
        assert!(policy.due(&large(at(2, 1_001))));
    }

    #[test]
    fn snapshots_are_a_minute_apart() {
        let mut policy = SnapshotPolicy::default();
        assert!(policy.due(&at(1, 300)));
        assert!(!policy.due(&at(60, 3_000)));
        assert!(policy.due(&at(61, 3_000)));
    }

    #[test]
    fn below_the_disk_mark_the_size_of_the_log_does_not_matter() {
        let mut policy = SnapshotPolicy::default();
        let short = |view| LogView {
            short_of_disk: true,
            ..view
        };
        assert!(policy.due(&short(at(1, 1))));
        assert!(!policy.due(&short(at(60, 1))), "at most once a minute");
        assert!(policy.due(&short(at(61, 1))));
    }

    #[test]
    fn nothing_is_purged_that_no_snapshot_holds() {
        let mut policy = SnapshotPolicy::default();
        assert_eq!(policy.purge_to(&at(1, 900)), None);
        let saved = LogView {
            snapshot: 500,
            ..at(2, 900)
        };
        assert_eq!(policy.purge_to(&saved), Some(500));
        assert_eq!(policy.purge_to(&saved), None, "not twice");
    }

    #[test]
    fn what_a_live_member_lacks_is_kept_up_to_a_bound() {
        let behind = |matched| LogView {
            snapshot: 890,
            matched: Some(matched),
            ..at(2, 900)
        };
        let first = |matched| SnapshotPolicy::default().purge_to(&behind(matched));
        assert_eq!(first(800), Some(800), "it lacks 100 MiB: they stay");
        assert_eq!(first(3), Some(644), "it lacks too much: 256 MiB stay");
        assert_eq!(first(899), Some(890), "it has caught up");
    }

    #[test]
    fn a_full_disk_keeps_nothing_for_laggards() {
        let mut policy = SnapshotPolicy::default();
        let view = LogView {
            snapshot: 890,
            matched: Some(3),
            short_of_disk: true,
            ..at(2, 900)
        };
        assert_eq!(policy.purge_to(&view), Some(890));
    }
}
