use std::{collections::VecDeque, sync::Arc, time::Instant};

use trellis_queue::{Command, Item};
use trellis_types::{ConnectionId, Seconds, TubeName};

use super::{
    Outbound, Read, Ticket,
    batches::{OWN_BYTES, Rider, own_item},
    tubes::Way,
};
use crate::{Answer, Call, CloseReason, Counters, Line};

/// One client of this node, and the calls that it has not been answered yet.
///
/// A call's life: `Held` (not submitted) → `Submitted` in a batch → perhaps `Parked` → `Answered`.
/// What is `Held` is always a suffix. Source: architecture, sections 5 and 6.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) line: Arc<Line>,
    pub(crate) slots: VecDeque<Slot>,
    /// The number of the first slot.
    first: u64,
    /// How many slots at the end are held.
    held: usize,
    /// Bytes of held slots.
    held_bytes: usize,
    pub(crate) used: TubeName,
    pub(crate) watched: Vec<TubeName>,
    pub(crate) producer: bool,
    pub(crate) worker: bool,
    /// The client shut its sending side.
    pub(crate) half: bool,
    /// Its input is used up: the connection ends when everything is answered.
    pub(crate) over: bool,
    /// An EndWait is on its way.
    pub(crate) end_wait: bool,
    /// Whether the machine may know this session: then it has to be told of its end.
    pub(crate) known: bool,
    /// Submitted reserves whose fate is open and that may park.
    reserves: usize,
    /// Whether a reserve is parked.
    parked: bool,
    /// The batch of the first reserve that may be parked. Nothing of a later one may be sent.
    guard: Option<u64>,
    /// How many reserves may be submitted together.
    portion: usize,
    /// Answers on their way to the line.
    ready: Vec<Answer>,
    /// Whether this connection wants [`Self::pump`] after the events of an entry.
    pub(crate) touched: bool,
}

pub(crate) struct Slot {
    pub(crate) call: Call,
    pub(crate) state: State,
    /// When it could first be submitted: what it may wait for a leader counts from here.
    pub(crate) since: Option<Instant>,
    counted: bool,
    /// Submitted as a reserve that may park: counted in [`Connection::reserves`].
    parks: bool,
    undo: Option<Undo>,
}

pub(crate) enum State {
    Held,
    Submitted { batch: u64 },
    Parked,
    Reading,
    Answered(Answer),
}

/// How to take back what a call changed in its connection when it was submitted.
enum Undo {
    Use { before: TubeName },
    Watch { answer: usize, added: bool },
    Ignore { index: usize, tube: TubeName },
}

/// What [`Connection::pump`] works with.
pub(crate) struct Pump<'a> {
    pub(crate) outbound: &'a mut Outbound,
    pub(crate) counters: &'a mut Counters,
    pub(crate) tickets: &'a mut Vec<Ticket>,
    pub(crate) draining: bool,
    pub(crate) now: Instant,
    /// What could first be submitted before this is not submitted any more but told so.
    pub(crate) overdue: Option<Instant>,
}

