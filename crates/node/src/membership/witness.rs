use std::{collections::BTreeSet, sync::Arc};

use parking_lot::RwLock;
use tokio::sync::watch;
use trellis_consensus::{Listener, Membership, Position};
use trellis_queue::{Event, Key, Machine, Outcome, Row};
use trellis_types::{NodeId, Timestamp};

use super::Digests;

/// What membership learns from every entry, kept where it can be looked up without waiting for
/// an apply.
#[derive(Debug, Default)]
pub(crate) struct Witnessed {
    pub(crate) digests: Digests,
    /// Ids that are out of the cluster for ever.
    retired: RwLock<BTreeSet<NodeId>>,
    /// The replicated feature level.
    level: watch::Sender<u32>,
}

impl Witnessed {
    /// Whether the id is out of the cluster for ever, as far as this node has applied.
    pub(crate) fn is_retired(&self, node: NodeId) -> bool {
        self.retired.read().contains(&node)
    }

    /// The replicated feature level, as far as this node has applied.
    pub(crate) fn level(&self) -> watch::Receiver<u32> {
        self.level.subscribe()
    }

    fn note_level(&self, machine: &Machine) {
        let now = machine.server().feature_level;
        self.level
            .send_if_modified(|known| std::mem::replace(known, now) != now);
    }
}

/// Sees every entry on its way to the listener proper.
pub(crate) struct Witness {
    pub(crate) witnessed: Arc<Witnessed>,
    pub(crate) inner: Box<dyn Listener>,
}

impl Listener for Witness {
    fn applied(&mut self, position: Position, at: Timestamp, outcome: Outcome, machine: &Machine) {
        self.witnessed
            .digests
            .note(position.index, machine.digest());
        self.witnessed.note_level(machine);
        for event in &outcome.events {
            if let Event::Retired(node) = event {
                self.witnessed.retired.write().insert(*node);
            }
        }
        self.inner.applied(position, at, outcome, machine);
    }

    fn membership(&mut self, membership: &Membership) {
        self.inner.membership(membership);
    }

    fn replaced(&mut self, machine: &Machine, position: Option<Position>) {
        if let Some(position) = position {
            self.witnessed
                .digests
                .note(position.index, machine.digest());
        }
        self.witnessed.note_level(machine);
        if let Some(Row::Meta(meta)) = machine.row(Key::Meta) {
            *self.witnessed.retired.write() = meta.retired.into_iter().collect();
        }
        self.inner.replaced(machine, position);
    }

    fn round_over(&mut self) {
        self.inner.round_over();
    }
}
