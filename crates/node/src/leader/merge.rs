#[cfg(feature = "model")]
pub(crate) mod model;

use std::collections::VecDeque;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use trellis_rpc::pb::forward_end::Reason;
use trellis_types::{OriginId, limits};

/// Merges the waiting batches of all origins, unparsed, into entries.
///
/// It takes an origin's batches only in sequence on one stream; any doubt ends the stream, and the
/// next one starts by sending everything again. Source: architecture, section 5.
#[derive(Clone, Debug, Default)]
pub(crate) struct Merger {
    lanes: FxHashMap<OriginId, Lane>,
    queue: VecDeque<Queued>,
    /// Each entry that is proposed and neither applied nor failed, the oldest first.
    in_flight: VecDeque<Load>,
}

#[derive(Clone, Debug, Hash)]
struct Queued {
    origin: OriginId,
    batch: Bytes,
    commands: usize,
}

/// What one or several entries carry.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    bytes: usize,
    commands: usize,
}

impl Load {
    fn and(self, bytes: usize, commands: usize) -> Self {
        Self {
            bytes: self.bytes + bytes,
            commands: self.commands + commands,
        }
    }
}

#[derive(Clone, Debug)]
struct Lane {
    stream: u64,
    /// What must come next; the first batch of a stream may have any seq.
    next: Option<u64>,
    queued: usize,
}

/// One entry to be proposed.
#[derive(Debug, PartialEq)]
pub(crate) struct Merged {
    pub(crate) batches: Vec<Bytes>,
    pub(crate) origins: Vec<OriginId>,
}

impl Merger {
    /// A new stream of an origin; the one before, if any, is over.
    pub(crate) fn open(&mut self, origin: OriginId, stream: u64) -> Option<u64> {
        let before = self.close(origin);
        self.lanes.insert(
            origin,
            Lane {
                stream,
                next: None,
                queued: 0,
            },
        );
        before
    }

    /// The stream of an origin is over; what it had queued will come again. Returns the stream.
    pub(crate) fn close(&mut self, origin: OriginId) -> Option<u64> {
        let lane = self.lanes.remove(&origin)?;
        if lane.queued > 0 {
            self.queue.retain(|queued| queued.origin != origin);
        }
        Some(lane.stream)
    }

    /// A batch of an origin, of so many commands.
    ///
    /// # Errors
    ///
    /// Why its stream has to end.
    pub(crate) fn take(
        &mut self,
        origin: OriginId,
        stream: u64,
        seq: u64,
        commands: usize,
        batch: Bytes,
    ) -> Result<(), Reason> {
        let lane = match self.lanes.get_mut(&origin) {
            Some(lane) if lane.stream == stream => lane,
            _ => return Err(Reason::Doubt),
        };
        if lane.next.is_some_and(|next| next != seq) {
            return Err(Reason::Doubt);
        }
        if lane.queued >= limits::BATCHES_IN_FLIGHT_MAX {
            return Err(Reason::Busy);
        }
        lane.next = Some(seq + 1);
        lane.queued += 1;
        self.queue.push_back(Queued {
            origin,
            batch,
            commands,
        });
        Ok(())
    }

    /// The last seq taken on the stream of an origin; 0 if none was.
    pub(crate) fn accepted(&self, origin: OriginId) -> u64 {
        self.lanes
            .get(&origin)
            .and_then(|lane| lane.next)
            .map_or(0, |next| next - 1)
    }

