use std::any::Any;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::{Notify, oneshot};
use trellis_consensus::{
    Bodies, Loaded, Membership, Position, Snapshot, SnapshotReceiver, StateStore,
};
use trellis_queue::{Change, Machine};

use super::bodies::{BodyCache, MirrorBodies, OwedCounts};
use super::front::Front;
use super::generation::Generation;
use super::pointer::Pointer;
use super::shared::{Line, Shared, as_gauge};
use super::writer::Threads;
use crate::Quarantine;
use crate::codec;
use crate::failure::Failure;
use crate::folder;
use crate::gate::Gate;
use crate::metrics::StateMetrics;
use crate::options::StateOptions;
use crate::snapshot::{Incoming, Shelf};

/// How far a thread that makes a snapshot stands back behind those who answer clients.
const SNAPSHOT_NICE: i32 = 10;

/// The machine's place on disk. Nothing waits for it but memory: changes are gathered in windows
/// and written behind apply.
pub struct StateMirror {
    shared: Arc<Shared>,
    /// Those of the present generation.
    threads: Arc<Mutex<Option<Threads>>>,
}

impl StateMirror {
    /// Opens the state in `folder` with the snapshots in `snapshots`, and clears away what a crash
    /// left half done. The log begins behind `purged`.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the files are damaged; else what the disk said.
    pub(crate) fn open(
        folder: &Path,
        snapshots: &Path,
        purged: Option<u64>,
        options: StateOptions,
        failure: Failure,
        gate: Arc<Gate>,
    ) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let pointer = match Pointer::read(folder)? {
            Some(pointer) => pointer,
            // It is written before the first generation is made.
            None if !is_untouched(folder)? => {
                return Err(codec::invalid("CURRENT is missing"));
            }
            None => {
                let first = Pointer {
                    generation: 1,
                    installed: None,
                };
                first.write(folder)?;
                first
            }
        };
        // Of a quarantined node nothing is deleted.
        let keeps = folder.parent().is_some_and(Quarantine::is_set);
        if !keeps && (pointer.generation == 1 || pointer.path(folder).exists()) {
            clear_leftovers(folder, pointer)?;
        }
        let generation = Generation::open(&pointer.path(folder), pointer.generation, &options)?;
        let (applied, membership) = generation.position()?;
        let known = generation.known()?;
        // Below that the log is purged, or will be at once: nobody could go on from an older one.
        let oldest = purged.max(pointer.installed);
        let shelf = Shelf::open(snapshots, oldest, failure.clone())?;
        // `CURRENT` was durable before what it names was made.
        folder::sync_dir(folder)?;
        if let Some(above) = folder.parent() {
            folder::sync_dir(above)?;
        }
        let snapshot = shelf.current().map(|snapshot| snapshot.position());
        if snapshot > applied {
            return Err(codec::invalid(
                "the state is older than the snapshot that was made of it",
            ));
        }
        let index = applied.map(|applied| applied.index);
        if let Some(index) = index {
            gate.raise_durable(index);
        }
        let metrics = StateMetrics::default();
        if let Some(index) = index {
            metrics.written_index.set(as_gauge(index));
            metrics.durable_index.set(as_gauge(index));
        }
        if let Some(snapshot) = snapshot {
            metrics.snapshot_index.set(as_gauge(snapshot.index));
        }
        let generation = Arc::new(generation);
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            cache: BodyCache::new(options.body_cache_bytes),
            options,
            failure,
            gate,
            metrics,
            owed: OwedCounts::default(),
            front: Mutex::new(Front::new(applied, membership, known)),
            line: Mutex::new(Line {
                written: index,
                durable: index,
                ..Line::default()
            }),
            moved: Condvar::new(),
            room: Notify::new(),
            generation: RwLock::new(generation.clone()),
            shelf,
            turn: AtomicU64::new(0),
        });
        let waiting = Arc::downgrade(&shared);
        shared.failure.on_stop(move || {
            if let Some(shared) = waiting.upgrade() {
                shared.wake();
            }
        });
        let threads = Threads::start(&shared, &generation)?;
        Ok(Self {
            shared,
            threads: Arc::new(Mutex::new(Some(threads))),
        })
    }

    /// The applied index that survives a power cut without the log: what a restart replays from.
    pub fn durable_index(&self) -> Option<u64> {
        self.shared.line.lock().durable
    }

    /// The applied index up to which windows are written.
    pub fn written_index(&self) -> Option<u64> {
        self.shared.line.lock().written
    }

    /// How long the oldest closed window has been waiting to be written; `None` if none waits.
    pub fn write_outstanding(&self) -> Option<Duration> {
        let line = self.shared.line.lock();
        line.windows.front().map(|(closed, _)| closed.elapsed())
    }

    /// Bytes of bodies owed to connections now.
    pub fn owed_bytes(&self) -> u64 {
        u64::try_from(self.shared.metrics.owed_bytes.get()).unwrap_or(0)
    }

    /// Bytes of the state on disk and in memtables, about.
    pub fn bytes(&self) -> u64 {
        self.shared.generation().bytes()
    }

    /// Gives the room of deleted jobs back to the file system: for a node below its mark. Blocks
    /// until it is done.
    pub fn compact(&self) {
        self.shared.generation().compact();
    }

    /// What the mirror tells the operator.
    pub fn metrics(&self) -> &StateMetrics {
        &self.shared.metrics
    }
}

/// What stories look at and nobody else may.
#[cfg(test)]
impl StateMirror {
    /// Nothing is written or flushed any more, as if the process were gone.
    pub(crate) fn halt(&self) {
        self.threads.lock().take();
    }

