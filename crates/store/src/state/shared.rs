use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::Notify;
use trellis_consensus::{Loaded, Position, Snapshot};
use trellis_queue::{Change, Machine};
use trellis_types::JobId;

use super::bodies::{BodyCache, OwedCounts};
use super::front::Front;
use super::generation::Generation;
use super::pointer::Pointer;
use super::window::Window;
use super::writer::Threads;
use crate::Quarantine;
use crate::codec;
use crate::failure::Failure;
use crate::folder;
use crate::gate::Gate;
use crate::metrics::StateMetrics;
use crate::options::StateOptions;
use crate::snapshot::{Complete, Incoming, Shelf};

/// What the mirror, its threads and its bodies share.
pub(super) struct Shared {
    /// Generations and the pointer to the present one.
    pub(super) folder: PathBuf,
    pub(super) options: StateOptions,
    pub(super) failure: Failure,
    pub(super) gate: Arc<Gate>,
    pub(super) metrics: StateMetrics,
    pub(super) cache: BodyCache,
    pub(super) owed: OwedCounts,
    pub(super) front: Mutex<Front>,
    pub(super) line: Mutex<Line>,
    /// Something in the line has changed, or a thread should look whether it is over.
    pub(super) moved: Condvar,
    /// For apply, which waits without a thread.
    pub(super) room: Notify,
    pub(super) generation: RwLock<Arc<Generation>>,
    pub(super) shelf: Shelf,
    /// Moves when an install begins to replace the state, and once more with the first entry that
    /// is recorded after it. Odd between: readers may still look at the machine of the old state,
    /// which is replaced last, and not by us.
    pub(super) turn: AtomicU64,
}

/// Whether at that [`Shared::turn`] machine and disk may be of two states.
pub(super) fn is_replacing(turn: u64) -> bool {
    turn % 2 == 1
}

/// Closed windows, and how far the disk is.
#[derive(Default)]
pub(super) struct Line {
    pub(super) windows: VecDeque<(Instant, Arc<Window>)>,
    /// Applied index of the last written window.
    pub(super) written: Option<u64>,
    /// Applied index that is durable.
    pub(super) durable: Option<u64>,
    /// Bytes of windows written since the last flush began.
    pub(super) unflushed: u64,
    pub(super) flush_wanted: bool,
    /// Counts installed snapshots: what began under another one is void.
    pub(super) epoch: u64,
    /// One is being installed; the shelf does not have it yet.
    pub(super) installing: bool,
    /// Nothing will be written any more.
    pub(super) closed: bool,
}

impl Shared {
    pub(super) fn generation(&self) -> Arc<Generation> {
        self.generation.read().clone()
    }

    /// The old windows are about to go.
    fn replacing(&self) {
        let turn = self.turn.load(Ordering::SeqCst);
        let next = if is_replacing(turn) { 2 } else { 1 };
        self.turn.store(turn + next, Ordering::SeqCst);
    }

