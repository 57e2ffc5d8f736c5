//! The origin as a value: copied, compared and driven step by step, without tasks or a clock.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use trellis_consensus::{Bodies, Owed};
use trellis_queue::{Event, Machine};
use trellis_types::{ConnectionId, JobId, OriginId, SessionId, TubeName};

use super::{Origin, Phase, Read, Ticket, batches::Rider};
use crate::{Answer, Budget, Call, CloseReason, Line, Outlet};

const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a client of this node is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    /// An answer: its word, and the job it names (0 if none).
    Answer(&'static str, u64),
    /// The end of its session.
    Closed(CloseReason),
}

/// A poll that waits for a read.
#[derive(Clone, Debug)]
pub struct Poll {
    ticket: Ticket,
    /// What it watches.
    pub tubes: Vec<TubeName>,
}

impl Poll {
    /// What tells it from other polls of its origin.
    pub fn key(&self) -> (ConnectionId, u64) {
        (self.ticket.connection, self.ticket.slot)
    }
}

/// One node's side of the protocol between sessions and leader: the product's own, as a value.
///
/// Nothing but polls may be read through it, and every moment is `now` milliseconds after a
/// beginning that all of one world share.
pub struct ModelOrigin {
    origin: Origin,
    begin: Instant,
    heard: Arc<Mutex<Vec<(ConnectionId, Heard)>>>,
    /// Polls that have turned up.
    pub polls: Vec<Poll>,
    /// Whether the forwarder has been woken and has not found everything handed since.
    pub awake: bool,
}

struct Ear {
    connection: ConnectionId,
    heard: Arc<Mutex<Vec<(ConnectionId, Heard)>>>,
}

impl Outlet for Ear {
    fn deliver(&self, answers: &mut Vec<Answer>) {
        self.heard.lock().extend(answers.drain(..).map(|answer| {
            let (word, job) = word_of(&answer);
            (self.connection, Heard::Answer(word, job))
        }));
    }

    fn close(&self, why: CloseReason) {
        self.heard
            .lock()
            .push((self.connection, Heard::Closed(why)));
    }
}

struct NoBodies;

impl Bodies for NoBodies {
    fn owe(&self, _: JobId, _: u32) -> Owed {
        Owed::at_hand(Bytes::new())
    }
}

/// An answer as a word and the job it names.
pub(crate) fn word_of(answer: &Answer) -> (&'static str, u64) {
    match answer {
        Answer::Inserted(job) => ("INSERTED", job.0),
        Answer::Reserved { job, .. } => ("RESERVED", job.0),
        Answer::Found { job, .. } => ("FOUND", job.0),
        Answer::Using(_) => ("USING", 0),
        Answer::Watching(count) => ("WATCHING", *count as u64),
        Answer::DeadlineSoon => ("DEADLINE_SOON", 0),
        Answer::TimedOut => ("TIMED_OUT", 0),
        Answer::Deleted => ("DELETED", 0),
        Answer::Released => ("RELEASED", 0),
        Answer::Buried => ("BURIED", 0),
        Answer::NotFound => ("NOT_FOUND", 0),
        Answer::OutOfMemory => ("OUT_OF_MEMORY", 0),
        Answer::InternalError => ("INTERNAL_ERROR", 0),
        Answer::Draining => ("DRAINING", 0),
        _ => ("another word", 0),
    }
}

impl ModelOrigin {
    /// An origin without a run, in a world that began at `begin`.
    pub fn new(begin: Instant) -> Self {
        Self {
            origin: Origin::new(Arc::new(Budget::default()), COMMIT_TIMEOUT, 100),
            begin,
            heard: Arc::default(),
            polls: Vec::new(),
            awake: false,
        }
    }

    fn at(&self, now: u64) -> Instant {
        self.begin + Duration::from_millis(now)
    }

    /// What follows from anything is done at once: lines are delivered, polls are kept.
    fn settle(&mut self) {
        let effects = self.origin.take_effects();
        for line in effects.lines {
            line.deliver();
        }
        self.awake |= effects.wake;
        for ticket in effects.tickets {
            if let Read::Poll(tubes) = &ticket.read {
                let tubes = tubes.clone();
                self.polls.push(Poll { ticket, tubes });
            }
        }
    }

