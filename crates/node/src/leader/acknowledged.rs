use std::time::{Duration, Instant};

/// When a majority acknowledged a leader last, for the log: consensus tells no age of a leader that
/// it has deposed, and what counts instead goes back to when it took office.
#[derive(Debug)]
pub(super) struct Acknowledged(Instant);

impl Acknowledged {
    pub(super) fn new(took_office: Instant) -> Self {
        Self(took_office)
    }

    /// At `now` the acknowledgement seemed to be so old.
    pub(super) fn seen(&mut self, age: Duration, now: Instant) {
        if let Some(moment) = now.checked_sub(age) {
            self.0 = self.0.max(moment);
        }
    }

    /// How long ago it was, as far as it was seen.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_is_deposed_was_acknowledged_until_then() {
        let took_office = Instant::now();
        let at = |seconds| took_office + Duration::from_secs(seconds);
        let mut acknowledged = Acknowledged::new(took_office);
        acknowledged.seen(Duration::from_secs(1), at(360));
        // Stopped for 20 s and deposed meanwhile: all that is told is its time in office.
        acknowledged.seen(Duration::from_secs(381), at(381));
        assert_eq!(acknowledged.age(at(381)), Duration::from_secs(22));
    }
}
