/// When operations are due, in an open loop: evenly spaced, dealt to the actors in turn.
///
/// An operation keeps the moment at which it was *due*, however late it is sent, and its latency counts from there. A
/// server that stands still for a second is so charged for everything that a real crowd would have wanted meanwhile,
/// not for the one operation per connection that a closed loop would have had under way.
#[derive(Debug)]
pub(super) struct Pace {
    /// Nanoseconds from one operation to the next.
    interval: f64,
    /// Operations dealt so far.
    dealt: u64,
    /// Nanoseconds; so that several threads do not fire at the same moments.
    offset: f64,
}

impl Pace {
    /// `rate` operations per second in all, of which this thread takes every `threads`th, starting with number `index`.
    pub(super) fn new(rate: f64, index: usize, threads: usize) -> Self {
        let between = 1e9 / rate;
        Self {
            interval: between * threads as f64,
            dealt: 0,
            offset: between * index as f64,
        }
    }

    /// When the next operation is due.
    pub(super) fn due(&self) -> u64 {
        (self.offset + self.interval * self.dealt as f64) as u64
    }

    /// Takes the next operation: its number, and when it was due.
    pub(super) fn take(&mut self) -> (u64, u64) {
        let taken = (self.dealt, self.due());
        self.dealt += 1;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_rate_without_meeting() {
        let mut first = Pace::new(1000.0, 0, 2);
        let mut second = Pace::new(1000.0, 1, 2);
        assert_eq!([first.take(), first.take()], [(0, 0), (1, 2_000_000)]);
        assert_eq!(
            [second.take(), second.take()],
            [(0, 1_000_000), (1, 3_000_000)]
        );
    }

    #[test]
    fn a_rate_does_not_drift() {
        let mut pace = Pace::new(300.0, 0, 1);
        for _ in 0..3000 {
            pace.take();
        }
        assert_eq!(pace.due(), 10_000_000_000);
    }
}
