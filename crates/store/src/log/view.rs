use super::tail::Tail;
use super::{Entry, LogId, Vote};

/// The log as its readers see it: what was appended, whether it is on disk or not.
pub(super) struct View {
    /// Index of the first entry; where it goes, if there is none.
    pub(super) first: u64,
    pub(super) purged: Option<LogId>,
    /// The last entry, or the purge point if there is none behind it.
    pub(super) last: Option<LogId>,
    /// What Raft last called committed, on disk or not.
    pub(super) committed: Option<LogId>,
    /// The last vote that is on disk.
    pub(super) vote: Option<Vote>,
    pub(super) tail: Tail<Entry>,
    /// Counts truncations and purges, so that a read that went to disk can tell that the ground
    /// moved under it.
    pub(super) cuts: u64,
}

impl View {
    /// Where the next entry goes.
    pub(super) fn end(&self) -> u64 {
        end_of(&self.last)
    }

    /// No entry and never any purged.
    pub(super) fn is_virgin(&self) -> bool {
        self.last.is_none()
    }
}

/// The index behind `id`.
pub(super) fn end_of(id: &Option<LogId>) -> u64 {
    id.as_ref().map_or(0, |id| id.index + 1)
}
