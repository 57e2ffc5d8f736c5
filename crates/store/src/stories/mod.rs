//! What the store promises, told as stories. The helpers are here, so that a story says only what
//! happens.

mod cluster;
mod damage;
mod identity;
mod log;
mod mirror;
mod replay;
mod replica;
mod snapshot;
mod suite;
mod together;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use parking_lot::{Condvar, Mutex};
use trellis_consensus::raft::{Entry, LogId, TypeConfig};
use trellis_consensus::{Payload, Position};
use trellis_types::{NodeId, Timestamp};

use crate::{LogEngine, OpenError, Opened, Step, Store, StoreOptions};

/// A data folder, its options, and what failed in it.
struct Folder {
    dir: tempfile::TempDir,
    options: StoreOptions,
    failures: Arc<Mutex<Vec<String>>>,
}

impl Folder {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut StoreOptions)) -> Self {
        let failures = Arc::new(Mutex::new(Vec::new()));
        let mut options = StoreOptions {
            fail_stop: hear(&failures),
            damaged: hear(&failures),
            ..StoreOptions::default()
        };
        // Small enough for a test's patience.
        options.log.segment_bytes = 64 * 1024;
        options.state.memtable_bytes = 1024 * 1024;
        options.state.block_cache_bytes = 1024 * 1024;
        change(&mut options);
        Self {
            dir: tempfile::tempdir().unwrap(),
            options,
            failures,
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn open(&self) -> Opened {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<Opened, OpenError> {
        Store::open(&self.path(), self.options.clone())
    }

    /// With something between the log and its disk.
    fn open_faulty(&self) -> (Opened, Disk) {
        let mut faulty = None;
        let opened = Store::open_with(&self.path(), self.options.clone(), |engine| {
            let wrapped = Arc::new(Faulty::over(engine));
            faulty = Some(wrapped.clone());
            wrapped
        });
        (opened.unwrap(), Disk(faulty.unwrap()))
    }

    fn failures(&self) -> Vec<String> {
        self.failures.lock().clone()
    }

    /// What a process that is killed now leaves behind, in a folder of its own. What was written
    /// without a write-ahead log and not flushed is not in it.
    fn crash_image(&self) -> Self {
        let image = Self::with(|options| *options = self.options.clone());
        let image = Self {
            options: StoreOptions {
                fail_stop: hear(&image.failures),
                damaged: hear(&image.failures),
                ..image.options
            },
            ..image
        };
        // A kill takes everything at one moment; a copy takes a while. If files came or went
        // meanwhile (a compaction), it is done again.
        for _ in 0..100 {
            let before = listing(&self.path());
            let copied = copy_folder(&self.path(), &image.path());
            if copied.is_ok() && before == listing(&self.path()) {
                return image;
            }
            std::fs::remove_dir_all(image.path()).unwrap();
        }
        panic!("{} does not come to rest", self.path().display());
    }
}

fn hear(failures: &Arc<Mutex<Vec<String>>>) -> crate::FailStop {
    let heard = failures.clone();
    Arc::new(move |reason| heard.lock().push(reason.to_owned()))
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for item in std::fs::read_dir(from)? {
        let item = item?;
        let to = to.join(item.file_name());
        if item.file_type()?.is_dir() {
            copy_folder(&item.path(), &to)?;
        } else {
            std::fs::copy(item.path(), to)?;
        }
    }
    Ok(())
}

/// All files below a folder with their lengths, as far as they are there.
fn listing(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for item in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match item.metadata() {
            Ok(data) if data.is_dir() => found.extend(listing(&item.path())),
            Ok(data) => found.push((item.path(), data.len())),
            Err(_) => {}
        }
    }
    found.sort();
    found
}

fn at(index: u64) -> Position {
    Position {
        term: 1,
        leader: NodeId(7),
        index,
    }
}

fn log_id(index: u64) -> LogId {
    at(index).into()
}

/// An entry with a payload of `bytes` bytes.
fn entry(index: u64, bytes: usize) -> Entry {
    let payload = Payload {
        at: Timestamp(index),
        batches: vec![Bytes::from(vec![b'x'; bytes])],
        leader: Vec::new(),
    };
    Entry::new_normal(log_id(index), payload)
}

fn entries(range: Range<u64>) -> Vec<Entry> {
    range.map(|index| entry(index, 100)).collect()
}

/// Appends and waits until it is on disk.
async fn append(log: &mut crate::LogStore, entries: Vec<Entry>) -> io::Result<()> {
    let (done, on_disk) = TypeConfig::oneshot();
    log.append(entries, IOFlushed::signal(done)).await?;
    on_disk.await.map_err(io::Error::other)?
}

/// Waits for a state, and says what it saw last if that does not come.
fn eventually<T: std::fmt::Debug>(look: impl Fn() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let began = Instant::now();
    loop {
        let seen = look();
        if wanted(&seen) {
            return seen;
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "after 20 s it is still {seen:?}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Lets the disk go on when the story is over, or a story that fails would hang with it.
struct Disk(Arc<Faulty>);

impl std::ops::Deref for Disk {
    type Target = Faulty;

    fn deref(&self) -> &Faulty {
        &self.0
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.hang(false);
    }
}

/// No disk hangs longer; longer than anything waits for it.
const HANG_MAX: Duration = Duration::from_secs(40);

/// A disk that can be told to fail or to hang.
struct Faulty {
    disk: Arc<dyn LogEngine>,
    writes: AtomicU64,
    failing: AtomicBool,
    /// The next write fails, and no other.
    failing_once: AtomicBool,
    /// Nothing can be read back.
    unreadable: AtomicBool,
    /// How many writes it lets through before it hangs.
    passing: Mutex<u64>,
    changed: Condvar,
}

impl Faulty {
    fn over(disk: Arc<dyn LogEngine>) -> Self {
        Self {
            disk,
            writes: AtomicU64::new(0),
            failing: AtomicBool::new(false),
            failing_once: AtomicBool::new(false),
            unreadable: AtomicBool::new(false),
            passing: Mutex::new(u64::MAX),
            changed: Condvar::new(),
        }
    }

    fn hang(&self, hanging: bool) {
        self.pass(if hanging { 0 } else { u64::MAX });
    }

    /// Lets so many writes through, then hangs.
    fn pass(&self, writes: u64) {
        *self.passing.lock() = writes;
        self.changed.notify_all();
    }

    fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }
}

impl LogEngine for Faulty {
    fn write(&self, steps: &[Step<'_>]) -> io::Result<()> {
        let mut passing = self.passing.lock();
        while *passing == 0 {
            // A story that fails while the disk hangs may wait for it before it lets it go on.
            if self.changed.wait_for(&mut passing, HANG_MAX).timed_out() {
                *passing = u64::MAX;
            }
        }
        *passing -= 1;
        drop(passing);
        self.writes.fetch_add(1, Ordering::SeqCst);
        if self.failing_once.swap(false, Ordering::SeqCst) || self.failing.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is on fire"));
        }
        self.disk.write(steps)
    }

    fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        if self.unreadable.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is worn out"));
        }
        self.disk.read(range, bytes_max)
    }

    fn named(&self, name: &str) -> io::Result<Option<Bytes>> {
        self.disk.named(name)
    }

    fn reclaim(&self) -> io::Result<()> {
        self.disk.reclaim()
    }

    fn health(&self) -> io::Result<()> {
        self.disk.health()
    }
}
