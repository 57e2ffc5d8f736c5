use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Debug,
    io,
    ops::RangeBounds,
    sync::Arc,
    time::Duration,
};

use openraft::{
    OptionalSend, RaftLogReader,
    entry::RaftEntry,
    storage::{IOFlushed, LogState, RaftLogStorage},
};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::raft::{Entry, LogId, TypeConfig, VoteOf};

/// Bytes of entries that are read in one go for one follower.
const READ_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A log in memory that tells apart what is written and what is synced.
///
/// Clones are the same log.
#[derive(Clone, Default)]
pub struct MemoryLog(Arc<Mutex<Inner>>, Arc<Notify>);

#[derive(Default)]
struct Inner {
    entries: BTreeMap<u64, Entry>,
    purged: Option<LogId>,
    vote: Option<VoteOf>,
    committed: Option<LogId>,
    /// The last entry that a power cut leaves.
    synced: Option<LogId>,
    synced_committed: Option<LogId>,
    /// Written, not synced, oldest first.
    pending: VecDeque<Pending>,
    sync_delay: Duration,
    held: bool,
    failing: bool,
    /// The power is off: no sync ends any more.
    dead: bool,
}

/// One append that is not synced.
struct Pending {
    /// Its last entry.
    last: Option<LogId>,
    /// Whom to tell.
    flushed: IOFlushed<TypeConfig>,
    since: Instant,
}

impl MemoryLog {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on every sync takes so long.
    pub fn delay_syncs(&self, delay: Duration) {
        self.0.lock().sync_delay = delay;
    }

    /// From now on no sync ends, that of a vote included, until they are released again.
    pub fn hold_syncs(&self, hold: bool) {
        let mut inner = self.0.lock();
        inner.held = hold;
        if !hold {
            inner.sync_all();
        }
        self.1.notify_waiters();
    }

    /// How long the oldest append has been waiting for its sync; `None` if none is.
    pub fn oldest_write(&self) -> Option<Duration> {
        let inner = self.0.lock();
        inner.pending.front().map(|write| write.since.elapsed())
    }

    /// Appends that are not synced.
    pub fn unsynced(&self) -> usize {
        self.0.lock().pending.len()
    }

    /// Waits as long as a sync takes now.
    async fn synced(&self) -> io::Result<()> {
        let delay = self.0.lock().sync_delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        loop {
            let released = self.1.notified();
            {
                let inner = self.0.lock();
                if inner.failing {
                    return Err(io::Error::other("the sync failed, as the test wants"));
                }
                if !inner.held && !inner.dead {
                    return Ok(());
                }
            }
            released.await;
        }
    }

    /// From now on every sync fails.
    pub fn fail_syncs(&self) {
        self.0.lock().failing = true;
    }

    /// The power goes: the log that is found afterwards. What was not synced is lost. The old
    /// instance ends no sync any more; whoever still uses it must not be heard by others.
    pub fn crash(&self) -> Self {
        self.crash_keeping(0)
    }

    /// As [`Self::crash`], but the first `kept` of the appends that were not synced have reached the
    /// disk all the same, whole; what of the next one did is a torn tail, which a start throws away.
    pub fn crash_keeping(&self, kept: usize) -> Self {
        let mut inner = self.0.lock();
        inner.dead = true;
        let last = inner.last();
        let reached = kept
            .checked_sub(1)
            .and_then(|nth| inner.pending.get(nth).or(inner.pending.back()))
            .and_then(|write| write.last.min(last));
        inner.synced = inner.synced.max(reached);
        let synced = inner.synced.map_or(0, |last| last.index + 1);
        let after = Inner {
            entries: inner
                .entries
                .range(..synced)
                .map(|(at, entry)| (*at, entry.clone()))
                .collect(),
            purged: inner.purged,
            vote: inner.vote,
            committed: inner.synced_committed,
            synced: inner.synced,
            synced_committed: inner.synced_committed,
            ..Inner::default()
        };
        Self(Arc::new(Mutex::new(after)), Arc::default())
    }

    /// The indexes of the first and the last entry that is there.
    pub fn span(&self) -> Option<(u64, u64)> {
        let inner = self.0.lock();
        let first = inner.entries.first_key_value()?.0;
        let last = inner.entries.last_key_value()?.0;
        Some((*first, *last))
    }
}

impl Inner {
    fn last(&self) -> Option<LogId> {
        self.entries
            .last_key_value()
            .map(|(_, entry)| entry.log_id())
            .or(self.purged)
    }

    /// Ends all syncs under way, oldest first.
    fn sync_all(&mut self) {
        while !self.held && !self.dead && self.sync_one() {}
    }

    fn sync_one(&mut self) -> bool {
        let Some(Pending { last, flushed, .. }) = self.pending.pop_front() else {
            return false;
        };
        if self.failing {
            flushed.io_completed(Err(io::Error::other("the sync failed, as the test wants")));
            return true;
        }
        // A truncation may have come in between.
        self.synced = self.synced.max(last).min(self.last());
        self.synced_committed = self.committed.min(self.synced);
        flushed.io_completed(Ok(()));
        true
    }
}

impl RaftLogStorage<TypeConfig> for MemoryLog {
    type LogReader = MemoryLogReader;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let inner = self.0.lock();
        Ok(LogState {
            last_purged_log_id: inner.purged,
            last_log_id: inner.last(),
        })
    }

    async fn get_log_reader(&mut self) -> MemoryLogReader {
        MemoryLogReader(self.0.clone())
    }

    async fn save_vote(&mut self, vote: &VoteOf) -> io::Result<()> {
        self.synced().await?;
        self.0.lock().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.0.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        let inner = self.0.lock();
        Ok(inner.committed.min(inner.synced))
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let delay = {
            let mut inner = self.0.lock();
            let mut next = inner.last().map(|last| last.index + 1);
            for mut entry in entries {
                let index = entry.index();
                if next.is_some_and(|next| next != index) {
                    return Err(io::Error::other(format!("entry {index} leaves a hole")));
                }
                next = Some(index + 1);
                entry.seal();
                inner.entries.insert(index, entry);
            }
            let last = inner.last();
            inner.pending.push_back(Pending {
                last,
                flushed,
                since: Instant::now(),
            });
            if inner.sync_delay.is_zero() {
                inner.sync_all();
                return Ok(());
            }
            inner.sync_delay
        };
        let log = self.0.clone();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let mut inner = log.lock();
            if !inner.held && !inner.dead {
                inner.sync_one();
            }
        });
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        self.synced().await?;
        let mut inner = self.0.lock();
        inner
            .entries
            .split_off(&last.map_or(0, |last| last.index + 1));
        inner.synced = inner.synced.min(last);
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.entries = inner.entries.split_off(&(upto.index + 1));
        inner.purged = inner.purged.max(Some(upto));
        inner.synced = inner.synced.max(Some(upto));
        Ok(())
    }
}

/// Reads a [`MemoryLog`].
#[derive(Clone)]
pub struct MemoryLogReader(Arc<Mutex<Inner>>);

impl RaftLogReader<TypeConfig> for MemoryLogReader {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        Ok(self
            .0
            .lock()
            .entries
            .range(range)
            .map(|(_, entry)| entry.clone())
            .collect())
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let inner = self.0.lock();
        let mut bytes = 0;
        let mut entries = Vec::new();
        for entry in inner.entries.range(start..end).map(|(_, entry)| entry) {
            bytes += entry.to_bytes().len();
            if bytes > READ_BYTES_MAX && !entries.is_empty() {
                break;
            }
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf>> {
        Ok(self.0.lock().vote)
    }
}
