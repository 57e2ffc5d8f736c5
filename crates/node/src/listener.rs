use std::sync::Arc;

use trellis_consensus::{Listener, Membership, Position};
use trellis_queue::{Machine, Outcome};
use trellis_types::Timestamp;

use crate::{mind::Inner, origin::Effects};

/// Hears what this node applies and answers its own sessions from it. Made by
/// [`Core::listener`](crate::Core::listener).
pub struct CoreListener {
    core: Arc<Inner>,
    /// Kept until the round is over: one write per connection and round.
    effects: Effects,
}

impl CoreListener {
    pub(crate) fn new(core: Arc<Inner>) -> Self {
        Self {
            core,
            effects: Effects::default(),
        }
    }
}

impl Listener for CoreListener {
    fn applied(&mut self, _: Position, _: Timestamp, outcome: Outcome, _: &Machine) {
        if outcome.events.is_empty() {
            return;
        }
        let now = crate::now();
        let mut origin = self.core.origin.lock();
        origin.metrics.entry(&outcome.events);
        origin.applied(&outcome.events, &*self.core.bodies, now);
        self.effects.add(origin.take_effects());
    }

    fn membership(&mut self, _: &Membership) {}

    fn replaced(&mut self, machine: &Machine, _: Option<Position>) {
        let mut origin = self.core.origin.lock();
        origin.replaced(machine);
        self.effects.add(origin.take_effects());
    }

    fn round_over(&mut self) {
        if !self.effects.is_empty() {
            let effects = std::mem::take(&mut self.effects);
            self.core.perform(effects);
        }
    }
}
