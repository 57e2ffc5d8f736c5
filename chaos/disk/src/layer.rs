//! The disk with what is to go wrong on it: what an operation comes to.

use std::{
    ffi::OsStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use fuser::Errno;
use parking_lot::Mutex;
use serde::Serialize;

use crate::{
    disk::Disk,
    fault::{Fate, Operation, Rules},
};

/// Between two looks whether what is waited for is called off.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a slow disk's operation takes at least before it is multiplied, so that it is slow on a fast machine, too.
const SYNC_USUAL: Duration = Duration::from_micros(200);

/// The disk and what is to go wrong with it, shared by the kernel's side and the one that gives orders.
pub struct Layer {
    /// The disk.
    pub disk: Mutex<Disk>,
    /// What is to go wrong.
    pub rules: Mutex<Rules>,
    /// What happened.
    pub counts: Counts,
    /// Whether a sync also waits for the disk beneath, so that it takes as long as one there.
    pub syncs_beneath: bool,
    /// How often the power was cut.
    pub cuts: AtomicU64,
}

/// What happened so far.
#[derive(Debug, Default)]
pub struct Counts {
    reads: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    sync_micros: AtomicU64,
}

/// [`Counts`] at one moment.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counted {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Syncs of files and folders.
    pub syncs: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time that syncs took in all, in microseconds.
    pub sync_micros: u64,
}

impl Counts {
    /// A read was answered with so many bytes.
    pub(crate) fn read(&self, bytes: usize) {
        add(&self.reads, 1);
        add(&self.read_bytes, bytes as u64);
    }

    /// What happened so far.
    pub fn now(&self) -> Counted {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counted {
            reads: get(&self.reads),
            writes: get(&self.writes),
            syncs: get(&self.syncs),
            read_bytes: get(&self.read_bytes),
            written_bytes: get(&self.written_bytes),
            sync_micros: get(&self.sync_micros),
        }
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

impl Layer {
    /// What the rules say of an operation on a file.
    pub(crate) fn fate(&self, operation: Operation, number: u64) -> Fate {
        // No path is looked up while nothing is to go wrong.
        if self.rules.lock().is_empty() {
            return Fate::default();
        }
        let path = self.disk.lock().path(number);
        self.rules.lock().fate(operation, &path)
    }

    /// The same of a name that may not be there yet.
    pub(crate) fn fate_in(&self, operation: Operation, folder: u64, name: &OsStr) -> Fate {
        if self.rules.lock().is_empty() {
            return Fate::default();
        }
        let path = self.disk.lock().path_in(folder, name);
        self.rules.lock().fate(operation, &path)
    }

    /// Does `work` when `fate` lets it. Whoever has to wait waits on a thread of its own, so that the others go on.
    pub(crate) fn when(self: &Arc<Self>, fate: Fate, work: impl FnOnce(&Self) + Send + 'static) {
        if fate.waits.is_none() && fate.slow.is_none() {
            return work(self);
        }
        let layer = Arc::clone(self);
        let waiter = thread::Builder::new().name("disk-wait".to_owned());
        // Without a thread the process that asked hangs, which is what was to happen.
        let _ = waiter.spawn(move || {
            if let Some((time, rule)) = fate.waits {
                layer.wait(time, rule);
            }
            work(&layer);
        });
    }

    /// Waits, but no longer than the rule is there and the power stays.
    fn wait(&self, time: Duration, rule: u64) {
        let cuts = self.cuts.load(Ordering::SeqCst);
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero()
                || self.cuts.load(Ordering::SeqCst) != cuts
                || !self.rules.lock().has(rule)
            {
                return;
            }
            thread::sleep(left.min(LOOK_EVERY));
        }
    }

    /// The rest of a slow operation that began then.
    fn drag(fate: Fate, began: Instant, usual: Duration) {
        if let Some(factor) = fate.slow {
            let took = began.elapsed().max(usual);
            let whole = took * factor;
            thread::sleep(whole.saturating_sub(began.elapsed()));
        }
    }

    /// A sync as its fate has it.
    pub(crate) fn sync(&self, number: u64, handle: u64, fate: Fate) -> Result<(), Errno> {
        let began = Instant::now();
        self.disk.lock().check_handle(handle)?;
        if let Some(errno) = fate.fails {
            return Err(errno);
        }
        if !fate.lies {
            let object = self.disk.lock().sync(number)?;
            if let Some(object) = object.filter(|_| self.syncs_beneath) {
                object.sync_data()?;
            }
        }
        Self::drag(fate, began, SYNC_USUAL);
        add(&self.counts.syncs, 1);
        add(
            &self.counts.sync_micros,
            u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
        );
        Ok(())
    }

    /// A write as its fate has it; how many bytes it says.
    pub(crate) fn write(
        &self,
        number: u64,
        handle: u64,
        offset: u64,
        data: &[u8],
        fate: Fate,
    ) -> Result<u32, Errno> {
        let began = Instant::now();
        let mut disk = self.disk.lock();
        disk.check_handle(handle)?;
        if let Some(errno) = fate.fails {
            return Err(errno);
        }
        let len = match fate.short {
            true if data.len() > 1 => data.len() / 2,
            _ => data.len(),
        };
        if fate.misdirects {
            disk.write(number, offset + 4096, &data[..len])?;
        } else if !fate.loses {
            disk.write(number, offset, &data[..len])?;
        }
        drop(disk);
        Self::drag(fate, began, Duration::from_micros(10));
        add(&self.counts.writes, 1);
        add(&self.counts.written_bytes, len as u64);
        u32::try_from(len).map_err(|_| Errno::EFBIG)
    }
}
