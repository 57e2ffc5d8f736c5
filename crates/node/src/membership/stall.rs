use std::time::Duration;

/// How long log write or apply of a leader may stand still although there is work.
pub(crate) const STALL_HAND_OVER: Duration = Duration::from_secs(2);

/// How long one log write may be outstanding before it counts as failed.
pub(super) const STALL_FATAL: Duration = Duration::from_secs(10);

/// A look that comes so late after the one before tells that the process stood still (stopped, its
/// machine paused): nothing could come back meanwhile, which says nothing of disk or apply.
const STOOD_STILL: Duration = Duration::from_millis(1_500);

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
    looked: Duration,
    /// Since when the looks came in time.
    awake: Duration,
    log_moved: Duration,
    apply_moved: Duration,
}

impl StallWatch {
    /// Judges the progress seen at `now` (since the node's start). To be called at least every
    /// half second: what moved in between is noticed only here. After a look that comes much later
    /// everything has its full time again.
    pub(crate) fn look(&mut self, now: Duration, mut progress: Progress) -> StallVerdict {
        if now.saturating_sub(self.looked) >= STOOD_STILL {
            (self.awake, self.log_moved, self.apply_moved) = (now, now, now);
        }
        self.looked = now;
        let awake = now.saturating_sub(self.awake);
        progress.oldest_write = progress.oldest_write.map(|age| age.min(awake));
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
        assert_eq!(watch.look(secs(1.0), hung), StallVerdict::Moving);
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
        let verdicts = (0..=20).map(|half| {
            let age = f64::from(half) / 2.0;
            watch.look(secs(1.0 + age), late(age))
        });
        let verdicts: Vec<_> = verdicts.collect();
        let hand_over = StallVerdict::HandOver("the log's writes");
        assert_eq!(verdicts[..4], [StallVerdict::Moving; 4]);
        assert_eq!(verdicts[4..20], [hand_over; 16]);
        assert_eq!(verdicts[20], StallVerdict::Fatal);
    }

    /// Found by freezing a leader for twelve seconds: the write that was on its way just then had
    /// been "outstanding" for all of them at the first look after the thaw, and the node died of it.
    #[test]
    fn a_process_that_stood_still_blames_neither_its_disk_nor_its_apply() {
        let mut watch = StallWatch::default();
        let busy = |age| Progress {
            submitted: 9,
            written: 8,
            committed: 8,
            applied: 7,
            oldest_write: Some(secs(age)),
        };
        assert_eq!(watch.look(secs(1.0), busy(0.1)), StallVerdict::Moving);
        // Stopped for 13 s.
        assert_eq!(watch.look(secs(14.0), busy(13.1)), StallVerdict::Moving);
        assert_eq!(watch.look(secs(15.0), busy(14.1)), StallVerdict::Moving);
        // What hangs from then on is found out as ever.
        let hand_over = StallVerdict::HandOver("the log's writes");
        for second in 16..24 {
            let now = f64::from(second);
            assert_eq!(watch.look(secs(now), busy(now - 0.9)), hand_over);
        }
        assert_eq!(watch.look(secs(24.0), busy(23.1)), StallVerdict::Fatal);
    }
}
