use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::sector::SECTOR;
use super::segment::{Place, Segment};

/// After this the making of a spare is tried again on a disk that had no room, and a file that
/// somebody still reads is looked at again.
const AGAIN: Duration = Duration::from_secs(1);

/// A spare is made ahead of its time only where there is room for so many: to try whether there is
/// any would take the last of it, again and again, from the state, which must not fail to write.
const ROOM_FOR: u64 = 2;

/// Says how many bytes the file system has room for.
pub(super) type Room = Box<dyn Fn() -> io::Result<u64> + Send + Sync>;

/// Segments that hold nothing that counts: the next ones to be written. A thread sees to it that
/// there is always one, so that no write waits for its making.
///
/// As many are kept as were used between two purges; so a log that grows and is purged, again and
/// again, makes no new files.
pub(super) struct Spares {
    shared: Arc<Shared>,
    maker: Option<JoinHandle<()>>,
}

struct Shared {
    dir: PathBuf,
    /// Of each.
    sectors: u32,
    sync: bool,
    room: Room,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    spares: Vec<Arc<Segment>>,
    /// To be removed.
    surplus: Vec<Arc<Segment>>,
    /// The fewest spares there were since the last purge: so many are more than are needed.
    fewest: usize,
    /// The number of the next file.
    next: u64,
    is_making: bool,
    /// The disk had no room for one.
    is_full: bool,
    failed: Option<(io::ErrorKind, String)>,
    is_closed: bool,
}

impl Spares {
    /// Segments of `sectors` sectors each in `dir`; the next new one has number `next`.
    pub(super) fn new(
        dir: PathBuf,
        (sectors, sync): (u32, bool),
        spares: Vec<Arc<Segment>>,
        next: u64,
        room: Room,
    ) -> io::Result<Self> {
        let (spares, surplus) = spares.into_iter().partition(|it| it.sectors == sectors);
        let shared = Arc::new(Shared {
            dir,
            sectors,
            sync,
            room,
            state: Mutex::new(State {
                spares,
                surplus,
                fewest: 0,
                next,
                is_making: false,
                is_full: false,
                failed: None,
                is_closed: false,
            }),
            changed: Condvar::new(),
        });
        let making = shared.clone();
        let maker = std::thread::Builder::new()
            .name("log-spares".into())
            .spawn(move || making.work())?;
        Ok(Self {
            shared,
            maker: Some(maker),
        })
    }

    /// A segment to write into. Made here only if there is none although the thread did what it
    /// could.
    ///
    /// # Errors
    ///
    /// What the disk said.
    pub(super) fn take(&self) -> io::Result<Arc<Segment>> {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        loop {
            // Who reads in one that was just freed would find something else in it.
            let free = state
                .spares
                .iter()
                .position(|it| Arc::strong_count(it) == 1);
            if let Some(at) = free {
                let segment = state.spares.remove(at);
                state.fewest = state.fewest.min(state.spares.len());
                shared.changed.notify_all();
                return Ok(segment);
            }
            if !state.is_making {
                break;
            }
            shared.changed.wait(&mut state);
        }
        let number = state.number();
        drop(state);
        Segment::make(shared.place(number), shared.sectors).map(Arc::new)
    }

    /// One of its own for `content`, which is larger than a segment: it is written with it, so that
    /// nothing is written twice.
    ///
    /// # Errors
    ///
    /// What the disk said.
    pub(super) fn make_of(&self, content: &[u8]) -> io::Result<Arc<Segment>> {
        let number = self.shared.state.lock().number();
        Segment::make_of(self.shared.place(number), content).map(Arc::new)
    }