    /// Whether an entry is proposed and neither applied nor failed.
    pub(crate) fn is_busy(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// What waits, as one entry, if another may be in flight.
    ///
    /// A round through the log costs the same whatever rides in it, so what is small beside all
    /// that is in flight waits for company: the entries of many clients become two large ones that
    /// take turns, and few clients never wait for one another.
    pub(crate) fn merge(&mut self) -> Option<Merged> {
        let in_flight = total(self.in_flight.iter().copied());
        // Looked at only where it decides: this is asked with every event.
        let is_small = || {
            let waits = total(self.queue.iter().map(|queued| Load {
                bytes: queued.batch.len(),
                commands: queued.commands,
            }));
            waits.commands < in_flight.commands && waits.bytes < limits::LARGE_ENTRY_BYTES_MIN
        };
        // One huge entry after the other: many at once would keep followers so busy that they
        // hear no heartbeat.
        let full = self.in_flight.len() >= limits::ENTRIES_IN_FLIGHT_MAX
            || in_flight.bytes >= limits::ENTRIES_IN_FLIGHT_BYTES_MAX;
        if self.queue.is_empty() || full || (!self.in_flight.is_empty() && is_small()) {
            return None;
        }
        let mut merged = Merged {
            batches: Vec::new(),
            origins: Vec::new(),
        };
        let mut load = Load::default();
        while let Some(next) = self.queue.pop_front_if(|next| {
            merged.batches.is_empty() || load.bytes + next.batch.len() <= limits::ENTRY_BYTES_MAX
        }) {
            load = load.and(next.batch.len(), next.commands);
            if let Some(lane) = self.lanes.get_mut(&next.origin) {
                lane.queued = lane.queued.saturating_sub(1);
            }
            if !merged.origins.contains(&next.origin) {
                merged.origins.push(next.origin);
            }
            merged.batches.push(next.batch);
        }
        self.in_flight.push_back(load);
        Some(merged)
    }

    /// An entry is applied or has failed.
    pub(crate) fn settled(&mut self) {
        // Whichever it is: they end in the order of the log, but for those that failed.
        self.in_flight.pop_front();
    }
}

fn total(loads: impl Iterator<Item = Load>) -> Load {
    loads.fold(Load::default(), |sum, load| {
        sum.and(load.bytes, load.commands)
    })
}

#[cfg(test)]
mod tests {
    use trellis_types::{NodeId, Run};

    use super::*;

    fn origin(node: u64) -> OriginId {
        OriginId {
            node: NodeId(node),
            run: Run(1),
        }
    }

