//! The sessions of this node and what they send: a state machine without I/O, tasks or a clock of
//! its own. Its inputs are calls, events of the log, and moments; its outputs are batches, answers
//! on their lines, and reads to be made.
//!
//! Everything is under one lock. The machine's lock may be held when it is taken, never the other
//! way round.

mod applied;
mod batches;
mod connection;
mod forwarder;
#[cfg(feature = "model")]
pub(crate) mod model;
mod outbound;
mod overdue;
mod read;
#[cfg(test)]
mod stories;
mod tubes;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use connection::{Connection, Course, Pump};
use rustc_hash::FxHashMap;
use trellis_queue::Machine;
use trellis_types::{ConnectionId, OriginId, limits};

pub(crate) use forwarder::forward;
pub(crate) use outbound::Outbound;
pub(crate) use read::{Read, Ticket};

use crate::{Answer, Budget, Call, CloseReason, Counters, Line, NodeMetrics};
use batches::{OWN_BYTES, Rider, own_item};
use connection::State;
use tubes::Way;

/// Where this node stands with the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No origin: a new run is being drawn.
    Fenced,
    /// The origin waits for its OpenOrigin.
    Opening(OriginId),
    /// Sessions are served.
    Open(OriginId),
}

/// Why there is no session to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// This node's bound of connections is reached.
    #[error("this node has as many connections as it may have")]
    TooMany,
    /// This node does not serve clients now.
    #[error("this node does not serve clients now")]
    Closed,
}

/// One node's side of the protocol between sessions and leader.
pub(crate) struct Origin {
    phase: Phase,
    sessions: FxHashMap<ConnectionId, Connection>,
    last_connection: u64,
    outbound: Outbound,
    pub(crate) counters: Counters,
    pub(crate) metrics: NodeMetrics,
    /// Puts are not taken any more (SIGUSR1).
    pub(crate) draining: bool,
    /// Sessions end as soon as nothing of theirs is under way.
    leaving: bool,
    commit_timeout: Duration,
    connections_max: usize,
    reading: VecDeque<(Instant, ConnectionId, u64)>,
    /// When anything but a kick was applied last, of whatever node.
    others: Option<Instant>,
    /// Connections whose kick rests between two portions, and until when.
    resting: Vec<(Instant, ConnectionId)>,
    touched: Vec<ConnectionId>,
    /// Rises whenever the stream that is open is not to be trusted any more.
    doubt: u64,
    /// The forwarder sleeps and is to be woken when there is a batch.
    idle: bool,
    effects: Effects,
}

/// What is to be done outside the lock.
#[derive(Default)]
pub(crate) struct Effects {
    /// To be delivered.
    pub(crate) lines: Vec<Arc<Line>>,
    /// To be read.
    pub(crate) tickets: Vec<Ticket>,
    /// The forwarder has something to do.
    pub(crate) wake: bool,
    /// The phase is another one.
    pub(crate) phase: Option<Phase>,
    /// A kick rests: [`Origin::rested`] is to be called when it has rested enough.
    pub(crate) rests: bool,
}

impl Effects {
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
            && self.tickets.is_empty()
            && !(self.wake || self.rests)
            && self.phase.is_none()
    }

    /// What comes on top, later.
    pub(crate) fn add(&mut self, later: Self) {
        self.lines.extend(later.lines);
        self.tickets.extend(later.tickets);
        self.wake |= later.wake;
        self.rests |= later.rests;
        self.phase = later.phase.or(self.phase);
    }
}

