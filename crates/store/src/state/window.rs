use std::ops::Range;

use bytes::Bytes;
use trellis_consensus::{Membership, Position};
use trellis_queue::Key;
use trellis_types::JobId;

/// Everything that changed between two applied indexes, as it is at the second one. Written as one
/// batch or not at all (architecture, section 10, rule 1).
pub(crate) struct Window {
    /// The state on disk is that of this entry once the window is written.
    pub(crate) applied: Position,
    pub(crate) membership: Membership,
    /// The machine's digest at `applied`.
    pub(crate) digest: u64,
    /// The rows as they are at `applied`, as parts of `text`; `None` is gone. In no order.
    pub(crate) rows: Vec<(Key, Option<Range<usize>>)>,
    /// The bytes of all rows.
    pub(crate) text: Vec<u8>,
    /// Bodies of jobs that are new in this window, in the order of their ids. Readers look here
    /// until it is written.
    pub(crate) bodies: Vec<(JobId, Bytes)>,
    /// Bodies that nobody will read any more.
    pub(crate) dropped: Vec<JobId>,
    /// Jobs that are gone while their body may still be read: noted on disk, so that a restart
    /// can drop the body.
    pub(crate) orphaned: Vec<JobId>,
    /// Those of them whose body is dropped now.
    pub(crate) settled: Vec<JobId>,
    /// About how many bytes all this is.
    pub(crate) bytes: usize,
}

impl Window {
    /// The body of `job`, if it is new in this window.
    pub(crate) fn body(&self, job: JobId) -> Option<&Bytes> {
        let place = self.bodies.binary_search_by_key(&job, |(job, _)| *job);
        Some(&self.bodies[place.ok()?].1)
    }

    /// How many rows and bodies are put or deleted.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
            + self.bodies.len()
            + self.dropped.len()
            + self.orphaned.len()
            + self.settled.len()
    }
}