    pub(crate) fn generation_for_stories(&self) -> Arc<Generation> {
        self.shared.generation()
    }

    /// Whether a snapshot is being made.
    pub(crate) fn is_building(&self) -> bool {
        self.shared.shelf.is_building()
    }

    /// Makes durable what is written.
    pub(crate) fn flush(&self) {
        self.shared.flush(&self.shared.generation()).unwrap();
    }

    /// The body of `job` as the disk has it.
    pub(crate) fn body_on_disk(&self, job: trellis_types::JobId) -> Option<bytes::Bytes> {
        self.shared.generation().body(job).unwrap()
    }

    /// Everything recorded is written.
    pub(crate) fn settle(&self, machine: &Machine) {
        let (index, epoch) = {
            let mut front = self.shared.front.lock();
            if front.is_behind() {
                self.shared.close(&mut front, machine, &[]);
            }
            (front.applied.unwrap().index, self.shared.line.lock().epoch)
        };
        assert!(self.shared.wait_written(index, epoch).unwrap());
    }
}

impl Drop for StateMirror {
    fn drop(&mut self) {
        self.shared.line.lock().closed = true;
        self.shared.wake();
        self.threads.lock().take();
    }
}

impl StateStore for StateMirror {
    fn load(&self) -> io::Result<Loaded> {
        let loaded = self.shared.generation().load();
        loaded.map_err(|error| self.shared.failure.because("the state is damaged", &error))
    }

    fn record(
        &self,
        applied: Position,
        membership: Option<&Membership>,
        machine: &Machine,
        mut changes: Vec<Change>,
    ) -> io::Result<()> {
        self.shared.failure.check()?;
        self.shared.replaced();
        let now = Instant::now();
        let mut front = self.shared.front.lock();
        front.record(applied, membership, &mut changes, now);
        if self.shared.is_due(&front, now) {
            self.shared.close(&mut front, machine, &changes);
        } else {
            front.encode_ahead(machine, changes.len());
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    fn room(&self) -> BoxFuture<'_, io::Result<()>> {
        async {
            loop {
                let freed = self.shared.room.notified();
                self.shared.failure.check()?;
                if self.shared.has_room() {
                    return Ok(());
                }
                freed.await;
            }
        }
        .boxed()
    }

    fn bodies(&self) -> Arc<dyn Bodies> {
        Arc::new(MirrorBodies {
            shared: self.shared.clone(),
        })
    }

    fn begin_snapshot(
        &self,
        machine: &Machine,
    ) -> io::Result<BoxFuture<'static, io::Result<Arc<dyn Snapshot>>>> {
        let shared = self.shared.clone();
        shared.failure.check()?;
        let (frozen, epoch) = {
            let mut front = shared.front.lock();
            let frozen = front.applied.ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "there is no state to snapshot yet",
                )
            })?;
            if front.is_behind() {
                shared.close(&mut front, machine, &[]);
            }
            (frozen, shared.line.lock().epoch)
        };
        Ok(async move {
            // A thread of its own, because its priority can't be raised again.
            let (sender, built) = oneshot::channel();
            std::thread::Builder::new()
                .name("snapshot".into())
                .spawn(move || {
                    // Where it may not be lowered the snapshot is made all the same.
                    let _ = rustix::process::nice(SNAPSHOT_NICE);
                    let built = shared.build_snapshot(frozen, epoch);
                    // Who has the answer may close the folder and open it again.
                    drop(shared);
                    // Whoever asked for it may be gone.
                    let _ = sender.send(built);
                })?;
            built.await.map_err(io::Error::other)?
        }
        .boxed())
    }

    fn current_snapshot(&self) -> io::Result<Option<Arc<dyn Snapshot>>> {
        let current = self.shared.shelf.current();
        Ok(current.map(|snapshot| snapshot as Arc<dyn Snapshot>))
    }

    fn receive_snapshot(&self) -> io::Result<Box<dyn SnapshotReceiver>> {
        Ok(Box::new(self.shared.shelf.receive()?))
    }

    fn install(
        &self,
        received: Box<dyn SnapshotReceiver>,
        expected: Position,
    ) -> BoxFuture<'_, io::Result<Loaded>> {
        let (shared, threads) = (self.shared.clone(), self.threads.clone());
        let received: Box<dyn Any + Send> = received;
        async move {
            let incoming = received.downcast::<Incoming>().map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidInput, "a snapshot of another store")
            })?;
            tokio::task::spawn_blocking(move || shared.install(*incoming, expected, &threads))
                .await
                .map_err(io::Error::other)?
        }
        .boxed()
    }

    /// The log tells the gate itself, and of truncations as well: what comes this way may be older.
    fn log_flushed(&self, _: u64) {}
}

/// Whether nothing was ever made in `folder`. A first start that was killed may have left a pointer
/// half written, which the next one writes anew.
fn is_untouched(folder: &Path) -> io::Result<bool> {
    for item in fs::read_dir(folder)? {
        if item?.file_name() != Pointer::BESIDE {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Generations that are not pointed at: of an install that did not come to its end, or that the
/// process ended before it had removed the old one.
fn clear_leftovers(folder: &Path, pointer: Pointer) -> io::Result<()> {
    for item in fs::read_dir(folder)? {
        let item = item?;
        if item.file_type()?.is_dir() && item.path() != pointer.path(folder) {
            folder::remove_folder(&item.path())?;
        }
    }
    Ok(())
}
