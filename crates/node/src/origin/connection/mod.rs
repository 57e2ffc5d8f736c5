mod commands;
mod kicking;
#[cfg(feature = "model")]
mod model;
mod pump;
mod undo;

use std::{collections::VecDeque, sync::Arc, time::Instant};

use trellis_types::{ConnectionId, Seconds, TubeName};

use super::{
    Outbound, Ticket,
    batches::{OWN_BYTES, Rider, own_item},
};
use crate::{Answer, Call, CloseReason, Counters, Line};
use kicking::Kicking;

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
    /// Its node is on its way out.
    pub(crate) left: bool,
    /// Its input is used up: the connection ends when everything is answered.
    pub(crate) over: bool,
    /// An EndWait is on its way.
    pub(crate) end_wait: bool,
    /// Whether the machine may know this session: then it has to be told of its end.
    pub(crate) known: bool,
    /// Submitted reserves whose fate is open and that may park.
    reserves: usize,
    /// Parked reserves: one, but for a moment more, when a wait ends inside the batch that the
    /// next one begins in.
    parked: usize,
    /// The batch of the first reserve that may be parked. Nothing of a later one may be sent.
    guard: Option<u64>,
    /// How many reserves may be submitted together.
    portion: usize,
    /// A kick in portions is under way: what stands behind it waits for its end.
    kicks: bool,
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
    /// How far a kick is that is carried out in portions.
    kicking: Kicking,
}

pub(crate) enum State {
    Held,
    Submitted { batch: u64 },
    Parked,
    Reading,
    Answered(Answer),
}

/// How to take back what a call changed in its connection when it was submitted.
#[derive(Clone, Debug, Hash)]
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
            left: false,
            over: false,
            end_wait: false,
            known: false,
            reserves: 0,
            parked: 0,
            guard: None,
            portion: usize::MAX,
            kicks: false,
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
            kicking: Kicking::default(),
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
        self.reserves + self.parked > 0
    }

    /// Whether nothing is owed to the client but the end of a wait.
    pub(crate) fn rests(&self) -> bool {
        self.slots.is_empty() || self.parked > 0 || self.is_cut_short()
    }

    /// Whether the next answer is that of a wait that this node ended because it leaves. Its time is
    /// not up, so nobody may be told that; the connection is closed instead.
    fn is_cut_short(&self) -> bool {
        self.left
            && self.slots.front().is_some_and(|slot| {
                matches!(slot.state, State::Answered(Answer::TimedOut))
                    && matches!(slot.call, Call::Reserve { timeout } if timeout != Some(Seconds(0)))
            })
    }

    /// Whether a barrier is at work: it is always the first slot.
    pub(crate) fn is_reading(&self) -> bool {
        matches!(self.slots.front(), Some(slot) if matches!(slot.state, State::Reading))
    }

    /// A TubeRef that a `use` or `watch` waited for is applied.
    pub(crate) fn referred(
        &mut self,
        place: usize,
        batch: u64,
        held: bool,
        outbound: &mut Outbound,
    ) {
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
            self.parked = self.parked.saturating_sub(1);
        } else if std::mem::replace(&mut slot.parks, false) {
            self.reserves = self.reserves.saturating_sub(1);
            if self.reserves + self.parked == 0 {
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
        self.parked += 1;
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

    /// Where the reserve is that has been parked longest.
    pub(crate) fn parked_place(&self) -> Option<usize> {
        self.slots
            .iter()
            .position(|slot| matches!(slot.state, State::Parked))
    }

    fn lift_guard(&mut self) {
        if !self.may_be_parked() {
            self.guard = None;
        }
    }

    pub(crate) fn becomes_worker(&mut self, counters: &mut Counters) {
        if !std::mem::replace(&mut self.worker, true) {
            counters.workers += 1;
        }
    }

    /// Moves the answered calls at the front on their way out.
    pub(crate) fn flush(&mut self) {
        while !self.is_cut_short()
            && matches!(
                self.slots.front(),
                Some(Slot {
                    state: State::Answered(_),
                    ..
                })
            )
        {
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
}
