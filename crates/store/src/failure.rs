use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::{Quarantine, StoreOptions};

/// What a store does when a write or fsync failed: it says so, once, and the process ends.
///
/// The default is [`trellis_consensus::fail_stop`]; tests take another.
pub type FailStop = Arc<dyn Fn(&str) + Send + Sync>;

/// Remembers the first failure of a store. After it nothing is written or acknowledged any more,
/// whatever a later write would say: a disk that failed an fsync once may have dropped the pages
/// and report success the next time (faults D27).
///
/// A failure may also be that what is read is not what was written. Then the data folder is
/// quarantined first, so that the next start does not try its luck with it.
///
/// Source: architecture, promise P9.
#[derive(Clone)]
pub(crate) struct Failure {
    fail_stop: FailStop,
    damaged: FailStop,
    /// Where a quarantine is noted.
    folder: Option<PathBuf>,
    reason: Arc<OnceLock<String>>,
    wakers: Arc<Mutex<Vec<Waker>>>,
}

/// Lets those who wait for a write look again.
type Waker = Box<dyn Fn() + Send + Sync>;

impl Failure {
    pub(crate) fn new(options: &StoreOptions, folder: Option<PathBuf>) -> Self {
        Self {
            fail_stop: options.fail_stop.clone(),
            damaged: options.damaged.clone(),
            folder,
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
        self.end(reason.to_string(), &self.fail_stop, || {})
    }

    /// The same because of `error` while doing `what`: damage if it is of that kind.
    pub(crate) fn because(&self, what: impl fmt::Display, error: &io::Error) -> io::Error {
        let reason = format!("{what}: {error}");
        match error.kind() {
            io::ErrorKind::InvalidData => self.damaged(reason),
            _ => self.stop(reason),
        }
    }

    /// The same because the files are damaged: the folder is quarantined.
    pub(crate) fn damaged(&self, reason: impl fmt::Display) -> io::Error {
        let reason = reason.to_string();
        let note = Quarantine::damaged(&reason);
        let ended = self.end(reason, &self.damaged, || {
            let noted = self.folder.as_deref().map(|folder| note.write(folder));
            if let Some(Err(error)) = noted {
                // The next start finds the damage itself, or fails as well.
                tracing::error!(%error, "the quarantine can't be noted");
            }
        });
        io::Error::new(io::ErrorKind::InvalidData, ended)
    }

    fn end(&self, reason: String, hook: &FailStop, before: impl FnOnce()) -> io::Error {
        if self.reason.set(reason.clone()).is_ok() {
            before();
            hook(&reason);
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
