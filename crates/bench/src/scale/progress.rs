//! What a long step has done so far, said now and then.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often something is said.
const EVERY: Duration = Duration::from_secs(10);

/// Counts towards a number, from several threads.
pub(super) struct Progress {
    what: &'static str,
    of: u64,
    done: AtomicU64,
    begun: Instant,
    said: Mutex<Instant>,
}

impl Progress {
    pub(super) fn towards(of: u64, what: &'static str) -> Self {
        let now = Instant::now();
        Self {
            what,
            of,
            done: AtomicU64::new(0),
            begun: now,
            said: Mutex::new(now),
        }
    }

    /// So many more are done.
    pub(super) fn add(&self, count: u64) {
        let done = self.done.fetch_add(count, Ordering::Relaxed) + count;
        let Ok(mut said) = self.said.try_lock() else {
            return;
        };
        if said.elapsed() >= EVERY {
            *said = Instant::now();
            eprintln!(
                "    {done} of {} {} after {:.0} s",
                self.of,
                self.what,
                self.begun.elapsed().as_secs_f64()
            );
        }
    }
}
