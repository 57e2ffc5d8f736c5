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

#[cfg(test)]
mod tests {
    use trellis_consensus::memory::MemoryState;
    use trellis_queue::Event;
    use trellis_types::{NodeId, OriginId, Run};

    use super::*;
    use crate::{CloseReason, Core, DoorState, NodeSettings, origin::Phase};

    /// Found on paper: "open" was kept for the end of the round, and published over a fence that had
    /// come meanwhile. The node was ready, and closed every client at once.
    #[test]
    fn a_fence_between_an_entry_and_the_end_of_its_round_stays() {
        let node = NodeId(1);
        let core = Core::new(node, NodeSettings::default(), Arc::new(MemoryState::new()));
        let (mut listener, inner) = (core.listener(), core.0.clone());
        let origin = OriginId { node, run: Run(1) };
        inner.with_origin(|own| own.opening(origin));
        let outcome = Outcome {
            events: vec![Event::Opened(origin)],
            changes: Vec::new(),
        };
        let position = Position {
            term: 1,
            leader: node,
            index: 1,
        };
        listener.applied(position, Timestamp(0), outcome, &Machine::new());
        inner.with_origin(|own| own.fence(CloseReason::Fenced));
        listener.round_over();

        assert!(matches!(*core.doors().borrow(), DoorState::Closed { .. }));
        assert_eq!(*inner.phase.borrow(), Phase::Fenced);
        assert!(!core.is_ready());
    }
}
