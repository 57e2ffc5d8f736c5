use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use trellis_consensus::raft::TypeConfig;
use trellis_types::seeded::{Bug, planted};

use super::engine::LogEngine;
use super::patience::Patience;
use super::reader::LogReader;
use super::recovery::recover;
use super::view::end_of;
use super::writer::{Shared, What, Writer};
use super::{Entry, LogId, Vote};
use crate::codec;
use crate::failure::Failure;
use crate::gate::Gate;
use crate::metrics::LogMetrics;
use crate::options::LogOptions;

/// The raft log of this node. Clones are the same log.
///
/// Appends and votes go to one writer thread through one queue; whoever waits for an entry is told
/// when it is on disk, in order. When the last clone is dropped, what is queued is still written.
#[derive(Clone)]
pub struct LogStore {
    shared: Arc<Shared>,
    _threads: Arc<Threads>,
}

/// Ends the threads when the last clone of the store is gone.
struct Threads {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Dropped to end the watchdog.
    watchdog: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(writer) = self.writer.lock().take() {
            // A panic there was reported by the panic itself.
            let _ = writer.join();
        }
        if let Some((alive, watchdog)) = self.watchdog.lock().take() {
            drop(alive);
            let _ = watchdog.join();
        }
    }
}

impl LogStore {
    /// Reads the log back and starts the writer.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the log is damaged; else what the disk said.
    pub(crate) fn open(
        engine: Arc<dyn LogEngine>,
        options: LogOptions,
        failure: Failure,
        gate: Arc<Gate>,
    ) -> io::Result<Self> {
        let view = recover(engine.as_ref(), &options, &gate)?;
        let (last, committed) = (view.last, view.committed);
        let shared = Arc::new(Shared::new(options, engine, failure, gate, view));
        let waiting = Arc::downgrade(&shared);
        shared.failure.on_stop(move || {
            if let Some(shared) = waiting.upgrade() {
                shared.wake();
            }
        });
        let writer = Writer::new(shared.clone(), last, committed);
        let writer = std::thread::Builder::new()
            .name("log-writer".into())
            .spawn(move || writer.run())?;
        let (alive, gone) = channel();
        let watched = shared.clone();
        let watchdog = std::thread::Builder::new()
            .name("log-watchdog".into())
            .spawn(move || {
                // It looks often enough to be late by a tenth at most.
                let pause = watched.options.write_outstanding_max / 10;
                let mut patience = Patience::new(pause, Instant::now());
                while gone.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    watch(&watched, &mut patience);
                }
            })?;
        Ok(Self {
            _threads: Arc::new(Threads {
                shared: shared.clone(),
                writer: Mutex::new(Some(writer)),
                watchdog: Mutex::new(Some((alive, watchdog))),
            }),
            shared,
        })
    }

    /// For how long no write has come onto the disk although one waits for it; `None` while nothing
    /// waits. A leader hands over at 2 s; the store itself takes 10 s for a failure
    /// (architecture, section 10, rule 7).
    pub fn write_outstanding(&self) -> Option<Duration> {
        self.shared.outstanding()
    }

    /// The newest index on this node's disk.
    pub fn flushed(&self) -> Option<u64> {
        self.shared.gate.flushed()
    }

    /// The last entry's index, on disk or not; the purge point if there is no entry.
    pub fn last_index(&self) -> Option<u64> {
        self.shared.view.read().last.as_ref().map(|id| id.index)
    }

    /// The last index that was purged.
    pub fn purged_index(&self) -> Option<u64> {
        self.shared.view.read().purged.as_ref().map(|id| id.index)
    }

    /// The term of the last vote on disk, 0 without one: the highest that this node acknowledged.
    pub fn vote_term(&self) -> u64 {
        self.shared
            .view
            .read()
            .vote
            .as_ref()
            .map_or(0, |vote| vote.leader_id.term)
    }

    /// Bytes of entries behind `index` (of all held, for `None`), about 1 MiB exact. What a
    /// restart from there would replay; what grew since a snapshot at `index`.
    pub fn bytes_after(&self, index: Option<u64>) -> u64 {
        self.shared.gate.bytes_after(index)
    }

    /// The greatest index that may be purged so that `bytes` of log are left for followers that
    /// come back; `None` if there is not more log than that.
    pub fn index_keeping(&self, bytes: u64) -> Option<u64> {
        self.shared.gate.index_keeping(bytes)
    }

    /// Gives the room of purged entries back to the file system, rather than to hold it for those
    /// that come: for a node below its mark. Blocks until it is done.
    ///
    /// # Errors
    ///
    /// What the disk said; it is about to stop the node.
    pub fn compact(&self) -> io::Result<()> {
        self.shared.failure.check()?;
        self.shared.engine.reclaim().map_err(|error| {
            let what = "room of the raft log can't be freed";
            self.shared.failure.because(what, &error)
        })
    }

    /// What the log tells the operator.
    pub fn metrics(&self) -> &LogMetrics {
        &self.shared.metrics
    }

    /// Whether the log never held anything.
    pub(crate) fn is_virgin(&self) -> bool {
        self.shared.view.read().is_virgin()
    }

    /// Refuses what would leave a hole or go back in time. A store that tolerates it hides a lost
    /// entry until it is needed (faults, section 3, guard 1), so this is fail-stop.
    fn check_contiguous(&self, entries: &[Entry]) -> io::Result<()> {
        let (mut last, virgin) = {
            let view = self.shared.view.read();
            (view.last, view.is_virgin())
        };
        let mut free = virgin && self.shared.options.any_start;
        for entry in entries {
            let id = codec::log_id(entry);
            let follows = end_of(&last) == id.index && last.as_ref().is_none_or(|last| *last < id);
            if !follows && !free && !planted(Bug::LogHoleAccepted) {
                return Err(self.shared.failure.stop(format_args!(
                    "entry {id} was to be appended to a log that ends with {}",
                    last.map_or("nothing".to_owned(), |last| last.to_string()),
                )));
            }
            free = false;
            last = Some(id);
        }
        Ok(())
    }
}

