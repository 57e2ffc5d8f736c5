use std::any::Any;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::Notify;
use trellis_consensus::{
    Bodies, Loaded, Membership, Position, Snapshot, SnapshotReceiver, StateStore,
};
use trellis_queue::{Change, Machine};
use trellis_types::JobId;

use super::bodies::{BodyCache, MirrorBodies, OwedCounts};
use super::front::Front;
use super::generation::Generation;
use super::pointer::Pointer;
use super::window::Window;
use super::writer::Threads;
use crate::codec;
use crate::failure::Failure;
use crate::folder;
use crate::gate::Gate;
use crate::metrics::StateMetrics;
use crate::options::StateOptions;
use crate::snapshot::{Incoming, Shelf};

/// The machine's place on disk. Nothing waits for it but memory: changes are gathered in windows
/// and written behind apply.
pub struct StateMirror {
    shared: Arc<Shared>,
    /// Those of the present generation.
    threads: Arc<Mutex<Option<Threads>>>,
}

/// What the mirror, its threads and its bodies share.
pub(super) struct Shared {
    /// Generations and the pointer to the present one.
    folder: PathBuf,
    options: StateOptions,
    pub(super) failure: Failure,
    pub(super) gate: Arc<Gate>,
    pub(super) metrics: StateMetrics,
    pub(super) cache: BodyCache,
    pub(super) owed: OwedCounts,
    front: Mutex<Front>,
    line: Mutex<Line>,
    /// Something in the line has changed, or a thread should look whether it is over.
    moved: Condvar,
    /// For apply, which waits without a thread.
    room: Notify,
    generation: RwLock<Arc<Generation>>,
    shelf: Shelf,
}

/// Closed windows, and how far the disk is.
#[derive(Default)]
struct Line {
    windows: VecDeque<(Instant, Arc<Window>)>,
    /// Applied index of the last written window.
    written: Option<u64>,
    /// Applied index that is durable.
    durable: Option<u64>,
    /// Bytes of windows written since the last flush began.
    unflushed: u64,
    flush_wanted: bool,
    /// Counts installed snapshots: what began under another one is void.
    epoch: u64,
    /// Nothing will be written any more.
    closed: bool,
}

impl StateMirror {
    /// Opens the state in `folder` with the snapshots in `snapshots`, and clears away what a crash
    /// left half done.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the files are damaged; else what the disk said.
    pub(crate) fn open(
        folder: &Path,
        snapshots: &Path,
        options: StateOptions,
        failure: Failure,
        gate: Arc<Gate>,
    ) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let pointer = match Pointer::read(folder)? {
            Some(pointer) => pointer,
            None => {
                let first = Pointer {
                    generation: 1,
                    installed: None,
                };
                first.write(folder)?;
                first
            }
        };
        clear_leftovers(folder, pointer)?;
        let generation = Generation::open(&pointer.path(folder), pointer.generation, &options)?;
        let (applied, membership) = generation.position()?;
        let known = generation.known()?;
        let shelf = Shelf::open(snapshots)?;
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

    /// Makes durable what is written.
    pub(crate) fn flush(&self) {
        self.shared.flush(&self.shared.generation()).unwrap();
    }

