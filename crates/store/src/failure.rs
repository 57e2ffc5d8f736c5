use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

/// What a store does when a write or fsync failed: it says so, once, and the process ends.
///
/// The default is [`trellis_consensus::fail_stop`]; tests take another.
pub type FailStop = Arc<dyn Fn(&str) + Send + Sync>;

/// Remembers the first failure of a store. After it nothing is written or acknowledged any more,
/// whatever a later write would say: a disk that failed an fsync once may have dropped the pages
/// and report success the next time (faults D27).
///
/// Source: architecture, promise P9.
#[derive(Clone)]
pub(crate) struct Failure {
    hook: FailStop,
    reason: Arc<OnceLock<String>>,
    wakers: Arc<Mutex<Vec<Waker>>>,
}

/// Lets those who wait for a write look again.
type Waker = Box<dyn Fn() + Send + Sync>;

impl Failure {
    pub(crate) fn new(hook: FailStop) -> Self {
        Self {
            hook,
            reason: Arc::default(),
            wakers: Arc::default(),
        }
    }

    /// `wake` is called when something fails, so that nobody goes on waiting for what will never
    /// come. It must not own what owns this.
    pub(crate) fn on_stop(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.wakers.lock().push(Box::new(wake));
    }

    /// Stops the store for good. The hook is called by the first failure only. The caller holds no
    /// lock of the store.
    pub(crate) fn stop(&self, reason: impl fmt::Display) -> io::Error {
        let reason = reason.to_string();
        if self.reason.set(reason.clone()).is_ok() {
            (self.hook)(&reason);
            for wake in self.wakers.lock().iter() {
                wake();
            }
        }
        io::Error::other(reason)
    }

    /// `Err` once something failed.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.reason.get() {
            None => Ok(()),
            Some(reason) => Err(io::Error::other(reason.clone())),
        }
    }

    pub(crate) fn happened(&self) -> bool {
        self.reason.get().is_some()
    }
}
