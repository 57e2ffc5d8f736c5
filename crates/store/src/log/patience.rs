use std::time::{Duration, Instant};

/// A look that comes so much too late tells that the process stood still.
const LATE: Duration = Duration::from_secs(1);

/// How long a write that has not come back counts as outstanding, to one who looks every now and
/// then. While the process stood still (stopped, its machine paused) nothing could come back, so
/// that time says nothing of the disk.
#[derive(Debug)]
pub(super) struct Patience {
    pause: Duration,
    looked: Instant,
    /// Since when the looks came in time.
    awake: Instant,
}

impl Patience {
    /// From `now` on there is to be a look every `pause`.
    pub(super) fn new(pause: Duration, now: Instant) -> Self {
        Self {
            pause,
            looked: now,
            awake: now,
        }
    }

    /// Looks: what counts of the time that a write is outstanding. A look that comes too late
    /// begins anew.
    pub(super) fn counts(&mut self, outstanding: Duration, now: Instant) -> Duration {
        if now.saturating_duration_since(self.looked) > self.pause + LATE {
            self.awake = now;
        }
        self.looked = now;
        outstanding.min(now.saturating_duration_since(self.awake))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_stood_still_does_not_blame_its_disk() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut patience = Patience::new(Duration::from_secs(1), begin);
        let mut counts = |outstanding, now| {
            let counts = patience.counts(Duration::from_secs(outstanding), at(now));
            counts.as_secs()
        };
        assert_eq!(counts(0, 1), 0);
        assert_eq!(counts(1, 2), 1);
        // Stopped for 13 s with a write on its way.
        assert_eq!(counts(14, 15), 0);
        // A disk that hangs from then on is found out as ever.
        for second in 1..=10 {
            assert_eq!(counts(14 + second, 15 + second), second);
        }
    }
}
