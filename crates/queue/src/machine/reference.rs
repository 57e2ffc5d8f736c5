use trellis_types::{OriginId, TubeName};

use super::Machine;
use crate::{Answer, Key};

impl Machine {
    /// Notes that sessions of `origin` use or watch a tube (`set`), or that none does any more.
    /// Setting creates the tube; clearing the last reference to an empty one ends it. Both are
    /// idempotent.
    ///
    /// Refused with [`Answer::OutOfMemory`] if the tube would be one too many.
    ///
    /// Source: architecture, section 7, "Tube lifetime".
    pub(super) fn set_reference(&mut self, origin: OriginId, name: &TubeName, set: bool) -> Answer {
        if set {
            let Some(id) = self.open_tube(name) else {
                return Answer::OutOfMemory;
            };
            self.touch(Key::Tube(id));
            if let Some(tube) = self.tubes.get_mut(id)
                && let Some(live) = self.origins.get_mut(&origin)
            {
                tube.refer(origin);
                live.references.insert(id);
            }
        } else if let Some(id) = self.names.get(name).copied() {
            self.touch(Key::Tube(id));
            if let Some(tube) = self.tubes.get_mut(id) {
                tube.forget(origin);
            }
            if let Some(live) = self.origins.get_mut(&origin) {
                live.references.remove(&id);
            }
            self.reap_tube(id);
        }
        Answer::Referenced
    }
}
