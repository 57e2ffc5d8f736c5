use std::collections::VecDeque;

/// The newest entries, in memory: what replication and apply read.
///
/// Generic in the entry so that its rules can be tried without Raft. Holds consecutive indexes.
pub(crate) struct Tail<E> {
    /// Index of the first one held; where the next one goes when none is held.
    first: u64,
    entries: VecDeque<(E, usize)>,
    bytes: usize,
}

impl<E: Clone> Tail<E> {
    pub(crate) fn new(first: u64) -> Self {
        Self {
            first,
            entries: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Index of the first entry held, and the end.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, entry: E, bytes: usize) {
        self.bytes += bytes;
        self.entries.push_back((entry, bytes));
    }

    /// Entries from `start` on while they are below `end` and together not above `bytes_max`, but
    /// the first one in any case.
    pub(crate) fn read(&self, start: u64, end: u64, bytes_max: usize) -> Vec<E> {
        let skip = usize::try_from(start.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let count = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let mut bytes = 0usize;
        self.entries
            .iter()
            .skip(skip)
            .take(count)
            .take_while(|(_, size)| {
                let first = bytes == 0;
                bytes = bytes.saturating_add((*size).max(1));
                first || bytes <= bytes_max
            })
            .map(|(entry, _)| entry.clone())
            .collect()
    }

    /// Drops the oldest entries while there are more than `bytes_max` bytes; never one that is not
    /// below `flushed`, because the disk could not answer for it.
    pub(crate) fn evict(&mut self, bytes_max: usize, flushed: u64) {
        while self.bytes > bytes_max && self.first < flushed {
            self.drop_first();
        }
    }

    /// Forgets everything up to and including `index`.
    pub(crate) fn purge(&mut self, index: u64) {
        while self.first <= index && !self.entries.is_empty() {
            self.drop_first();
        }
        self.first = self.first.max(index.saturating_add(1));
    }

    /// Forgets everything from `index` on.
    pub(crate) fn truncate(&mut self, index: u64) {
        let keep = usize::try_from(index.saturating_sub(self.first)).unwrap_or(usize::MAX);
        while self.entries.len() > keep {
            if let Some((_, bytes)) = self.entries.pop_back() {
                self.bytes -= bytes;
            }
        }
        self.first = self.first.min(index);
    }

    /// Where the first entry goes, if none is held.
    pub(crate) fn restart(&mut self, first: u64) {
        if self.entries.is_empty() {
            self.first = first;
        }
    }

    fn drop_first(&mut self) {
        if let Some((_, bytes)) = self.entries.pop_front() {
            self.bytes -= bytes;
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(range: std::ops::Range<u64>) -> Tail<u64> {
        let mut tail = Tail::new(range.start);
        for index in range {
            tail.push(index, 10);
        }
        tail
    }

    #[test]
    fn only_what_the_disk_has_is_dropped() {
        let mut tail = tail(5..15);
        tail.evict(50, 8);
        assert_eq!(tail.first(), 8, "8 is not flushed yet");
        tail.evict(50, 15);
        assert_eq!((tail.first(), tail.bytes()), (10, 50));
    }

    #[test]
    fn a_read_stops_at_its_bound_but_not_before_the_first() {
        let tail = tail(5..15);
        assert_eq!(tail.read(7, 100, 25), [7, 8]);
        assert_eq!(tail.read(7, 100, 1), [7]);
        assert_eq!(tail.read(13, 100, 1000), [13, 14]);
        assert_eq!(tail.read(7, 7, 1000), [0; 0]);
    }

    #[test]
    fn truncated_below_its_first_it_starts_again_from_there() {
        let mut tail = tail(5..15);
        tail.evict(50, 15);
        tail.truncate(7);
        tail.push(70, 10);
        assert_eq!(tail.read(7, 8, 1000), [70]);
    }

    #[test]
    fn purged_beyond_its_end_it_starts_behind_that() {
        let mut tail = tail(5..15);
        tail.purge(20);
        tail.push(210, 10);
        assert_eq!(tail.read(21, 22, 1000), [210]);
    }
}