    /// The machine that records is that of the present generation.
    pub(super) fn replaced(&self) {
        let turn = self.turn.load(Ordering::SeqCst);
        if is_replacing(turn) {
            self.turn.store(turn + 1, Ordering::SeqCst);
        }
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
        self.cache.extend(&window.bodies);
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
            return Err(self.failure.because("the state can't be flushed", &error));
        }
        self.metrics
            .flush_seconds
            .observe(began.elapsed().as_secs_f64());
        if let Some(upto) = upto {
            self.durable_up_to(upto);
        }
        Ok(())
    }

    /// A restart finds everything up to `index`, so the log need not have it any more.
    fn durable_up_to(&self, index: u64) {
        let mut line = self.line.lock();
        if line.durable < Some(index) {
            line.durable = Some(index);
            self.gate.raise_durable(index);
            self.metrics.durable_index.set(as_gauge(index));
        }
    }

    /// A body that may not be on disk yet: of an open window, or of one on its way to the disk.
    /// It moves in this direction, and then into the cache, so it can't be missed.
    pub(super) fn body_of_window(&self, job: JobId) -> Option<Bytes> {
        if let Some(body) = self.front.lock().body(job) {
            return Some(body);
        }
        let line = self.line.lock();
        line.windows
            .iter()
            .find_map(|(_, window)| window.body(job).cloned())
    }

    /// Closes the window and puts it in line.
    pub(super) fn close(&self, front: &mut Front, machine: &Machine, latest: &[Change]) {
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
    pub(super) fn is_due(&self, front: &Front, now: Instant) -> bool {
        let Some(since) = front.dirty_since() else {
            return false;
        };
        let full = front.bytes() >= self.options.window_bytes
            || now.duration_since(since) >= self.options.window;
        // With the line full it goes on growing; only at its bound apply waits.
        full && self.line.lock().windows.len() < self.options.windows_waiting
    }

    pub(super) fn has_room(&self) -> bool {
        let bytes = self.front.lock().bytes();
        bytes < self.options.window_bytes
            || self.line.lock().windows.len() < self.options.windows_waiting
    }

    /// Blocks until everything up to `index` is written; false if a snapshot was installed
    /// meanwhile.
    pub(super) fn wait_written(&self, index: u64, epoch: u64) -> io::Result<bool> {
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
    pub(super) fn build_snapshot(
        &self,
        frozen: Position,
        epoch: u64,
    ) -> io::Result<Arc<dyn Snapshot>> {
        let building = self.shelf.building();
        if !self.wait_written(frozen.index, epoch)? {
            drop(building);
            return self.installed_snapshot();
        }
        let generation = self.generation();
        self.flush(&generation)?;
        let built = self
            .shelf
            .build(&generation)
            .map_err(|error| self.failure.because("no snapshot can be made", &error))?;
        // An install that comes after this look waits for the building and then replaces it.
        if self.line.lock().epoch != epoch {
            drop((built, building));
            return self.installed_snapshot();
        }
        let snapshot = self
            .shelf
            .adopt(built)
            .map_err(|error| self.failure.because("no snapshot can be kept", &error))?;
        // The checkpoint flushed the state once more, with the windows that were written since the flush above.
        self.durable_up_to(snapshot.position().index);
        self.metrics.snapshots.inc();
        self.metrics
            .snapshot_index
            .set(as_gauge(snapshot.position().index));
        Ok(snapshot)
    }

    /// What overtook a snapshot that was being made: blocks until its installation has ended, for
    /// which the caller must have let go of [`Shelf::building`].
    fn installed_snapshot(&self) -> io::Result<Arc<dyn Snapshot>> {
        let mut line = self.line.lock();
        loop {
            self.failure.check()?;
            if line.closed {
                return Err(io::Error::other("the state is closed"));
            }
            if !line.installing {
                break;
            }
            self.moved.wait(&mut line);
        }
        drop(line);
        match self.shelf.current() {
            Some(snapshot) => Ok(snapshot),
            None => Err(io::Error::other("an installed snapshot is not kept")),
        }
    }

    /// Rule 5. Apply stands still meanwhile. Whatever is wrong with the files is found before
    /// anything of the old state is touched.
    pub(super) fn install(
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

        self.replace(complete, &pointer, generation, front, threads)
            .map_err(|error| {
                self.failure
                    .stop(format_args!("no snapshot can be installed: {error}"))
            })?;
        if !self.folder.parent().is_some_and(Quarantine::is_set) {
            old.retire();
        }
        Ok(loaded)
    }

    /// Puts `generation` in the state's place, and `complete`, of which it was made, on the shelf.
    /// An error leaves neither the old state nor the new one.
    fn replace(
        self: &Arc<Self>,
        complete: Complete,
        pointer: &Pointer,
        generation: Arc<Generation>,
        front: Front,
        threads: &Mutex<Option<Threads>>,
    ) -> io::Result<()> {
        let index = complete.position().index;
        let mut threads = threads.lock();
        {
            let mut line = self.line.lock();
            line.epoch += 1;
            line.installing = true;
            self.replacing();
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
                written: Some(index),
                durable: Some(index),
                epoch: line.epoch,
                installing: true,
                ..Line::default()
            };
        }
        self.gate.raise_durable(index);
        self.metrics.written_index.set(as_gauge(index));
        self.metrics.durable_index.set(as_gauge(index));
        *threads = Some(Threads::start(self, &generation)?);
        self.shelf.adopt(complete)?;
        self.metrics.snapshot_index.set(as_gauge(index));
        self.line.lock().installing = false;
        self.wake();
        Ok(())
    }
}

/// Gauges are signed.
pub(super) fn as_gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
