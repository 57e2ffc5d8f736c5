//! What a connection does with its calls when their turn comes.

use std::time::Instant;

use trellis_queue::{Command, Item};
use trellis_types::{
    Seconds, TubeName, limits,
    seeded::{Bug, planted},
};

use super::{Connection, Course, Pump, State, Undo};
use crate::{
    Answer, Call, CloseReason, Counters,
    origin::{Outbound, Read, Ticket, batches::Rider, tubes::Way},
};

impl Connection {
    /// Submits what may be submitted, and answers what needs no leader.
    pub(crate) fn pump(&mut self, pump: &mut Pump<'_>) -> Course {
        self.flush();
        while self.held > 0 && !self.is_reading() {
            let place = self.slots.len() - self.held;
            if matches!(self.slots[place].call, Call::Quit) && place == 0 {
                return Course::Ends(CloseReason::Quit);
            }
            if !self.advance(place, pump) {
                break;
            }
            let slot = &mut self.slots[place];
            slot.since.get_or_insert(pump.now);
            self.held -= 1;
            self.held_bytes -= slot.call.bytes();
            if !slot.counted {
                slot.counted = true;
                self.count(place, pump.counters);
            }
            if place == 0 {
                self.flush();
            }
        }
        if self.over && self.slots.is_empty() {
            return Course::Ends(CloseReason::HalfClosed);
        }
        Course::GoesOn
    }

    /// The first held call gets a new state, or nothing happens because it has to wait.
    fn advance(&mut self, place: usize, pump: &mut Pump<'_>) -> bool {
        let slot = &self.slots[place];
        let overdue = match (slot.since, pump.overdue) {
            (Some(since), Some(limit)) => since <= limit,
            _ => false,
        };
        let bytes = slot.call.bytes() + self.watch_bytes(&slot.call);
        // Behind a reserve that may be parked only its own batch is open.
        if self
            .guard
            .is_some_and(|guard| guard != pump.outbound.batches.number_for(bytes))
        {
            return false;
        }
        // The kick itself is not under way while it is held for its next portion.
        let kicking = self.slots[place].kicking;
        if self.kicks || (kicking.rests(pump.now) && !self.left) {
            return false;
        }
        let state = match &self.slots[place].call {
            Call::Quit => return false,
            Call::Refused { tag, .. } => State::Answered(Answer::Refused(*tag)),
            Call::ListTubeUsed => State::Answered(Answer::Using(self.used.clone())),
            Call::ListTubesWatched => State::Answered(Answer::Tubes(self.watched.clone())),
            Call::Put { .. } if pump.draining => State::Answered(Answer::Draining),
            Call::Use(tube) => {
                let tube = tube.clone();
                self.use_tube(place, tube, overdue, pump)
            }
            Call::Watch(tube) => {
                let tube = tube.clone();
                self.watch(place, tube, overdue, pump)
            }
            Call::Ignore(tube) => {
                let tube = tube.clone();
                self.ignore(place, &tube, pump)
            }
            Call::Peek(_)
            | Call::PeekReady
            | Call::PeekDelayed
            | Call::PeekBuried
            | Call::StatsJob(_)
            | Call::StatsTube(_)
            | Call::Stats
            | Call::ListTubes => {
                if place > 0 {
                    return false;
                }
                self.read(Read::of(&self.slots[place].call, &self.used), pump);
                State::Reading
            }
            Call::Reserve { timeout } if self.is_poll(*timeout) && place == 0 && !overdue => {
                let tubes = self.watched.clone();
                self.read(Read::Poll(tubes), pump);
                State::Reading
            }
            Call::Put { .. } if overdue => State::Answered(Answer::Draining),
            // What it has done so far is done.
            Call::Kick { .. } if (overdue || self.left) && kicking.kicked > 0 => {
                State::Answered(Answer::Kicked(kicking.kicked))
            }
            _ if overdue => State::Answered(Answer::InternalError),
            call => {
                let Some(command) = self.command_of(place, call) else {
                    return false;
                };
                self.kicks = matches!(command, Command::KickPortion { .. });
                if may_park(&command) {
                    if self.reserves >= self.portion {
                        return false;
                    }
                    self.reserves += 1;
                    self.slots[place].parks = true;
                }
                self.known |= matches!(
                    command,
                    Command::Reserve { .. } | Command::ReserveJob { .. }
                );
                let parks = may_park(&command);
                let early =
                    planted(Bug::DeleteBeforeCommit) && matches!(command, Command::Delete { .. });
                let batch = self.submit(place, command, bytes, pump.now, pump.outbound);
                if parks {
                    self.guard.get_or_insert(batch);
                }
                match early {
                    true => State::Answered(Answer::Deleted),
                    false => State::Submitted { batch },
                }
            }
        };
        self.slots[place].state = state;
        true
    }

    fn is_poll(&self, timeout: Option<Seconds>) -> bool {
        self.half || timeout == Some(Seconds(0))
    }

