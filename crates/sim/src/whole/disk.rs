use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use trellis_consensus::memory::MemoryLog;
use trellis_node::membership::{Disk, DiskSpace};

/// Size of the volume; what is free is told of it.
const TOTAL_BYTES: u64 = 1 << 40;

/// As large as entries pretend to be when house-keeping is to be in a hurry: 300 of them call for a
/// snapshot, and so many are kept behind one.
const LARGE_ENTRY_BYTES: u64 = 1024 * 1024;

/// Entries that are kept for others behind a snapshot when house-keeping is in a hurry.
const KEPT: u64 = 20;

/// What house-keeping is told of the storage. It counts entries, and can be made to believe that
/// they are large, so that snapshots and purges come often.
pub(super) struct SimDisk {
    log: MemoryLog,
    free: AtomicU64,
    hurried: AtomicBool,
}

impl SimDisk {
    pub(super) fn new(log: MemoryLog) -> Self {
        Self {
            log,
            free: AtomicU64::new(TOTAL_BYTES / 2),
            hurried: AtomicBool::new(false),
        }
    }

    /// Whether little is kept of the log from now on.
    pub(super) fn hurry(&self, on: bool) {
        self.hurried.store(on, Ordering::Relaxed);
    }

    /// Whether the volume is nearly full from now on.
    pub(super) fn fill(&self, full: bool) {
        let free = if full { 1024 } else { TOTAL_BYTES / 2 };
        self.free.store(free, Ordering::Relaxed);
    }
}

impl Disk for SimDisk {
    fn space(&self) -> io::Result<DiskSpace> {
        Ok(DiskSpace {
            free: self.free.load(Ordering::Relaxed),
            total: TOTAL_BYTES,
        })
    }

    fn log_bytes_after(&self, index: Option<u64>) -> u64 {
        let last = self.log.span().map_or(0, |(_, last)| last);
        let entries = last.saturating_sub(index.unwrap_or(0));
        match self.hurried.load(Ordering::Relaxed) {
            true => entries * LARGE_ENTRY_BYTES,
            false => entries,
        }
    }

    fn log_index_keeping(&self, _: u64) -> Option<u64> {
        let last = self.log.span().map_or(0, |(_, last)| last);
        self.hurried
            .load(Ordering::Relaxed)
            .then(|| last.checked_sub(KEPT))
            .flatten()
    }

    fn state_bytes(&self) -> u64 {
        0
    }

    fn oldest_write(&self) -> Option<Duration> {
        self.log.oldest_write()
    }

    fn compact(&self) -> io::Result<()> {
        Ok(())
    }

    // A difference ends a run at once: it is reported as a broken promise.
    fn quarantine(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn quarantined(&self) -> Option<String> {
        None
    }
}
