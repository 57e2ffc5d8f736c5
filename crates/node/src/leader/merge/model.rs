use std::hash::{Hash, Hasher};

use bytes::Bytes;
use trellis_types::OriginId;

use super::Merger;

/// The leader's merger as a value.
#[derive(Clone, Debug, Default)]
pub struct ModelMerger(Merger);

impl ModelMerger {
    /// A new stream of an origin takes the place of the one before.
    pub fn open(&mut self, origin: OriginId, stream: u64) {
        self.0.open(origin, stream);
    }

    /// The stream of an origin is over.
    pub fn close(&mut self, origin: OriginId) {
        self.0.close(origin);
    }

    /// A batch of an origin; `false` if its stream has to end.
    pub fn take(&mut self, origin: OriginId, stream: u64, seq: u64, batch: Bytes) -> bool {
        self.0.take(origin, stream, seq, 1, batch).is_ok()
    }

    /// Whether anything waits to be proposed.
    pub fn has_work(&self) -> bool {
        !self.0.queue.is_empty()
    }

    /// What waits, as one entry. The bound of entries in flight plays no part.
    pub fn merge(&mut self) -> Option<(Vec<Bytes>, Vec<OriginId>)> {
        let merged = self.0.merge()?;
        self.0.settled();
        Some((merged.batches, merged.origins))
    }

    /// Everything that decides what happens next, names of streams aside.
    pub fn fingerprint(&self, hash: &mut impl Hasher) {
        let mut lanes: Vec<_> = self
            .0
            .lanes
            .iter()
            .map(|(origin, lane)| (*origin, lane.next, lane.queued))
            .collect();
        lanes.sort_unstable();
        lanes.hash(hash);
        self.0.queue.hash(hash);
    }
}