impl Origin {
    pub(crate) fn new(
        budget: Arc<Budget>,
        commit_timeout: Duration,
        connections_max: usize,
    ) -> Self {
        Self {
            phase: Phase::Fenced,
            sessions: FxHashMap::default(),
            last_connection: 0,
            outbound: Outbound::new(budget),
            counters: Counters::default(),
            metrics: NodeMetrics::default(),
            draining: false,
            leaving: false,
            commit_timeout,
            connections_max,
            reading: VecDeque::new(),
            others: None,
            resting: Vec::new(),
            touched: Vec::new(),
            doubt: 0,
            idle: false,
            effects: Effects::default(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn doubt(&self) -> u64 {
        self.doubt
    }

    pub(crate) fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// A run has been drawn and synced: it wants to be opened.
    pub(crate) fn opening(&mut self, origin: OriginId) {
        self.set_phase(Phase::Opening(origin));
        self.outbound.begin_again();
    }

    /// This node applied its own OpenOrigin.
    pub(crate) fn opened(&mut self, origin: OriginId) {
        if self.phase == Phase::Opening(origin) {
            self.set_phase(Phase::Open(origin));
        }
    }

    /// A snapshot replaced the state of this node.
    pub(crate) fn replaced(&mut self, machine: &Machine) {
        match self.phase {
            Phase::Fenced => {}
            // The snapshot may have swallowed the opening of this origin.
            Phase::Opening(own) => {
                if machine.origin(own.node).and_then(|view| view.open) == Some(own) {
                    self.opened(own);
                }
            }
            // What became of the commands that it swallowed is unknowable.
            Phase::Open(_) => self.fence(CloseReason::Fenced),
        }
    }

    /// Gives every session up. What is in flight may still take effect; nobody is told.
    pub(crate) fn fence(&mut self, why: CloseReason) {
        if self.phase == Phase::Fenced {
            return;
        }
        self.set_phase(Phase::Fenced);
        for (_, connection) in self.sessions.drain() {
            connection.line.set_full(false);
            if connection.line.end(why) {
                self.effects.lines.push(connection.line);
            }
        }
        self.counters.connections = 0;
        self.counters.producers = 0;
        self.counters.workers = 0;
        self.outbound.begin_again();
        self.reading.clear();
        self.touched.clear();
        self.doubt += 1;
    }

    fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
        self.effects.phase = Some(phase);
        self.effects.wake = true;
    }

    /// A new client.
    ///
    /// # Errors
    ///
    /// [`Refused`]: the node does not serve, or has as many clients as it may have.
    pub(crate) fn connect(&mut self, line: Arc<Line>) -> Result<ConnectionId, Refused> {
        if self.leaving || !matches!(self.phase, Phase::Open(_)) {
            return Err(Refused::Closed);
        }
        if self.sessions.len() >= self.connections_max {
            return Err(Refused::TooMany);
        }
        self.last_connection += 1;
        let id = ConnectionId(self.last_connection);
        let connection = Connection::new(id, line);
        self.outbound.tubes.add(&connection.used, Way::Uses);
        for tube in &connection.watched {
            self.outbound.tubes.add(tube, Way::Watches);
        }
        self.sessions.insert(id, connection);
        self.counters.connections += 1;
        self.counters.connections_total += 1;
        Ok(id)
    }

    /// Commands of one connection, in order. Those of a session that is over are dropped.
    pub(crate) fn submit(&mut self, id: ConnectionId, calls: &mut Vec<Call>, now: Instant) {
        match self.sessions.get_mut(&id) {
            // The input of a half-closed client is used up; one that is to leave is not heard.
            Some(connection) if !connection.over && !self.leaving => {
                for call in calls.drain(..) {
                    connection.push(call);
                }
                self.pump(id, now, None);
            }
            _ => calls.clear(),
        }
    }

    /// The client shut its sending side, which was noticed before its input was read to the end:
    /// nothing of it waits for a job any more.
    pub(crate) fn hung_up(&mut self, id: ConnectionId, now: Instant) {
        if let Some(connection) = self.sessions.get_mut(&id)
            && !connection.half
        {
            connection.half_close(&mut self.outbound);
            self.pump(id, now, None);
        }
    }

    /// The client shut its sending side and its input is used up.
    pub(crate) fn half_closed(&mut self, id: ConnectionId, now: Instant) {
        if let Some(connection) = self.sessions.get_mut(&id)
            && !connection.over
        {
            connection.over = true;
            if !connection.half {
                connection.half_close(&mut self.outbound);
            }
            self.pump(id, now, None);
        }
    }

    /// The client is gone. What it had submitted is still carried out.
    pub(crate) fn disconnect(&mut self, id: ConnectionId) {
        self.close(id, None);
    }

    fn close(&mut self, id: ConnectionId, why: Option<CloseReason>) {
        let Some(mut connection) = self.sessions.remove(&id) else {
            return;
        };
        self.counters.connections -= 1;
        self.counters.producers -= u64::from(connection.producer);
        self.counters.workers -= u64::from(connection.worker);
        self.outbound.lose(&connection.used, Way::Uses);
        for tube in &connection.watched {
            self.outbound.lose(tube, Way::Watches);
        }
        if connection.is_reading() {
            self.reading.retain(|(_, reader, _)| *reader != id);
        }
        if connection.known {
            let rider = Rider::CloseSession(id);
            self.outbound
                .push(&own_item(&rider), rider, None, OWN_BYTES);
        }
        connection.line.set_full(false);
        let mut queue = connection.deliver();
        if let Some(why) = why {
            queue |= connection.line.end(why);
        }
        if queue {
            self.effects.lines.push(connection.line);
        }
        self.wake();
    }

    /// Lets a connection do what it can do now, and puts what it is told on its line.
    fn pump(&mut self, id: ConnectionId, now: Instant, overdue: Option<Instant>) {
        let Some(connection) = self.sessions.get_mut(&id) else {
            return;
        };
        connection.touched = false;
        let tickets = self.effects.tickets.len();
        let course = connection.pump(&mut Pump {
            outbound: &mut self.outbound,
            counters: &mut self.counters,
            tickets: &mut self.effects.tickets,
            draining: self.draining,
            now,
            overdue,
        });
        for ticket in &self.effects.tickets[tickets..] {
            self.reading
                .push_back((ticket.since, ticket.connection, ticket.slot));
        }
        if connection.deliver() {
            self.effects.lines.push(connection.line.clone());
        }
        connection.line.set_full(
            connection.slots.len() >= limits::CONNECTION_PIPELINE_MAX
                || connection.held_bytes() >= limits::CONNECTION_READ_AHEAD_BYTES,
        );
        match course {
            _ if self.leaving && connection.rests() => self.close(id, Some(CloseReason::Drained)),
            Course::Ends(why) => self.close(id, Some(why)),
            Course::GoesOn => {}
        }
        self.wake();
    }

    fn wake(&mut self) {
        if self.idle
            && !self.outbound.batches.waiting.is_empty()
            && !self.outbound.batches.is_flight_full()
        {
            self.idle = false;
            self.effects.wake = true;
        }
    }

    /// The next batch to hand over, with its seq; from now on both are fixed. `None` while nothing
    /// waits, or as many as may be are in flight; then the forwarder is woken later.
    pub(crate) fn hand(&mut self, origin: OriginId) -> Option<(u64, Bytes)> {
        let batch = match self.phase {
            Phase::Open(own) if own == origin => self.outbound.batches.hand(origin),
            _ => None,
        };
        self.idle = batch.is_none();
        batch.map(|batch| (batch.seq, batch.bytes.clone()))
    }

    /// Everything handed over and not applied, in order: how a new stream starts.
    pub(crate) fn resend(&self, origin: OriginId) -> Vec<(u64, Bytes)> {
        match self.phase {
            Phase::Open(own) if own == origin => self
                .outbound
                .batches
                .flight
                .iter()
                .map(|batch| (batch.seq, batch.bytes.clone()))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// A read is made.
    pub(crate) fn read_answered(&mut self, ticket: &Ticket, answer: Answer, now: Instant) {
        if let Some(connection) = self.sessions.get_mut(&ticket.connection)
            && let Some(place) = connection.place(ticket.slot)
            && matches!(connection.slots[place].state, State::Reading)
        {
            connection.slots[place].state = State::Answered(answer);
            self.finish_reading(ticket);
            self.pump(ticket.connection, now, None);
        }
    }

    /// Something is ready for a poll, so it goes through the log.
    pub(crate) fn poll_submitted(&mut self, ticket: &Ticket, now: Instant) {
        if let Some(connection) = self.sessions.get_mut(&ticket.connection)
            && let Some(place) = connection.place(ticket.slot)
            && matches!(connection.slots[place].state, State::Reading)
        {
            connection.submit_poll(place, now, &mut self.outbound);
            self.finish_reading(ticket);
            self.pump(ticket.connection, now, None);
        }
    }

    /// Whether somebody still waits for a read.
    pub(crate) fn is_reading(&self, ticket: &Ticket) -> bool {
        self.sessions
            .get(&ticket.connection)
            .is_some_and(|connection| {
                connection
                    .place(ticket.slot)
                    .is_some_and(|place| matches!(connection.slots[place].state, State::Reading))
            })
    }

    fn finish_reading(&mut self, ticket: &Ticket) {
        if let Some(place) = self.reading.iter().position(|(_, connection, slot)| {
            (*connection, *slot) == (ticket.connection, ticket.slot)
        }) {
            self.reading.remove(place);
        }
    }

    /// Every session is to end as soon as what it has submitted is answered; waits are not waited
    /// for. No new ones.
    pub(crate) fn leave(&mut self, now: Instant) {
        self.leaving = true;
        let all: Vec<ConnectionId> = self.sessions.keys().copied().collect();
        // Waits end before any hold returns, or they would swallow what returns.
        for id in &all {
            let Some(connection) = self.sessions.get_mut(id) else {
                continue;
            };
            connection.left = true;
            if connection.may_be_parked() {
                match connection.rests() {
                    true => self.close(*id, Some(CloseReason::Drained)),
                    false => connection.half_close(&mut self.outbound),
                }
            }
        }
        for id in all {
            self.pump(id, now, None);
        }
    }

    /// Every session ends now.
    pub(crate) fn close_all(&mut self, why: CloseReason) {
        let all: Vec<ConnectionId> = self.sessions.keys().copied().collect();
        for id in all {
            self.close(id, Some(why));
        }
    }

    /// Sessions, and batches that are not applied.
    pub(crate) fn left(&self) -> (usize, usize) {
        let batches = &self.outbound.batches;
        (
            self.sessions.len(),
            batches.waiting.len() + batches.flight.len(),
        )
    }

    /// Kicks that have rested enough go on. When the next one will have.
    pub(crate) fn rested(&mut self, now: Instant) -> Option<Instant> {
        let ready: Vec<_> = self.resting.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, id) in ready {
            self.pump(id, now, None);
        }
        self.resting.iter().map(|(at, _)| *at).min()
    }

    /// Whether anything may come to be overdue.
    pub(crate) fn waits_for_a_leader(&self) -> bool {
        self.left().1 > 0 || !self.reading.is_empty()
    }

    /// Connections of this node that use and that watch `tube`.
    pub(crate) fn interest(&self, tube: &trellis_types::TubeName) -> (u64, u64) {
        self.outbound.tubes.counts(tube)
    }
}