fn watch(shared: &Shared, patience: &mut Patience) {
    if shared.failure.happened() {
        return;
    }
    let max = shared.options.write_outstanding_max;
    let outstanding = shared.outstanding().unwrap_or_default();
    let outstanding = patience.counts(outstanding, Instant::now());
    if outstanding >= max {
        shared.failure.stop(format_args!(
            "a write of the raft log has not come back for {} s",
            outstanding.as_secs()
        ));
    } else if let Err(error) = shared.engine.health() {
        shared.failure.because("the raft log failed", &error);
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let view = self.shared.view.read();
        Ok(LogState {
            last_purged_log_id: view.purged,
            last_log_id: view.last,
        })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        LogReader {
            shared: self.shared.clone(),
        }
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let (done, on_disk) = oneshot::channel();
        let vote = *vote;
        if planted(Bug::VoteNotPersisted) {
            self.shared.view.write().vote = Some(vote);
            return Ok(());
        }
        self.shared.submit(0, What::Vote { vote, done })?;
        on_disk.await.map_err(io::Error::other)?
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.shared.view.write().committed = committed;
        self.shared.failure.check()
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        let view = self.shared.view.read();
        Ok(match (&view.committed, &view.last) {
            (Some(committed), Some(last)) if committed.index > last.index => Some(*last),
            (Some(committed), Some(_)) => Some(*committed),
            _ => None,
        })
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut entries: Vec<Entry> = entries.into_iter().collect();
        self.check_contiguous(&entries)?;
        self.shared.room().await?;
        // Encoded here, once: disk, replication and apply share the bytes.
        let sizes: Vec<usize> = entries.iter_mut().map(|entry| entry.seal().len()).collect();
        if let Some(last) = entries.last() {
            let mut view = self.shared.view.write();
            if let Some(first) = entries.first()
                && view.is_virgin()
            {
                view.first = codec::index(first);
                view.tail.restart(codec::index(first));
            }
            view.last = Some(codec::log_id(last));
            for (entry, size) in entries.iter().zip(&sizes) {
                view.tail.push(entry.clone(), *size);
                self.shared.gate.appended(codec::index(entry), *size);
            }
        }
        let mut done = callback;
        if planted(Bug::AcknowledgedBeforeFsync) {
            let (nobody, _) = TypeConfig::oneshot();
            std::mem::replace(&mut done, IOFlushed::signal(nobody)).io_completed(Ok(()));
        }
        self.shared
            .submit(sizes.iter().sum(), What::Append { entries, done })
    }

    async fn truncate_after(&mut self, after: Option<LogId>) -> io::Result<()> {
        let (done, on_disk) = oneshot::channel();
        let end = {
            let mut view = self.shared.view.write();
            let (keep, end) = (end_of(&after).max(view.first), view.end());
            if keep >= end {
                return Ok(());
            }
            view.tail.truncate(keep);
            view.last = if keep == view.first {
                view.purged
            } else {
                after
            };
            view.cuts += 1;
            end
        };
        self.shared
            .gate
            .truncated(after.as_ref().map(|id| id.index));
        self.shared.submit(0, What::Truncate { after, end, done })?;
        on_disk.await.map_err(io::Error::other)?
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        if !self.shared.gate.may_purge(upto.index) && !planted(Bug::PurgeBeforeDurable) {
            return Err(self.shared.failure.stop(format_args!(
                "the log was to be purged up to {upto}, which the state on disk does not cover"
            )));
        }
        let start = {
            let mut view = self.shared.view.write();
            let start = view.first;
            if view.purged.is_some_and(|purged| purged.index >= upto.index) {
                return Ok(());
            }
            if upto.index >= view.end() {
                view.last = Some(upto);
            }
            view.tail.purge(upto.index);
            view.purged = Some(upto);
            view.first = start.max(upto.index + 1);
            view.cuts += 1;
            start
        };
        self.shared.gate.purged(upto.index);
        // Nobody waits for it: a purge that a crash undoes is done again.
        self.shared.submit(0, What::Purge { start, upto })
    }
}