    /// Whether nothing follows from what happened last: nobody has heard anything, no poll has
    /// turned up, and there is an origin.
    pub fn is_settled(&self) -> bool {
        self.polls.is_empty() && self.own().is_some() && self.heard.lock().is_empty()
    }

    /// What clients have heard since this was last asked.
    pub fn hears(&mut self) -> Vec<(ConnectionId, Heard)> {
        std::mem::take(&mut self.heard.lock())
    }

    /// A run has been drawn and synced.
    pub fn opening(&mut self, origin: OriginId) {
        self.origin.opening(origin);
        self.settle();
    }

    /// The origin that serves sessions.
    pub fn open(&self) -> Option<OriginId> {
        match self.origin.phase() {
            Phase::Open(origin) => Some(origin),
            _ => None,
        }
    }

    /// The origin that is or wants to be open.
    pub fn own(&self) -> Option<OriginId> {
        match self.origin.phase() {
            Phase::Open(origin) | Phase::Opening(origin) => Some(origin),
            Phase::Fenced => None,
        }
    }

    /// A new client.
    pub fn connect(&mut self) -> Option<ConnectionId> {
        let id = ConnectionId(self.origin.last_connection + 1);
        let line = self.line(id);
        self.origin.connect(line).ok()
    }

    fn line(&self, connection: ConnectionId) -> Arc<Line> {
        Line::new(Arc::new(Ear {
            connection,
            heard: self.heard.clone(),
        }))
    }

    /// A client says something.
    pub fn submit(&mut self, id: ConnectionId, call: Call, now: u64) {
        let now = self.at(now);
        self.origin.submit(id, &mut vec![call], now);
        self.settle();
    }

    /// A client shut its sending side, and its input is not used up.
    pub fn hung_up(&mut self, id: ConnectionId, now: u64) {
        let now = self.at(now);
        self.origin.hung_up(id, now);
        self.settle();
    }

    /// A client shut its sending side, and its input is used up.
    pub fn half_closed(&mut self, id: ConnectionId, now: u64) {
        let now = self.at(now);
        self.origin.half_closed(id, now);
        self.settle();
    }

    /// A client is gone.
    pub fn disconnect(&mut self, id: ConnectionId) {
        self.origin.disconnect(id);
        self.settle();
    }

    /// What one entry of the log did.
    pub fn applied(&mut self, events: &[Event], now: u64) {
        let now = self.at(now);
        self.origin.applied(events, &NoBodies, now);
        self.settle();
    }

    /// A snapshot replaced the state.
    pub fn replaced(&mut self, machine: &Machine) {
        self.origin.replaced(machine);
        self.settle();
    }

    /// All sessions are given up.
    pub fn fence(&mut self) {
        self.origin.fence(CloseReason::Fenced);
        self.settle();
    }

    /// Time has passed without anything happening.
    pub fn overdue(&mut self, now: u64) {
        let now = self.at(now);
        self.origin.overdue(now);
        self.settle();
    }

    /// The next batch to hand over, with its seq.
    pub fn hand(&mut self) -> Option<(u64, Bytes)> {
        let batch = self.open().and_then(|origin| self.origin.hand(origin));
        self.awake = batch.is_some();
        batch
    }

    /// Everything handed over and not applied, in order.
    pub fn resend(&self) -> Vec<(u64, Bytes)> {
        self.open()
            .map(|origin| self.origin.resend(origin))
            .unwrap_or_default()
    }

    /// Rises whenever the stream that is open is not to be trusted any more.
    pub fn doubt(&self) -> u64 {
        self.origin.doubt()
    }

    /// Polls for which something is ready in `machine` go through the log, as wherever they turn
    /// up. The rest is kept.
    pub fn submit_ready_polls(&mut self, machine: &Machine, now: u64) {
        let Some(origin) = self.open() else {
            self.polls.clear();
            return;
        };
        let now = self.at(now);
        let mut rest = Vec::new();
        while let Some(poll) = self.polls.pop() {
            let session = SessionId {
                origin,
                connection: poll.ticket.connection,
            };
            if !self.origin.is_reading(&poll.ticket) {
                continue;
            }
            if machine.would_reserve(&poll.tubes) || machine.holds_any(session) {
                self.origin.poll_submitted(&poll.ticket, now);
                self.settle();
            } else {
                rest.push(poll);
            }
        }
        self.polls = rest;
    }