    fn batch(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn batches_of_all_origins_ride_together_in_their_own_order() {
        let mut merger = Merger::default();
        let (a, b) = (origin(1), origin(2));
        merger.open(a, 1);
        merger.open(b, 2);
        assert_eq!(merger.take(a, 1, 7, 1, batch("a7")), Ok(()));
        assert_eq!(merger.take(b, 2, 1, 1, batch("b1")), Ok(()));
        assert_eq!(merger.take(a, 1, 8, 1, batch("a8")), Ok(()));
        assert_eq!(merger.accepted(a), 8);
        let merged = merger.merge().expect("something waits");
        assert_eq!(merged.batches, [batch("a7"), batch("b1"), batch("a8")]);
        assert_eq!(merged.origins, [a, b]);
        assert_eq!(merger.merge(), None);
    }

    #[test]
    fn a_gap_in_a_stream_is_a_doubt() {
        let mut merger = Merger::default();
        merger.open(origin(1), 1);
        assert_eq!(merger.take(origin(1), 1, 3, 1, batch("3")), Ok(()));
        assert_eq!(
            merger.take(origin(1), 1, 5, 1, batch("5")),
            Err(Reason::Doubt)
        );
        assert_eq!(
            merger.take(origin(1), 9, 4, 1, batch("4")),
            Err(Reason::Doubt)
        );
    }

    #[test]
    fn a_new_stream_takes_the_place_of_the_old_and_of_what_it_had_queued() {
        let mut merger = Merger::default();
        let a = origin(1);
        merger.open(a, 1);
        assert_eq!(merger.take(a, 1, 3, 1, batch("old 3")), Ok(()));
        assert_eq!(merger.open(a, 2), Some(1));
        assert_eq!(merger.take(a, 1, 4, 1, batch("old 4")), Err(Reason::Doubt));
        assert_eq!(merger.take(a, 2, 3, 1, batch("3")), Ok(()));
        assert_eq!(
            merger.merge().map(|merged| merged.batches),
            Some(vec![batch("3")])
        );
    }

    #[test]
    fn one_huge_entry_is_in_flight_at_a_time() {
        let mut merger = Merger::default();
        let a = origin(1);
        merger.open(a, 1);
        let huge = Bytes::from(vec![0; limits::ENTRIES_IN_FLIGHT_BYTES_MAX + 1]);
        assert_eq!(merger.take(a, 1, 1, 1, huge.clone()), Ok(()));
        assert_eq!(merger.take(a, 1, 2, 1, huge), Ok(()));
        assert!(merger.merge().is_some(), "however large");
        assert_eq!(merger.merge(), None);
        merger.settled();
        assert!(merger.merge().is_some());
    }

    #[test]
    fn entries_in_flight_and_batches_of_one_origin_are_bounded() {
        let mut merger = Merger::default();
        let a = origin(1);
        merger.open(a, 1);
        let large = Bytes::from(vec![0; limits::LARGE_ENTRY_BYTES_MIN]);
        for seq in 1..=limits::ENTRIES_IN_FLIGHT_MAX as u64 {
            assert_eq!(merger.take(a, 1, seq, 1, large.clone()), Ok(()));
            assert!(merger.merge().is_some(), "a large one need not wait");
        }
        let next = limits::ENTRIES_IN_FLIGHT_MAX as u64 + 1;
        for seq in next..next + limits::BATCHES_IN_FLIGHT_MAX as u64 {
            assert_eq!(merger.take(a, 1, seq, 1, large.clone()), Ok(()));
        }
        assert_eq!(merger.merge(), None, "enough entries are in flight");
        let seq = next + limits::BATCHES_IN_FLIGHT_MAX as u64;
        assert_eq!(merger.take(a, 1, seq, 1, batch("x")), Err(Reason::Busy));
        merger.settled();
        assert_eq!(
            merger.merge().map(|merged| merged.batches.len()),
            Some(limits::BATCHES_IN_FLIGHT_MAX)
        );
    }

    #[test]
    fn few_commands_wait_for_company_while_more_are_in_flight() {
        let mut merger = Merger::default();
        let a = origin(1);
        merger.open(a, 1);
        assert_eq!(merger.take(a, 1, 1, 10, batch("1")), Ok(()));
        assert!(merger.merge().is_some(), "nothing waits without need");
        assert_eq!(merger.take(a, 1, 2, 4, batch("2")), Ok(()));
        assert_eq!(merger.merge(), None, "10 are in flight");
        assert_eq!(merger.take(a, 1, 3, 6, batch("3")), Ok(()));
        assert_eq!(merger.merge().map(|merged| merged.batches.len()), Some(2));
        assert_eq!(merger.take(a, 1, 4, 10, batch("4")), Ok(()));
        assert_eq!(merger.merge(), None, "20 are in flight");
        merger.settled();
        assert!(merger.merge().is_some(), "10 are left");
        assert_eq!(merger.take(a, 1, 5, 1, batch("5")), Ok(()));
        merger.settled();
        assert_eq!(merger.merge(), None);
        merger.settled();
        assert!(merger.merge().is_some(), "nothing is in flight");
    }

    #[test]
    fn a_large_batch_travels_alone() {
        let mut merger = Merger::default();
        merger.open(origin(1), 1);
        let large = Bytes::from(vec![0; limits::ENTRY_BYTES_MAX + 1]);
        for (seq, batch) in [batch("s"), large.clone(), batch("s")]
            .into_iter()
            .enumerate()
        {
            assert_eq!(merger.take(origin(1), 1, seq as u64, 1, batch), Ok(()));
        }
        let mut sizes = Vec::new();
        while let Some(merged) = merger.merge() {
            sizes.push(merged.batches.len());
            merger.settled();
        }
        assert_eq!(sizes, [1, 1, 1]);
    }
}
