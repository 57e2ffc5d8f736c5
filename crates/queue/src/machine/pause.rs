use trellis_types::{Seconds, Timestamp, TubeName};

use super::Machine;
use crate::{Answer, Key, Outcome, TubeId};

impl Machine {
    /// Holds back a tube's ready jobs for `delay` from now, in place of any running pause; 0 ends
    /// it at once. An unknown tube is not created.
    ///
    /// Source: protocol specification, 5.13 and 6.8.
    pub(super) fn pause_tube(
        &mut self,
        name: &TubeName,
        delay: Seconds,
        out: &mut Outcome,
    ) -> Answer {
        let Some(id) = self.names.get(name).copied() else {
            return Answer::NotFound;
        };
        let until = if delay == Seconds(0) {
            Timestamp(0)
        } else {
            self.meta.now.after(delay)
        };
        self.set_pause(id, delay, until);
        if let Some(tube) = self.tubes.get_mut(id) {
            tube.pauses = tube.pauses.saturating_add(1);
        }
        self.offer(id, out);
        Answer::Paused
    }

    /// The pause is over: whoever waited for this tube is served now.
    pub(super) fn end_pause(&mut self, id: TubeId, out: &mut Outcome) {
        self.set_pause(id, Seconds(0), Timestamp(0));
        self.offer(id, out);
    }

    fn set_pause(&mut self, id: TubeId, pause: Seconds, until: Timestamp) {
        self.touch(Key::Tube(id));
        let Some(tube) = self.tubes.get_mut(id) else {
            return;
        };
        if tube.is_paused() {
            self.due.pauses.remove(&(tube.pause_until, id));
        }
        tube.pause = pause;
        tube.pause_until = until;
        if tube.is_paused() {
            self.due.pauses.insert((until, id));
        }
    }
}
