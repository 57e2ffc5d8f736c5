use std::{collections::VecDeque, time::Duration};

/// Log bytes since the last snapshot that call for the next, at least.
pub(super) const SNAPSHOT_LOG_BYTES_MIN: u64 = 256 * 1024 * 1024;

/// Two snapshots are at least this far apart.
pub(super) const SNAPSHOT_INTERVAL_MIN: Duration = Duration::from_secs(60);

/// Bytes of log kept behind a snapshot for live members that lack them, so that they need no
/// snapshot themselves.
pub(super) const LOG_KEPT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Marks of (index, bytes) that are remembered: enough to find a place in the log by bytes.
const MARKS_MAX: usize = 1_024;

/// Decides when to take a snapshot and how far to purge the log behind it: by bytes, because
/// entries differ in size by four orders of magnitude.
///
/// Moments are durations since the node's start. Source: `storage-and-raft.md`, 5.5;
/// architecture, section 10, rule 3 (the log is purged only up to a durable snapshot), and 11.
#[derive(Debug, Default)]
pub(crate) struct SnapshotPolicy {
    /// Log bytes written when the last snapshot was taken.
    at_snapshot: u64,
    taken: Option<Duration>,
    marks: VecDeque<Mark>,
    purged: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    index: u64,
    written: u64,
}

/// What the policy looks at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogView {
    /// Since the node's start.
    pub now: Duration,
    /// Bytes ever appended to the log: those found at the start, and those written since.
    pub written: u64,
    /// Bytes of the state on disk.
    pub state: u64,
    /// The last applied index.
    pub applied: u64,
    /// The last index of the newest durable snapshot; 0 if there is none.
    pub snapshot: u64,
    /// The last index that live members all have; `None` if there are no others.
    pub matched: Option<u64>,
    /// Whether the disk is below its mark: then the size of the log does not matter.
    pub short_of_disk: bool,
}

impl SnapshotPolicy {
    /// Whether to take a snapshot now. Saying so counts as having begun one.
    pub(crate) fn due(&mut self, view: &LogView) -> bool {
        self.mark(view);
        if self.taken.is_some_and(|taken| view.now < taken + SNAPSHOT_INTERVAL_MIN) {
            return false;
        }
        let grown = view.written.saturating_sub(self.at_snapshot);
        let enough = grown > SNAPSHOT_LOG_BYTES_MIN.max(view.state / 2);
        let new = view.applied > view.snapshot;
        // The wish to free space is granted once a minute even if nothing new is to be saved:
        // what may be purged or compacted meanwhile is not known here.
        let due = (enough && new) || view.short_of_disk;
        if due {
            self.began(view);
        }
        due
    }

    /// A snapshot was begun for another reason, such as a person's wish.
    pub(crate) fn began(&mut self, view: &LogView) {
        self.taken = Some(view.now);
        self.at_snapshot = view.written;
    }

    /// Up to which index the log may be purged now, if further than before.
    pub(crate) fn purge_to(&mut self, view: &LogView) -> Option<u64> {
        self.mark(view);
        let kept = match view.matched {
            // Everything that is behind the kept bytes goes, whoever lacks it.
            Some(matched) if !view.short_of_disk => matched.max(self.index_before(view)),
            _ => u64::MAX,
        };
        let upto = view.snapshot.min(kept);
        (upto > self.purged).then(|| {
            self.purged = upto;
            upto
        })
    }

    fn mark(&mut self, view: &LogView) {
        let mark = Mark { index: view.applied, written: view.written };
        // A mark for each 1/256 of what is kept is exact enough and covers it four times.
        let far = |last: &Mark| mark.written - last.written >= LOG_KEPT_BYTES_MAX / 256;
        if self.marks.back().is_none_or(|last| mark.written >= last.written && far(last)) {
            if self.marks.len() == MARKS_MAX {
                self.marks.pop_front();
            }
            self.marks.push_back(mark);
        }
    }

    /// The newest marked index behind which more than the kept bytes were written; 0 if unknown.
    fn index_before(&self, view: &LogView) -> u64 {
        let far = |mark: &&Mark| view.written.saturating_sub(mark.written) >= LOG_KEPT_BYTES_MAX;
        self.marks.iter().rev().find(far).map_or(0, |mark| mark.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn at(seconds: u64, written_mib: u64) -> LogView {
        LogView {
            now: Duration::from_secs(seconds),
            written: written_mib * MIB,
            applied: written_mib,
            ..LogView::default()
        }
    }

    #[test]
    fn a_quarter_gibibyte_of_log_calls_for_a_snapshot() {
        let mut policy = SnapshotPolicy::default();
        assert!(!policy.due(&at(1, 256)));
        assert!(policy.due(&at(2, 257)));
        assert!(!policy.due(&at(3, 257)), "it is being taken");
        assert!(!policy.due(&at(100, 513)));
        assert!(policy.due(&at(101, 514)), "and again after as much");
    }

    #[test]
    fn a_large_state_is_saved_less_often() {
        let mut policy = SnapshotPolicy::default();
        let large = |view: LogView| LogView { state: 2_000 * MIB, ..view };
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
        let short = |view| LogView { short_of_disk: true, ..view };
        assert!(policy.due(&short(at(1, 1))));
        assert!(!policy.due(&short(at(60, 1))), "at most once a minute");
        assert!(policy.due(&short(at(61, 1))));
    }

    #[test]
    fn nothing_is_purged_that_no_snapshot_holds() {
        let mut policy = SnapshotPolicy::default();
        assert_eq!(policy.purge_to(&at(1, 900)), None);
        let saved = LogView { snapshot: 500, ..at(2, 900) };
        assert_eq!(policy.purge_to(&saved), Some(500));
        assert_eq!(policy.purge_to(&saved), None, "not twice");
    }

    #[test]
    fn what_a_live_member_lacks_is_kept_up_to_a_bound() {
        let mut policy = SnapshotPolicy::default();
        for mib in 0..=900 {
            policy.due(&at(1, mib));
        }
        let behind = |matched| LogView { snapshot: 890, matched: Some(matched), ..at(2, 900) };
        assert_eq!(policy.purge_to(&behind(800)), Some(800), "it lacks 100 MiB: they stay");
        let mut policy = SnapshotPolicy::default();
        for mib in 0..=900 {
            policy.due(&at(1, mib));
        }
        assert_eq!(policy.purge_to(&behind(3)), Some(644), "it lacks too much: 256 MiB stay");
        assert_eq!(policy.purge_to(&behind(899)), Some(890), "it has caught up");
    }

    #[test]
    fn a_full_disk_keeps_nothing_for_laggards() {
        let mut policy = SnapshotPolicy::default();
        let view =
            LogView { snapshot: 890, matched: Some(3), short_of_disk: true, ..at(2, 900) };
        assert_eq!(policy.purge_to(&view), Some(890));
    }
}
