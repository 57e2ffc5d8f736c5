use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;
use trellis_types::limits;

/// The node-wide bound of bytes: bodies that are being read in, and commands that are submitted
/// and not yet applied. One item is admitted when it is empty, however large.
///
/// Source: architecture, section 11.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    used: AtomicUsize,
    freed: Notify,
}

/// Bytes that a body being read in has taken; they return when this is dropped, which is to
/// happen when the body has been submitted.
#[derive(Debug)]
pub struct Admitted {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    const MAX: usize = limits::NODE_PENDING_BYTES_MAX;

    pub(crate) fn has_room(&self) -> bool {
        self.used.load(Ordering::Relaxed) < Self::MAX
    }

    /// Takes without asking: what is submitted is counted, not refused.
    pub(crate) fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.freed.notify_waiters();
    }

    /// Returns when there is room again.
    pub(crate) async fn room(&self) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.has_room() {
                return;
            }
            freed.await;
        }
    }

    /// Waits until `bytes` more fit.
    pub(crate) async fn admit(self: Arc<Self>, bytes: usize) -> Admitted {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let fits = self
                .used
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                    (used == 0 || used.saturating_add(bytes) <= Self::MAX)
                        .then(|| used.saturating_add(bytes))
                });
            if fits.is_ok() {
                return Admitted {
                    budget: self.clone(),
                    bytes,
                };
            }
            freed.await;
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_body_larger_than_the_bound_is_read_when_nothing_else_is() {
        let budget = Arc::new(Budget::default());
        let small = budget.clone().admit(1).await;
        let mut huge = Box::pin(budget.clone().admit(Budget::MAX * 2));
        let waits = tokio::time::timeout(Duration::from_millis(20), &mut huge).await;
        assert!(waits.is_err(), "something else is being read");
        drop(small);
        let huge = tokio::time::timeout(Duration::from_secs(5), huge)
            .await
            .expect("admitted alone");
        assert!(!budget.has_room());
        drop(huge);
        assert!(budget.has_room());
    }
}
