use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use trellis_types::limits;

/// A sender may be this late, however large its body.
const GRACE: Duration = Duration::from_secs(30);

/// Bytes per unit of the semaphore: it counts to 2^32 at least, and bodies need not be exact.
const UNIT: usize = 1024;

/// Large bodies that are being read in: so many bytes at a time, first come first served. One is
/// admitted when there is no other, however large.
///
/// Source: architecture, section 11.
#[derive(Debug)]
pub(crate) struct LargeBodies {
    units: usize,
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A large body's place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    bodies: Arc<LargeBodies>,
    due: Instant,
    _units: OwnedSemaphorePermit,
}

impl LargeBodies {
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        let units = (bytes_max / UNIT).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Arc::new(Self {
            units,
            free: Arc::new(Semaphore::new(units)),
            waiting: AtomicUsize::new(0),
        })
    }

    /// A place for a body of `bytes`, when there is one. The time for sending it counts from then.
    pub(crate) async fn enter(self: Arc<Self>, bytes: usize) -> Option<Place> {
        let units = (bytes / UNIT).clamp(1, self.units) as u32;
        let waits = Waits::new(&self);
        // Fails only if the semaphore is closed, which nobody does.
        let held = Arc::clone(&self.free)
            .acquire_many_owned(units)
            .await
            .ok()?;
        drop(waits);
        let seconds = bytes / limits::LARGE_BODY_BYTES_PER_SECOND_MIN;
        Some(Place {
            bodies: self,
            due: Instant::now() + GRACE + Duration::from_secs(seconds as u64),
            _units: held,
        })
    }
}

impl Place {
    /// Whether the body should have been here by now, and others wait for its place.
    pub(crate) fn is_overdue(&self) -> bool {
        Instant::now() > self.due && self.bodies.waiting.load(Ordering::Relaxed) > 0
    }
}

/// One that waits, also if it stops waiting.
struct Waits<'a>(&'a LargeBodies);

impl<'a> Waits<'a> {
    fn new(bodies: &'a LargeBodies) -> Self {
        bodies.waiting.fetch_add(1, Ordering::Relaxed);
        Self(bodies)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    const MIB: usize = 1024 * 1024;

    #[tokio::test(start_paused = true)]
    async fn one_is_admitted_however_large_and_the_next_waits() {
        let bodies = LargeBodies::new(2 * MIB);
        let huge = Arc::clone(&bodies)
            .enter(64 * MIB)
            .await
            .expect("it is open");
        let waits = timeout(Duration::from_secs(1), Arc::clone(&bodies).enter(MIB)).await;
        assert!(waits.is_err());
        drop(huge);
        let first = Arc::clone(&bodies).enter(MIB).await.expect("it is open");
        let second = Arc::clone(&bodies)
            .enter(MIB)
            .await
            .expect("two small ones fit");
        drop((first, second));
    }

    #[tokio::test(start_paused = true)]
    async fn who_dawdles_has_to_go_only_when_somebody_waits() {
        let bodies = LargeBodies::new(MIB);
        let slow = Arc::clone(&bodies).enter(MIB).await.expect("it is open");
        advance(Duration::from_secs(3600)).await;
        assert!(!slow.is_overdue(), "nobody needs its place");

        let next = tokio::spawn(Arc::clone(&bodies).enter(MIB));
        tokio::task::yield_now().await;
        assert!(slow.is_overdue());
        drop(slow);
        let next = next.await.expect("it is polled").expect("it is open");
        advance(Duration::from_secs(33)).await;
        let third = tokio::spawn(bodies.enter(MIB));
        tokio::task::yield_now().await;
        assert!(!next.is_overdue(), "30 s and 4 s for a MiB");
        advance(Duration::from_secs(2)).await;
        assert!(next.is_overdue());
        third.abort();
    }
}