    /// These polls have found nothing ready.
    pub fn polls_found_nothing(&mut self, polls: Vec<Poll>, now: u64) {
        let now = self.at(now);
        for poll in polls {
            self.origin
                .read_answered(&poll.ticket, Answer::TimedOut, now);
        }
        self.settle();
    }

    /// Sessions that are open: whether each waits for nothing but the end of a wait; `None` if
    /// nothing of it is unanswered.
    pub fn sessions(&self) -> impl Iterator<Item = (ConnectionId, Option<bool>)> + '_ {
        let sessions = self.origin.sessions.iter();
        sessions.map(|(id, connection)| (*id, connection.waits()))
    }

    /// Whether that session is open.
    pub fn has_session(&self, id: ConnectionId) -> bool {
        self.origin.sessions.contains_key(&id)
    }

    /// Batches that are not applied.
    pub fn batches(&self) -> usize {
        self.origin.left().1
    }

    /// Sessions that use or watch `tube`.
    pub fn interest(&self, tube: &TubeName) -> u64 {
        let (using, watching) = self.origin.interest(tube);
        using + watching
    }

    /// Everything that decides what happens next; counters and metrics are not in it.
    pub fn fingerprint(&self, hash: &mut impl Hasher) {
        let origin = &self.origin;
        (self.open(), self.own(), self.awake).hash(hash);
        (origin.last_connection, origin.draining, origin.leaving).hash(hash);
        let mut sessions: Vec<_> = origin.sessions.values().collect();
        sessions.sort_unstable_by_key(|connection| connection.id);
        for connection in sessions {
            connection.fingerprint(&origin.outbound.batches, self.begin, hash);
        }
        origin.outbound.batches.fingerprint(self.begin, hash);
        origin.outbound.tubes.fingerprint(hash);
        for poll in &self.polls {
            (poll.ticket.connection, poll.ticket.slot).hash(hash);
        }
    }

    /// Breaks a rule: batches are made anew when a stream opens.
    pub fn form_batches_anew(&mut self) {
        let Some(origin) = self.open() else { return };
        let Some((number, riders)) = self.origin.outbound.batches.join_all(origin) else {
            return;
        };
        for rider in riders {
            if let Rider::Call { connection, slot } = rider
                && let Some(session) = self.origin.sessions.get_mut(&connection)
            {
                session.ride_in(slot, number);
            }
        }
    }

    /// Breaks a rule: nothing is held back behind a reserve that may be parked.
    pub fn hold_nothing_back(&mut self, now: u64) {
        let now = self.at(now);
        let ids: Vec<ConnectionId> = self.origin.sessions.keys().copied().collect();
        for id in ids {
            if let Some(session) = self.origin.sessions.get_mut(&id) {
                session.forget_guard();
                self.origin.pump(id, now, None);
            }
        }
        self.settle();
    }

    /// Breaks a rule: what a half-closed session submits again waits like anything else.
    pub fn forget_half_close(&mut self) {
        for session in self.origin.sessions.values_mut() {
            session.half = false;
        }
    }

    /// Breaks a rule: a reference is believed to be set although its TubeRef is under way.
    pub fn trust_references(&mut self) {
        self.origin.outbound.tubes.trust();
    }

    /// Breaks a rule: clients are served before the origin is opened.
    pub fn open_early(&mut self) {
        if let Some(own) = self.own() {
            self.origin.opened(own);
            self.settle();
        }
    }
}

impl Clone for ModelOrigin {
    fn clone(&self) -> Self {
        let old = &self.origin;
        let mut copy = Self::new(self.begin);
        copy.polls = self.polls.clone();
        copy.awake = self.awake;
        copy.heard.lock().extend(self.heard.lock().iter().cloned());
        let sessions = old
            .sessions
            .iter()
            .map(|(id, connection)| (*id, connection.fork(copy.line(*id))))
            .collect();
        let new = &mut copy.origin;
        new.phase = old.phase;
        new.sessions = sessions;
        new.last_connection = old.last_connection;
        new.outbound.batches = old.outbound.batches.clone();
        new.outbound.tubes = old.outbound.tubes.clone();
        new.outbound.budget.take(old.outbound.batches.budget());
        new.counters = old.counters;
        new.metrics = old.metrics.clone();
        new.draining = old.draining;
        new.leaving = old.leaving;
        new.reading = old.reading.clone();
        new.touched = old.touched.clone();
        new.doubt = old.doubt;
        new.idle = old.idle;
        copy
    }
}