    fn read(&self, read: Read, pump: &mut Pump<'_>) {
        pump.tickets.push(Ticket {
            connection: self.id,
            slot: self.first,
            read,
            since: self.slots[0].since.unwrap_or(pump.now),
        });
    }

    fn submit(
        &mut self,
        place: usize,
        command: Command,
        bytes: usize,
        now: Instant,
        outbound: &mut Outbound,
    ) -> u64 {
        let since = *self.slots[place].since.get_or_insert(now);
        let item = Item {
            connection: self.id,
            command,
        };
        let rider = Rider::Call {
            connection: self.id,
            slot: self.first + place as u64,
        };
        outbound.push(&item, rider, Some(since), bytes)
    }

    /// The poll of a barrier goes through the log after all: something is ready.
    pub(crate) fn submit_poll(&mut self, place: usize, now: Instant, outbound: &mut Outbound) {
        let call = self.slots[place].call.clone();
        let bytes = call.bytes() + self.watch_bytes(&call);
        let command = Command::Reserve {
            tubes: self.watched.clone(),
            timeout: Some(Seconds(0)),
        };
        self.known = true;
        let batch = self.submit(place, command, bytes, now, outbound);
        self.slots[place].state = State::Submitted { batch };
    }

    fn use_tube(
        &mut self,
        place: usize,
        tube: TubeName,
        overdue: bool,
        pump: &mut Pump<'_>,
    ) -> State {
        if overdue && !pump.outbound.tubes.is_sure(&tube) {
            return State::Answered(Answer::InternalError);
        }
        let before = std::mem::replace(&mut self.used, tube.clone());
        pump.outbound.tubes.add(&tube, Way::Uses);
        let state = self.refer(place, &tube, Answer::Using(tube.clone()), pump);
        pump.outbound.lose(&before, Way::Uses);
        self.slots[place].undo = Some(Undo::Use { before });
        state
    }

    fn watch(&mut self, place: usize, tube: TubeName, overdue: bool, pump: &mut Pump<'_>) -> State {
        if overdue && !pump.outbound.tubes.is_sure(&tube) {
            return State::Answered(Answer::InternalError);
        }
        let added = !self.watched.contains(&tube);
        if added && self.watched.len() >= limits::WATCH_NAMES_MAX_DEFAULT {
            // Each reserve carries the whole list: what no reserve could use is refused here.
            return State::Answered(Answer::OutOfMemory);
        }
        if added {
            self.watched.push(tube.clone());
            pump.outbound.tubes.add(&tube, Way::Watches);
        }
        let answer = self.watched.len();
        let state = self.refer(place, &tube, Answer::Watching(answer), pump);
        self.slots[place].undo = Some(Undo::Watch { answer, added });
        state
    }

    /// Answered at once if the machine has the reference for sure; else it is set (again).
    fn refer(
        &mut self,
        place: usize,
        tube: &TubeName,
        answer: Answer,
        pump: &mut Pump<'_>,
    ) -> State {
        if pump.outbound.tubes.is_sure(tube) {
            return State::Answered(answer);
        }
        let since = *self.slots[place].since.get_or_insert(pump.now);
        let waiter = (self.id, self.first + place as u64);
        let batch = pump
            .outbound
            .tell(tube.clone(), true, Some(waiter), Some(since));
        State::Submitted { batch }
    }

    fn ignore(&mut self, place: usize, tube: &TubeName, pump: &mut Pump<'_>) -> State {
        if self.watched.len() == 1 && self.watched[0] == *tube {
            return State::Answered(Answer::NotIgnored);
        }
        if let Some(index) = self.watched.iter().position(|name| name == tube) {
            self.watched.swap_remove(index);
            pump.outbound.lose(tube, Way::Watches);
            self.slots[place].undo = Some(Undo::Ignore {
                index,
                tube: tube.clone(),
            });
        }
        State::Answered(Answer::Watching(self.watched.len()))
    }

    fn count(&mut self, place: usize, counters: &mut Counters) {
        let call = &self.slots[place].call;
        if let Some(counted) = call.counted() {
            counters.count(counted);
        }
        let puts = matches!(
            call,
            Call::Put { .. } | Call::Refused { producer: true, .. }
        );
        if puts && !std::mem::replace(&mut self.producer, true) {
            counters.producers += 1;
        }
        if matches!(call, Call::Reserve { .. }) {
            self.becomes_worker(counters);
        }
    }

    /// Bytes of the names that a call's command carries, roughly.
    pub(super) fn watch_bytes(&self, call: &Call) -> usize {
        match call {
            Call::Reserve { .. } => self
                .watched
                .iter()
                .map(|name| name.as_str().len() + 2)
                .sum(),
            Call::Put { .. } | Call::Kick { .. } => self.used.as_str().len(),
            Call::PauseTube { tube, .. } => tube.as_str().len(),
            _ => 0,
        }
    }
}

fn may_park(command: &Command) -> bool {
    matches!(command, Command::Reserve { timeout, .. } if *timeout != Some(Seconds(0)))
}
