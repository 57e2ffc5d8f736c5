use std::time::{Duration, Instant};

/// Bytes a second at which the files of a new snapshot are read: nobody waits for it, and commands
/// need the same two cores and the same disk.
const BYTES_PER_SECOND: u64 = 64 * 1024 * 1024;
/// A lead shorter than this is not slept off: a small snapshot is made at once.
const LEAD: Duration = Duration::from_millis(10);

/// Keeps a long reading slow.
pub(super) struct Pace {
    begun: Instant,
    bytes: u64,
}

impl Pace {
    pub(super) fn begin() -> Self {
        Self {
            begun: Instant::now(),
            bytes: 0,
        }
    }

    /// So many bytes were read: sleeps until that was not too fast.
    pub(super) fn keep(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        let lead = due(self.bytes).saturating_sub(self.begun.elapsed());
        if lead >= LEAD {
            std::thread::sleep(lead);
        }
    }
}

/// When so many bytes may have been read.
fn due(bytes: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / BYTES_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_large_takes_its_time_and_what_is_small_does_not() {
        assert_eq!(due(10 * BYTES_PER_SECOND), Duration::from_secs(10));
        assert!(due(512 * 1024) < LEAD);
        let mut pace = Pace::begin();
        pace.keep(4 * 1024 * 1024);
        assert!(pace.begun.elapsed() >= due(4 * 1024 * 1024));
    }
}
