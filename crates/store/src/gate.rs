use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// What the log and the mirror must know of each other, and nothing more: how far the log is on
/// disk (a window may not be ahead of it), how far the mirror is durable (the log may not be
/// purged beyond), and how many bytes of log lie between two indexes.
///
/// Source: architecture, section 10, rules 2 and 3.
pub(crate) struct Gate {
    state: Mutex<State>,
    moved: Condvar,
}

struct State {
    /// Every index below is on disk.
    flushed: u64,
    /// Every index below is durable in the mirror, so that the log may forget it.
    durable: u64,
    ledger: Ledger,
}

impl Gate {
    /// Nothing is on disk yet.
    pub(crate) fn new() -> Self {
        Self::at(0, 0)
    }

    /// Holds nothing back: for a log and a mirror that have nothing to do with each other.
    #[cfg(test)]
    pub(crate) fn open() -> Self {
        Self::at(u64::MAX, u64::MAX)
    }

    fn at(flushed: u64, durable: u64) -> Self {
        Self {
            state: Mutex::new(State {
                flushed,
                durable,
                ledger: Ledger::default(),
            }),
            moved: Condvar::new(),
        }
    }

    /// The log is on disk up to and including `index`; it may also have moved back, by truncation.
    pub(crate) fn set_flushed(&self, index: Option<u64>) {
        let mut state = self.state.lock();
        if state.flushed != u64::MAX {
            state.flushed = next(index);
        }
        self.moved.notify_all();
    }

    /// The newest index on disk.
    pub(crate) fn flushed(&self) -> Option<u64> {
        self.state.lock().flushed.checked_sub(1)
    }

    /// Blocks until the log is on disk up to `index`; false if `stop` said so before. Whoever
    /// makes `stop` true calls [`Gate::wake`].
    pub(crate) fn wait_flushed(&self, index: u64, stop: impl Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        while state.flushed < next(Some(index)) {
            if stop() {
                return false;
            }
            self.moved.wait(&mut state);
        }
        !stop()
    }

    /// Lets those who wait look at their `stop`.
    pub(crate) fn wake(&self) {
        // Under the lock, or one who has just looked and not yet begun to wait would miss it.
        let _state = self.state.lock();
        self.moved.notify_all();
    }

    /// The mirror is durable up to `index`.
    pub(crate) fn raise_durable(&self, index: u64) {
        let mut state = self.state.lock();
        state.durable = state.durable.max(next(Some(index)));
    }

    /// Whether the log may forget everything up to `index`.
    pub(crate) fn may_purge(&self, index: u64) -> bool {
        index < self.state.lock().durable
    }

    pub(crate) fn appended(&self, index: u64, bytes: usize) {
        let bytes = bytes.max(ENTRY_BYTES_MIN) as u64;
        self.state.lock().ledger.append(index, bytes);
    }

    pub(crate) fn truncated(&self, after: Option<u64>) {
        self.state.lock().ledger.truncate(after);
    }

    pub(crate) fn purged(&self, upto: u64) {
        self.state.lock().ledger.purge(upto);
    }

    /// Bytes of log behind `index`, up to a mark too many.
    pub(crate) fn bytes_after(&self, index: Option<u64>) -> u64 {
        self.state.lock().ledger.bytes_after(index)
    }

    /// Bytes of log held.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.state.lock().ledger.held()
    }

    /// The greatest index behind which at least `bytes` of log are left, if there is one.
    pub(crate) fn index_keeping(&self, bytes: u64) -> Option<u64> {
        self.state.lock().ledger.index_keeping(bytes)
    }
}

/// What an entry counts at least, in bytes: alone in a write it takes a sector, however small it is.
/// A log of small entries would be several times as large as it is meant to be before it is purged.
const ENTRY_BYTES_MIN: usize = 512;

fn next(index: Option<u64>) -> u64 {
    index.map_or(0, |index| index.saturating_add(1))
}

/// How many bytes of log lie before some indexes: one mark a MiB, so that it stays small.
#[derive(Default)]
struct Ledger {
    /// (index, bytes of all entries up to and including it), both ascending.
    marks: VecDeque<(u64, u64)>,
    /// Bytes of all entries ever appended and not truncated.
    total: u64,
    /// Bytes of all purged ones.
    purged: u64,
}

impl Ledger {
    const MARK_EVERY: u64 = 1024 * 1024;

    fn append(&mut self, index: u64, bytes: u64) {
        self.total += bytes;
        let marked = self.marks.back().map_or(self.purged, |(_, bytes)| *bytes);
        if self.total - marked >= Self::MARK_EVERY {
            self.marks.push_back((index, self.total));
        }
    }

    fn truncate(&mut self, after: Option<u64>) {
        while let Some((index, _)) = self.marks.back() {
            if after.is_some_and(|after| *index <= after) {
                break;
            }
            self.marks.pop_back();
        }
        self.total = self.marks.back().map_or(self.purged, |(_, bytes)| *bytes);
    }

    fn purge(&mut self, upto: u64) {
        while let Some((index, bytes)) = self.marks.front() {
            if *index > upto {
                break;
            }
            self.purged = *bytes;
            self.marks.pop_front();
        }
    }

    fn before(&self, index: Option<u64>) -> u64 {
        let Some(index) = index else {
            return self.purged;
        };
        let behind = self.marks.partition_point(|(mark, _)| *mark <= index);
        match behind.checked_sub(1).and_then(|at| self.marks.get(at)) {
            Some((_, bytes)) => *bytes,
            None => self.purged,
        }
    }

    fn bytes_after(&self, index: Option<u64>) -> u64 {
        self.total - self.before(index)
    }

    fn held(&self) -> u64 {
        self.total - self.purged
    }

    fn index_keeping(&self, bytes: u64) -> Option<u64> {
        let limit = self.total.checked_sub(bytes)?;
        let behind = self.marks.partition_point(|(_, before)| *before <= limit);
        let (index, _) = self.marks.get(behind.checked_sub(1)?)?;
        Some(*index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn the_ledger_knows_about_how_much_log_lies_behind_an_index() {
        let gate = Gate::new();
        for index in 0..10 {
            gate.appended(index, MIB);
        }
        assert_eq!(gate.bytes_after(None), 10 * MIB as u64);
        assert_eq!(gate.bytes_after(Some(3)), 6 * MIB as u64);
        assert_eq!(
            gate.index_keeping(4 * MIB as u64),
            Some(5),
            "6, 7, 8, 9 are kept"
        );
        assert_eq!(gate.index_keeping(11 * MIB as u64), None);

        gate.purged(5);
        assert_eq!(gate.held_bytes(), 4 * MIB as u64);
        gate.truncated(Some(7));
        assert_eq!(gate.held_bytes(), 2 * MIB as u64);
        gate.truncated(None);
        assert_eq!(gate.held_bytes(), 0);
    }

    #[test]
    fn a_small_entry_counts_as_much_as_it_takes_on_disk() {
        let gate = Gate::new();
        for index in 0..2 * MIB as u64 / 512 {
            gate.appended(index, 60);
        }
        assert_eq!(gate.held_bytes(), 2 * MIB as u64);
        assert!(gate.index_keeping(MIB as u64).is_some());
    }

    #[test]
    fn nothing_may_be_purged_that_the_mirror_has_not_made_durable() {
        let gate = Gate::new();
        assert!(!gate.may_purge(0));
        gate.raise_durable(7);
        assert!(gate.may_purge(7));
        assert!(!gate.may_purge(8));
    }
}
