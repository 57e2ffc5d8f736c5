//! Taking calls back that were submitted: behind a wait, or when no leader came in time.

use trellis_types::TubeName;

use super::{Connection, State, Undo};
use crate::{
    Call,
    origin::{Outbound, tubes::Way},
};

impl Connection {
    /// Takes everything from `place` on back to held, and undoes what it did to the session.
    pub(crate) fn hold_again(&mut self, place: usize, outbound: &mut Outbound) {
        let first_held = self.slots.len() - self.held;
        for place in (place..first_held).rev() {
            self.take_back(place, outbound);
            let slot = &mut self.slots[place];
            if std::mem::replace(&mut slot.parks, false) {
                self.reserves = self.reserves.saturating_sub(1);
            }
            if matches!(slot.call, Call::Kick { .. }) {
                // It is the last that is not held, if it is one in portions.
                self.kicks = false;
            }
            slot.state = State::Held;
            self.held += 1;
            self.held_bytes += slot.call.bytes();
        }
        self.lift_guard();
    }

    pub(super) fn take_back(&mut self, place: usize, outbound: &mut Outbound) {
        let slot = &mut self.slots[place];
        match slot.undo.take() {
            None => {}
            Some(Undo::Use { before }) => {
                // Something later may have changed it again; then that stays.
                if let Call::Use(tube) = &slot.call
                    && self.used == *tube
                {
                    outbound.regain(&before, Way::Uses);
                    outbound.lose(tube, Way::Uses);
                    self.used = before;
                }
            }
            Some(Undo::Watch { added, .. }) => {
                if let Call::Watch(tube) = &slot.call
                    && added
                    && self.watched.len() > 1
                    && let Some(index) = self.watched.iter().rposition(|name| name == tube)
                {
                    self.watched.remove(index);
                    outbound.lose(tube, Way::Watches);
                }
            }
            Some(Undo::Ignore { index, tube }) => {
                outbound.regain(&tube, Way::Watches);
                put_back(&mut self.watched, index, tube);
            }
        }
    }
}

/// Undoes a `swap_remove`.
pub(super) fn put_back(names: &mut Vec<TubeName>, index: usize, name: TubeName) {
    names.push(name);
    let last = names.len() - 1;
    names.swap(index.min(last), last);
}