    /// The body of `job` as the disk has it.
    pub(crate) fn body_on_disk(&self, job: JobId) -> Option<Bytes> {
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

impl Shared {
    pub(super) fn generation(&self) -> Arc<Generation> {
        self.generation.read().clone()
    }

    pub(super) fn wake(&self) {
        let _line = self.line.lock();
        self.moved.notify_all();
        self.room.notify_waiters();
    }

    /// The oldest closed window, which stays in line while it is being written. `None` when it is
    /// over.
    pub(super) fn next_window(&self, is_over: impl Fn() -> bool) -> Option<Arc<Window>> {
        let mut line = self.line.lock();
        loop {
            if is_over() {
                return None;
            }
            if let Some((_, window)) = line.windows.front() {
                return Some(window.clone());
            }
            self.moved.wait(&mut line);
        }
    }

    pub(super) fn window_written(&self, window: &Window) {
        for (job, body) in &window.bodies {
            self.cache.insert(*job, body.clone());
        }
        let metrics = &self.metrics;
        metrics.windows.inc();
        metrics.rows.inc_by(window.rows() as u64);
        metrics.bytes.inc_by(window.bytes as u64);
        metrics.written_index.set(as_gauge(window.applied.index));
        let mut line = self.line.lock();
        line.windows.pop_front();
        line.written = Some(window.applied.index);
        line.unflushed += window.bytes as u64;
        if line.unflushed >= self.options.flush_bytes
            || self.gate.bytes_after(line.durable) > self.options.replay_bytes
        {
            line.flush_wanted = true;
        }
        self.moved.notify_all();
        self.room.notify_waiters();
    }

    /// Blocks until a flush is wanted; false when it is over.
    pub(super) fn wait_flush_wanted(&self, is_over: impl Fn() -> bool) -> bool {
        let mut line = self.line.lock();
        loop {
            if is_over() {
                return false;
            }
            if std::mem::take(&mut line.flush_wanted) {
                return true;
            }
            self.moved.wait(&mut line);
        }
    }

    /// Makes all written windows durable.
    pub(super) fn flush(&self, generation: &Generation) -> io::Result<()> {
        let upto = {
            let mut line = self.line.lock();
            line.unflushed = 0;
            line.written
        };
        let began = Instant::now();
        if let Err(error) = generation.flush() {
            return Err(self
                .failure
                .stop(format_args!("the state can't be flushed: {error}")));
        }
        self.metrics
            .flush_seconds
            .observe(began.elapsed().as_secs_f64());
        let mut line = self.line.lock();
        if let Some(upto) = upto
            && line.durable < Some(upto)
        {
            line.durable = Some(upto);
            self.gate.raise_durable(upto);
            self.metrics.durable_index.set(as_gauge(upto));
        }
        Ok(())
    }

    /// A body that need not be read: of an open window, of one on its way to the disk (it moves
    /// in this direction, so it can't be missed), or cached.
    pub(super) fn body_in_memory(&self, job: JobId) -> Option<Bytes> {
        if let Some(body) = self.front.lock().body(job) {
            return Some(body);
        }
        let waiting = {
            let line = self.line.lock();
            line.windows
                .iter()
                .find_map(|(_, window)| window.bodies.get(&job).cloned())
        };
        waiting.or_else(|| self.cache.get(job))
    }

    /// Closes the window and puts it in line.
    fn close(&self, front: &mut Front, machine: &Machine, latest: &[Change]) {
        let Some((window, unseen)) = front.close(machine, latest, |job| self.owed.is_owed(job))
        else {
            return;
        };
        for job in &window.dropped {
            self.cache.remove(*job);
        }
        self.metrics.annihilated.inc_by(unseen);
        let mut line = self.line.lock();
        line.windows.push_back((Instant::now(), Arc::new(window)));
        self.moved.notify_all();
    }

    /// Whether the window should be closed now.
    fn is_due(&self, front: &Front, now: Instant) -> bool {
        let Some(since) = front.dirty_since() else {
            return false;
        };
        let full = front.bytes() >= self.options.window_bytes
            || now.duration_since(since) >= self.options.window;
        // With the line full it goes on growing; only at its bound apply waits.
        full && self.line.lock().windows.len() < self.options.windows_waiting
    }

    fn has_room(&self) -> bool {
        let bytes = self.front.lock().bytes();
        bytes < self.options.window_bytes
            || self.line.lock().windows.len() < self.options.windows_waiting
    }

    /// Blocks until everything up to `index` is written; false if a snapshot was installed
    /// meanwhile.
    fn wait_written(&self, index: u64, epoch: u64) -> io::Result<bool> {
        let mut line = self.line.lock();
        loop {
            self.failure.check()?;
            if line.closed {
                return Err(io::Error::other("the state is closed"));
            }
            if line.epoch != epoch {
                return Ok(false);
            }
            if line.written >= Some(index) {
                return Ok(true);
            }
            self.moved.wait(&mut line);
        }
    }

    /// Writes the state down as a snapshot: blocks as long as that takes.
    fn build_snapshot(&self, frozen: Position, epoch: u64) -> io::Result<Arc<dyn Snapshot>> {
        let current = || -> io::Result<Arc<dyn Snapshot>> {
            match self.shelf.current() {
                Some(snapshot) => Ok(snapshot),
                None => Err(io::Error::other(
                    "the state was replaced while a snapshot was made",
                )),
            }
        };
        let _building = self.shelf.building();
        if !self.wait_written(frozen.index, epoch)? {
            return current();
        }
        let generation = self.generation();
        self.flush(&generation)?;
        let built = self.shelf.build(&generation).map_err(|error| {
            self.failure
                .stop(format_args!("no snapshot can be made: {error}"))
        })?;
        // An install that comes after this look waits for the building and then replaces it.
        if self.line.lock().epoch != epoch {
            return current();
        }
        let snapshot = self.shelf.adopt(built).map_err(|error| {
            self.failure
                .stop(format_args!("no snapshot can be kept: {error}"))
        })?;
        self.metrics.snapshots.inc();
        self.metrics
            .snapshot_index
            .set(as_gauge(snapshot.position().index));
        Ok(snapshot)
    }

    /// Rule 5. Apply stands still meanwhile. Whatever is wrong with the files is found before
    /// anything of the old state is touched.
    fn install(
        self: &Arc<Self>,
        incoming: Incoming,
        expected: Position,
        threads: &Mutex<Option<Threads>>,
    ) -> io::Result<Loaded> {
        let complete = incoming.complete()?;
        if complete.position() != expected {
            return Err(codec::invalid(format!(
                "the snapshot is of entry {}, not {expected}",
                complete.position()
            )));
        }
        let old = self.generation();
        let pointer = Pointer {
            generation: old.number() + 1,
            installed: Some(expected.index),
        };
        let path = pointer.path(&self.folder);
        folder::remove_folder(&path)?;
        complete.link_into(&path)?;
        folder::sync_dir(&self.folder)?;
        let generation = Arc::new(Generation::open(&path, pointer.generation, &self.options)?);
        let loaded = generation.load()?;
        let front = Front::new(
            loaded.applied,
            loaded.membership.clone(),
            generation.known()?,
        );

        let mut threads = threads.lock();
        {
            let mut line = self.line.lock();
            line.epoch += 1;
            line.windows.clear();
            self.moved.notify_all();
        }
        // A snapshot of the old state that is being made is thrown away by its maker.
        let _building = self.shelf.building();
        // Waits for a window that is being written, then nobody writes the old state any more.
        threads.take();
        pointer.write(&self.folder)?;
        *self.generation.write() = generation.clone();
        *self.front.lock() = front;
        {
            let mut line = self.line.lock();
            *line = Line {
                written: Some(expected.index),
                durable: Some(expected.index),
                epoch: line.epoch,
                ..Line::default()
            };
        }
        self.gate.raise_durable(expected.index);
        self.metrics.written_index.set(as_gauge(expected.index));
        self.metrics.durable_index.set(as_gauge(expected.index));
        *threads = Some(Threads::start(self, &generation)?);
        self.shelf.adopt(complete)?;
        self.metrics.snapshot_index.set(as_gauge(expected.index));
        old.retire();
        self.wake();
        Ok(loaded)
    }
}

impl StateStore for StateMirror {
    fn load(&self) -> io::Result<Loaded> {
        self.shared.generation().load()
    }

    fn record(
        &self,
        applied: Position,
        membership: Option<&Membership>,
        machine: &Machine,
        mut changes: Vec<Change>,
    ) -> io::Result<()> {
        self.shared.failure.check()?;
        let now = Instant::now();
        let mut front = self.shared.front.lock();
        front.record(applied, membership, &mut changes, now);
        if self.shared.is_due(&front, now) {
            self.shared.close(&mut front, machine, &changes);
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
        let building = move || shared.build_snapshot(frozen, epoch);
        Ok(async move {
            tokio::task::spawn_blocking(building)
                .await
                .map_err(io::Error::other)?
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

    fn log_flushed(&self, index: u64) {
        self.shared.gate.raise_flushed(index);
    }
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

/// Gauges are signed.
fn as_gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