/// What a connection comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    GoesOn,
    Ends(CloseReason),
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, line: Arc<Line>) -> Self {
        Self {
            id,
            line,
            slots: VecDeque::new(),
            first: 0,
            held: 0,
            held_bytes: 0,
            used: TubeName::default_tube(),
            watched: vec![TubeName::default_tube()],
            producer: false,
            worker: false,
            half: false,
            over: false,
            end_wait: false,
            known: false,
            reserves: 0,
            parked: false,
            guard: None,
            portion: usize::MAX,
            ready: Vec::new(),
            touched: false,
        }
    }

    pub(crate) fn push(&mut self, call: Call) {
        self.held += 1;
        self.held_bytes += call.bytes();
        self.slots.push_back(Slot {
            call,
            state: State::Held,
            since: None,
            counted: false,
            parks: false,
            undo: None,
        });
    }

    /// The place of the slot of that number, if it is not answered and gone.
    pub(crate) fn place(&self, number: u64) -> Option<usize> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        (place < self.slots.len()).then_some(place)
    }

    /// Bytes that are held back, if any call is.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether a reserve of this session is or may come to be parked.
    pub(crate) fn may_be_parked(&self) -> bool {
        self.reserves > 0 || self.parked
    }

    /// Whether nothing is owed to the client but the end of a wait.
    pub(crate) fn rests(&self) -> bool {
        self.slots.is_empty() || self.parked
    }

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

    /// Whether a barrier is at work: it is always the first slot.
    pub(crate) fn is_reading(&self) -> bool {
        matches!(self.slots.front(), Some(slot) if matches!(slot.state, State::Reading))
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
        if self.guard.is_some_and(|guard| guard != pump.outbound.batches.number_for(bytes)) {
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
            _ if overdue => State::Answered(Answer::InternalError),
            call => {
                let Some(command) = self.command(call) else {
                    return false;
                };
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
                let batch = self.submit(place, command, bytes, pump.now, pump.outbound);
                if parks {
                    self.guard.get_or_insert(batch);
                }
                State::Submitted { batch }
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

    /// The command of a call as the session stands now; `None` for what never enters the log.
    fn command(&self, call: &Call) -> Option<Command> {
        Some(match call {
            Call::Put {
                priority,
                delay,
                ttr,
                body,
            } => Command::Put {
                tube: self.used.clone(),
                priority: *priority,
                delay: *delay,
                ttr: *ttr,
                body: body.clone(),
            },
            Call::Reserve { timeout } => Command::Reserve {
                tubes: self.watched.clone(),
                timeout: if self.half { Some(Seconds(0)) } else { *timeout },
            },
            Call::ReserveJob(job) => Command::ReserveJob { job: *job },
            Call::Delete(job) => Command::Delete { job: *job },
            Call::Release {
                job,
                priority,
                delay,
            } => Command::Release {
                job: *job,
                priority: *priority,
                delay: *delay,
            },
            Call::Bury { job, priority } => Command::Bury {
                job: *job,
                priority: *priority,
            },
            Call::Touch(job) => Command::Touch { job: *job },
            Call::Kick { bound } => Command::Kick {
                tube: self.used.clone(),
                bound: *bound,
            },
            Call::KickJob(job) => Command::KickJob { job: *job },
            Call::PauseTube { tube, delay } => Command::PauseTube {
                tube: tube.clone(),
                delay: *delay,
            },
            _ => return None,
        })
    }

    /// The command of a slot that waits in a batch, to be encoded once more.
    pub(crate) fn waiting_command(
        &self,
        place: usize,
        batch: u64,
    ) -> Option<(Command, Option<Instant>, usize)> {
        let slot = &self.slots[place];
        match slot.state {
            State::Submitted { batch: its } if its == batch => {}
            _ => return None,
        }
        // Use and watch ride as the origin's own TubeRef, never as a call. What stands behind one
        // in the connection is taken back with it, so `used` and `watched` are as they were.
        let command = self.command_at(place)?;
        let bytes = slot.call.bytes() + self.watch_bytes(&slot.call);
        Some((command, slot.since, bytes))
    }

    /// The command of a slot as the session stood when it was submitted: later changes of the
    /// used tube and the watch list are undone in thought.
    fn command_at(&self, place: usize) -> Option<Command> {
        let mut used = &self.used;
        let mut watched: Option<Vec<TubeName>> = None;
        for later in self.slots.iter().skip(place + 1).rev() {
            match (&later.undo, &later.call) {
                (Some(Undo::Use { before }), _) => used = before,
                (Some(Undo::Watch { added: true, .. }), Call::Watch(tube)) => {
                    watched
                        .get_or_insert_with(|| self.watched.clone())
                        .retain(|name| name != tube);
                }
                (Some(Undo::Ignore { index, tube }), _) => {
                    put_back(
                        watched.get_or_insert_with(|| self.watched.clone()),
                        *index,
                        tube.clone(),
                    );
                }
                _ => {}
            }
        }
        let mut command = self.command(&self.slots[place].call)?;
        match &mut command {
            Command::Put { tube, .. } | Command::Kick { tube, .. } => *tube = used.clone(),
            Command::Reserve { tubes, .. } => {
                if let Some(watched) = watched {
                    *tubes = watched;
                }
            }
            _ => {}
        }
        Some(command)
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

    fn watch(
        &mut self,
        place: usize,
        tube: TubeName,
        overdue: bool,
        pump: &mut Pump<'_>,
    ) -> State {
        if overdue && !pump.outbound.tubes.is_sure(&tube) {
            return State::Answered(Answer::InternalError);
        }
        let added = !self.watched.contains(&tube);
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

    /// A TubeRef that a `use` or `watch` waited for is applied.
    pub(crate) fn referred(&mut self, place: usize, batch: u64, held: bool, outbound: &mut Outbound) {
        let slot = &mut self.slots[place];
        if !matches!(slot.state, State::Submitted { batch: its } if its == batch) {
            return;
        }
        if !held {
            self.take_back(place, outbound);
            self.slots[place].state = State::Answered(Answer::OutOfMemory);
            return;
        }
        let answer = match (&slot.call, &slot.undo) {
            (Call::Watch(_), Some(Undo::Watch { answer, .. })) => Answer::Watching(*answer),
            (Call::Use(tube), _) => Answer::Using(tube.clone()),
            _ => Answer::InternalError,
        };
        slot.state = State::Answered(answer);
    }

    /// The log has answered a call.
    pub(crate) fn answered(&mut self, place: usize, answer: Answer) {
        let slot = &mut self.slots[place];
        if matches!(slot.state, State::Parked) {
            self.parked = false;
        } else if std::mem::replace(&mut slot.parks, false) {
            self.reserves = self.reserves.saturating_sub(1);
            if self.reserves == 0 && !self.parked {
                // The whole portion found jobs: a larger one may come next.
                self.portion = self.portion.saturating_mul(2);
            }
        }
        self.slots[place].state = State::Answered(answer);
        self.lift_guard();
    }

    /// A reserve waits in the machine now.
    pub(crate) fn park(&mut self, place: usize) {
        let slot = &mut self.slots[place];
        slot.state = State::Parked;
        if std::mem::replace(&mut slot.parks, false) {
            self.reserves = self.reserves.saturating_sub(1);
        }
        self.parked = true;
        self.portion = 1;
    }

    /// The machine skipped a call behind a parked reserve, so it did all later ones. They do not
    /// age while they are held back.
    pub(crate) fn skipped(&mut self, place: usize, outbound: &mut Outbound) {
        self.hold_again(place, outbound);
        for slot in self.slots.iter_mut().skip(place) {
            slot.since = None;
        }
        self.portion = 1;
    }

    /// Where the parked reserve is.
    pub(crate) fn parked_place(&self) -> Option<usize> {
        self.slots
            .iter()
            .position(|slot| matches!(slot.state, State::Parked))
    }

    /// Takes everything from `place` on back to held, and undoes what it did to the session.
    pub(crate) fn hold_again(&mut self, place: usize, outbound: &mut Outbound) {
        let first_held = self.slots.len() - self.held;
        for place in (place..first_held).rev() {
            self.take_back(place, outbound);
            let slot = &mut self.slots[place];
            if std::mem::replace(&mut slot.parks, false) {
                self.reserves = self.reserves.saturating_sub(1);
            }
            slot.state = State::Held;
            self.held += 1;
            self.held_bytes += slot.call.bytes();
        }
        self.lift_guard();
    }

    fn lift_guard(&mut self) {
        if !self.may_be_parked() {
            self.guard = None;
        }
    }

    fn take_back(&mut self, place: usize, outbound: &mut Outbound) {
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

    fn count(&mut self, place: usize, counters: &mut Counters) {
        let call = &self.slots[place].call;
        if let Some(counted) = call.counted() {
            counters.count(counted);
        }
        let puts = matches!(call, Call::Put { .. } | Call::Refused { producer: true, .. });
        if puts && !std::mem::replace(&mut self.producer, true) {
            counters.producers += 1;
        }
        if matches!(call, Call::Reserve { .. }) {
            self.becomes_worker(counters);
        }
    }

    pub(crate) fn becomes_worker(&mut self, counters: &mut Counters) {
        if !std::mem::replace(&mut self.worker, true) {
            counters.workers += 1;
        }
    }

    /// Moves the answered calls at the front on their way out.
    pub(crate) fn flush(&mut self) {
        while matches!(
            self.slots.front(),
            Some(Slot {
                state: State::Answered(_),
                ..
            })
        ) {
            if let Some(Slot {
                state: State::Answered(answer),
                ..
            }) = self.slots.pop_front()
            {
                self.first += 1;
                self.ready.push(answer);
            }
        }
    }

    /// Hands what is ready to the line; whether somebody has to deliver it.
    pub(crate) fn deliver(&mut self) -> bool {
        !self.ready.is_empty() && self.line.push(self.ready.drain(..))
    }

    /// Tells a half-closed session's wait, if there may be one, that it is over.
    pub(crate) fn half_close(&mut self, outbound: &mut Outbound) {
        self.half = true;
        if self.may_be_parked() && !std::mem::replace(&mut self.end_wait, true) {
            let rider = Rider::EndWait(self.id);
            outbound.push(&own_item(&rider), rider, None, OWN_BYTES);
        }
    }

    fn watch_bytes(&self, call: &Call) -> usize {
        match call {
            Call::Reserve { .. } => self.watched.iter().map(|name| name.as_str().len() + 2).sum(),
            Call::Put { .. } | Call::Kick { .. } => self.used.as_str().len(),
            Call::PauseTube { tube, .. } => tube.as_str().len(),
            _ => 0,
        }
    }
}

fn may_park(command: &Command) -> bool {
    matches!(command, Command::Reserve { timeout, .. } if *timeout != Some(Seconds(0)))
}

/// Undoes a `swap_remove`.
fn put_back(names: &mut Vec<TubeName>, index: usize, name: TubeName) {
    names.push(name);
    let last = names.len() - 1;
    names.swap(index.min(last), last);
}
