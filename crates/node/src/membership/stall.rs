use std::time::Duration;

/// How long log write or apply of a leader may stand still although there is work.
pub(crate) const STALL_HAND_OVER: Duration = Duration::from_secs(2);

/// How long one log write may be outstanding before it counts as failed.
pub(super) const STALL_FATAL: Duration = Duration::from_secs(10);

/// How far the two conveyors of a node have come, and how far they have work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Indexes handed to the log writer.
    pub submitted: u64,
    /// Indexes that it has written.
    pub written: u64,
    /// Committed indexes.
    pub committed: u64,
    /// Applied indexes.
    pub applied: u64,
    /// How long the oldest outstanding log write has been so.
    pub oldest_write: Option<Duration>,
}

/// What standing still calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StallVerdict {
    /// It moves, or has nothing to do.
    Moving,
    /// Hand leadership over, and don't stand again before it moves.
    HandOver(&'static str),
    /// A failed write: close all sockets, then abort.
    Fatal,
}

/// Notices that a log write or apply does not move. Source: architecture, section 10, rule 7.
#[derive(Debug, Default)]
pub(crate) struct StallWatch {
    seen: Progress,
    log_moved: Duration,
    apply_moved: Duration,
}

impl StallWatch {
    /// Judges the progress seen at `now` (since the node's start). To be called at least every
    /// half second: what moved in between is noticed only here.
    pub(crate) fn look(&mut self, now: Duration, progress: Progress) -> StallVerdict {
        if progress.oldest_write.is_some_and(|age| age >= STALL_FATAL) {
            return StallVerdict::Fatal;
        }
        if progress.written != self.seen.written || progress.submitted <= progress.written {
            self.log_moved = now;
        }
        if progress.applied != self.seen.applied || progress.committed <= progress.applied {
            self.apply_moved = now;
        }
        self.seen = progress;
        let writes_late = progress
            .oldest_write
            .is_some_and(|age| age >= STALL_HAND_OVER);
        if writes_late || now.saturating_sub(self.log_moved) >= STALL_HAND_OVER {
            StallVerdict::HandOver("the log's writes")
        } else if now.saturating_sub(self.apply_moved) >= STALL_HAND_OVER {
            StallVerdict::HandOver("applying entries")
        } else {
            StallVerdict::Moving
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn an_idle_leader_is_not_stalled() {
        let mut watch = StallWatch::default();
        let idle = Progress {
            submitted: 9,
            written: 9,
            committed: 9,
            applied: 9,
            oldest_write: None,
        };
        for second in 0..100 {
            assert_eq!(
                watch.look(secs(f64::from(second)), idle),
                StallVerdict::Moving
            );
        }
        // Work that has just come is not late by the idle time before it.
        let work = Progress {
            submitted: 10,
            ..idle
        };
        assert_eq!(watch.look(secs(100.0), work), StallVerdict::Moving);
        assert_eq!(watch.look(secs(100.9), work), StallVerdict::Moving);
        assert_eq!(
            watch.look(secs(101.0), work),
            StallVerdict::HandOver("the log's writes")
        );
    }

    #[test]
    fn an_apply_that_hangs_hands_over_and_recovers_when_it_moves() {
        let mut watch = StallWatch::default();
        let hung = Progress {
            submitted: 9,
            written: 9,
            committed: 9,
            applied: 5,
            oldest_write: None,
        };
        assert_eq!(watch.look(secs(0.0), hung), StallVerdict::Moving);
        assert_eq!(watch.look(secs(1.9), hung), StallVerdict::Moving);
        assert_eq!(
            watch.look(secs(2.0), hung),
            StallVerdict::HandOver("applying entries")
        );
        let moved = Progress { applied: 6, ..hung };
        assert_eq!(watch.look(secs(2.5), moved), StallVerdict::Moving);
    }

    #[test]
    fn a_write_that_hangs_for_ten_seconds_has_failed() {
        let mut watch = StallWatch::default();
        let late = |age| Progress {
            oldest_write: Some(secs(age)),
            ..Progress::default()
        };
        assert_eq!(watch.look(secs(1.0), late(1.9)), StallVerdict::Moving);
        assert_eq!(
            watch.look(secs(1.1), late(2.0)),
            StallVerdict::HandOver("the log's writes")
        );
        assert_eq!(watch.look(secs(9.9), late(10.0)), StallVerdict::Fatal);
    }
}
