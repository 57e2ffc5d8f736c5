use std::{sync::Arc, time::Instant};

use trellis_queue::Item;
use trellis_types::{ConnectionId, TubeName};

use super::{
    batches::{Batches, OWN_BYTES, Rider, own_item},
    tubes::{Tubes, Way},
};
use crate::Budget;

/// What goes from this origin to the leader: batches, and among them its tube references.
pub(crate) struct Outbound {
    pub(crate) batches: Batches,
    pub(crate) tubes: Tubes,
    pub(crate) budget: Arc<Budget>,
}

impl Outbound {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self {
            batches: Batches::default(),
            tubes: Tubes::default(),
            budget,
        }
    }

    /// Puts an item into the growing batch and returns that batch's number.
    pub(crate) fn push(
        &mut self,
        item: &Item,
        rider: Rider,
        since: Option<Instant>,
        bytes: usize,
    ) -> u64 {
        self.budget.take(bytes);
        self.batches.push(item, rider, since, bytes)
    }

    /// Sets or clears a reference; perhaps a slot waits for it.
    pub(crate) fn tell(
        &mut self,
        tube: TubeName,
        set: bool,
        waiter: Option<(ConnectionId, u64)>,
        since: Option<Instant>,
    ) -> u64 {
        self.tubes.sent(&tube);
        let bytes = OWN_BYTES + tube.as_str().len();
        let rider = Rider::TubeRef { tube, set, waiter };
        self.push(&own_item(&rider), rider, since, bytes)
    }

    /// A session has lost interest in a tube; tells the machine if it was the last.
    pub(crate) fn lose(&mut self, tube: &TubeName, way: Way) {
        if self.tubes.remove(tube, way) {
            self.tell(tube.clone(), false, None, None);
        }
    }

    /// A session has its interest back that it had lost.
    pub(crate) fn regain(&mut self, tube: &TubeName, way: Way) {
        self.tubes.add(tube, way);
        if !self.tubes.is_sure(tube) {
            self.tell(tube.clone(), true, None, None);
        }
    }

    /// Forgets everything, for a new origin.
    pub(crate) fn begin_again(&mut self) {
        self.budget.give(self.batches.budget());
        self.batches.begin_again();
        self.tubes.clear();
    }
}