    /// A purge freed these.
    pub(super) fn give(&self, freed: impl IntoIterator<Item = Arc<Segment>>) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        let (spares, others): (Vec<_>, Vec<_>) = freed
            .into_iter()
            .partition(|it| it.sectors == shared.sectors);
        state.surplus.extend(others);
        let unused = state.fewest.saturating_sub(1);
        state.shed(unused);
        state.spares.extend(spares);
        state.fewest = state.spares.len();
        shared.changed.notify_all();
    }

    /// Removes all but one, for a disk that is short of room.
    ///
    /// # Errors
    ///
    /// What the disk said.
    pub(super) fn reclaim(&self) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        let all_but_one = state.spares.len().saturating_sub(1);
        state.shed(all_but_one);
        state.fewest = state.spares.len();
        let unused = state.take_unused();
        drop(state);
        for segment in unused {
            fs::remove_file(&segment.path)?;
        }
        Ok(())
    }

    /// `Err` once the disk failed under the thread. That it is full is no failure before a segment
    /// is needed.
    pub(super) fn health(&self) -> io::Result<()> {
        match &self.shared.state.lock().failed {
            None => Ok(()),
            Some((kind, why)) => Err(io::Error::new(*kind, why.clone())),
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shared.state.lock().spares.len()
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.changed.notify_all();
        if let Some(maker) = self.maker.take() {
            // A panic there was reported by the panic itself.
            let _ = maker.join();
        }
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// `count` of the spares are more than are needed.
    fn shed(&mut self, count: usize) {
        let left = self.spares.len().saturating_sub(count);
        let surplus = self.spares.drain(left..);
        self.surplus.extend(surplus);
    }

    /// Of the surplus, what nobody reads any more.
    fn take_unused(&mut self) -> Vec<Arc<Segment>> {
        let is_unused = |it: &mut Arc<Segment>| Arc::strong_count(it) == 1;
        self.surplus.extract_if(.., is_unused).collect()
    }
}

impl Shared {
    fn place(&self, number: u64) -> Place<'_> {
        Place {
            dir: &self.dir,
            number,
            sync: self.sync,
        }
    }

    /// A file system that does not say has some.
    fn has_room(&self) -> bool {
        let wanted = u64::from(self.sectors) * SECTOR as u64 * ROOM_FOR;
        (self.room)().map_or(true, |room| room >= wanted)
    }

    /// What the thread does until it is closed.
    fn work(&self) {
        let mut state = self.state.lock();
        while !state.is_closed {
            let unused = state.take_unused();
            let wanted = state.spares.is_empty() && !state.is_full && state.failed.is_none();
            if !unused.is_empty() {
                drop(state);
                for segment in unused {
                    if let Err(error) = fs::remove_file(&segment.path) {
                        // The next start takes it for a spare.
                        tracing::warn!(%error, name = segment.name(), "a file of the log stays");
                    }
                }
                state = self.state.lock();
            } else if wanted {
                state.is_making = true;
                let number = state.number();
                drop(state);
                let made = match self.has_room() {
                    true => Segment::make(self.place(number), self.sectors),
                    false => Err(io::ErrorKind::StorageFull.into()),
                };
                state = self.state.lock();
                state.is_making = false;
                match made {
                    Ok(segment) => state.spares.push(Arc::new(segment)),
                    Err(error) if is_no_room(&error) => state.is_full = true,
                    Err(error) => state.failed = Some((error.kind(), error.to_string())),
                }
                self.changed.notify_all();
            } else if state.is_full || !state.surplus.is_empty() {
                let waited = self.changed.wait_for(&mut state, AGAIN);
                state.is_full &= !waited.timed_out();
            } else {
                self.changed.wait(&mut state);
            }
        }
    }
}

fn is_no_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    use super::*;

    /// The thread looked for room every second by taking all there was: for a moment nobody else on
    /// that disk could write, and a state that can't be written stops the node.
    #[test]
    fn the_last_room_of_a_disk_is_not_taken_for_a_spare() {
        let dir = tempfile::tempdir().unwrap();
        let files = || std::fs::read_dir(dir.path()).unwrap().count();
        let (free, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        free.store(2 * 8 * SECTOR as u64 - 1, Ordering::SeqCst);
        let room: Room = {
            let (free, asked) = (free.clone(), asked.clone());
            Box::new(move || {
                asked.fetch_add(1, Ordering::SeqCst);
                Ok(free.load(Ordering::SeqCst))
            })
        };
        let spares = Spares::new(dir.path().to_owned(), (8, false), Vec::new(), 1, room).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let wait = |what: &str, done: &dyn Fn() -> bool| {
            while !done() {
                assert!(Instant::now() < until, "{what}: {} files", files());
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        wait("it looks again", &|| asked.load(Ordering::SeqCst) >= 2);
        assert_eq!(files(), 0);
        spares.health().unwrap();
        // Who needs one to write takes what there is.
        drop(spares.take().unwrap());
        assert_eq!(files(), 1);
        free.store(2 * 8 * SECTOR as u64, Ordering::SeqCst);
        wait("there is room again", &|| spares.len() == 1);
    }
}
