//! Stories of sessions: an origin, the real machine, a wound clock, and no task.

mod chance;
mod kicks;
mod pipelines;
mod section_nine;
mod sessions;
mod tube_refs;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use trellis_consensus::{Bodies, Owed};
use trellis_queue::{Content, Entry, LeaderCommand, Machine};
use trellis_rpc::queue::decode_batch;
use trellis_types::{
    ConnectionId, JobId, NodeId, OriginId, Priority, Run, Seconds, SessionId, Timestamp, TubeName,
};

use super::{Origin, Read, Ticket};
use crate::{Answer, Budget, Call, CloseReason, Line, Outlet};

pub(super) const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);

/// One node, one cluster whose log is whatever the story hands it.
pub(super) struct Story {
    pub(super) origin: Origin,
    pub(super) machine: Machine,
    pub(super) now: Instant,
    at: u64,
    /// Handed to the leader and not committed.
    pub(super) wire: Vec<Bytes>,
    /// Commands that came into the log, `TubeRef`s included.
    pub(super) logged: usize,
    pub(super) tickets: Vec<Ticket>,
}

/// A client: what it has heard and not yet told the story.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) id: ConnectionId,
    heard: Arc<Mutex<Vec<String>>>,
    pub(super) line: Arc<Line>,
}

struct Ear(Arc<Mutex<Vec<String>>>);

impl Outlet for Ear {
    fn deliver(&self, answers: &mut Vec<Answer>) {
        self.0
            .lock()
            .extend(answers.drain(..).map(|answer| text(&answer)));
    }

    fn close(&self, why: CloseReason) {
        self.0.lock().push(format!("closed: {why:?}"));
    }
}

pub(super) struct NoBodies;

impl Bodies for NoBodies {
    fn owe(&self, _: JobId, _: u32) -> Owed {
        Owed::at_hand(Bytes::new())
    }
}

fn text(answer: &Answer) -> String {
    match answer {
        Answer::Inserted(job) => format!("inserted {job}"),
        Answer::Reserved { job, .. } => format!("reserved {job}"),
        Answer::Found { job, .. } => format!("found {job}"),
        Answer::Using(tube) => format!("using {tube}"),
        Answer::Watching(count) => format!("watching {count}"),
        Answer::Tubes(tubes) => {
            let names: Vec<&str> = tubes.iter().map(TubeName::as_str).collect();
            names.join(",")
        }
        Answer::Refused(tag) => format!("refused {tag}"),
        other => format!("{other:?}"),
    }
}

pub(super) fn tube(name: &str) -> TubeName {
    TubeName::parse(name.as_bytes()).expect("a tube's name")
}

pub(super) fn put(body: &'static str) -> Call {
    Call::Put {
        priority: Priority(0),
        delay: Seconds(0),
        ttr: Seconds(60),
        body: Bytes::from_static(body.as_bytes()),
    }
}

pub(super) const RESERVE: Call = Call::Reserve { timeout: None };
pub(super) const POLL: Call = Call::Reserve {
    timeout: Some(Seconds(0)),
};

impl Story {
    /// An origin of node 1 that is open.
    pub(super) fn begins() -> Self {
        let mut story = Self {
            origin: Origin::new(Arc::new(Budget::default()), COMMIT_TIMEOUT, 100),
            machine: Machine::new(),
            // Far enough from the beginning of this process' time.
            now: Instant::now() + Duration::from_secs(1_000),
            at: 1_000,
            wire: Vec::new(),
            logged: 0,
            tickets: Vec::new(),
        };
        story.opens(1);
        story
    }

    pub(super) fn own(run: u64) -> OriginId {
        OriginId {
            node: NodeId(1),
            run: Run(run),
        }
    }

    /// The node wants to open an origin, and the leader does it.
    pub(super) fn opens(&mut self, run: u64) {
        self.origin.opening(Self::own(run));
        self.leads(LeaderCommand::OpenOrigin(Self::own(run)));
    }

    pub(super) fn leads(&mut self, command: LeaderCommand) {
        self.applies(Content::Leader(vec![command]));
    }

    /// A client arrives.
    pub(super) fn client(&mut self) -> Client {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let line = Line::new(Arc::new(Ear(heard.clone())));
        let id = self.origin.connect(line.clone()).expect("a session");
        Client { id, heard, line }
    }

    /// A client sends some commands in one go.
    pub(super) fn say(&mut self, client: &Client, calls: impl IntoIterator<Item = Call>) {
        let mut calls: Vec<Call> = calls.into_iter().collect();
        self.origin.submit(client.id, &mut calls, self.now);
        self.settles();
    }

    pub(super) fn half_closes(&mut self, client: &Client) {
        self.origin.half_closed(client.id, self.now);
        self.settles();
    }

    pub(super) fn hangs_up(&mut self, client: &Client) {
        self.origin.disconnect(client.id);
        self.settles();
    }

    /// Time passes, and nothing else.
    pub(super) fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.at += ms;
        self.origin.overdue(self.now);
        self.origin.rested(self.now);
        self.settles();
    }

    /// Batches go to the leader, as many as may be in flight.
    pub(super) fn hand(&mut self) -> usize {
        let before = self.wire.len();
        if let super::Phase::Open(origin) = self.origin.phase() {
            while let Some((_, bytes)) = self.origin.hand(origin) {
                self.wire.push(bytes);
            }
        }
        self.wire.len() - before
    }

    /// What the leader has comes into the log as one entry, and is applied.
    pub(super) fn commit(&mut self) {
        let batches = self
            .wire
            .drain(..)
            .map(|bytes| decode_batch(bytes).expect("a batch"))
            .collect::<Vec<_>>();
        self.logged += batches.iter().map(|batch| batch.items.len()).sum::<usize>();
        self.applies(Content::Batches(batches));
    }

    /// Everything that can go through the log goes through it.
    pub(super) fn run(&mut self) {
        while self.hand() > 0 || !self.wire.is_empty() {
            self.commit();
        }
        self.tick();
    }

    /// Cluster time moves in the log.
    pub(super) fn tick(&mut self) {
        while self
            .machine
            .next_due()
            .is_some_and(|due| due <= Timestamp(self.at))
        {
            self.leads(LeaderCommand::Tick);
        }
    }

    pub(super) fn applies(&mut self, content: Content) {
        let outcome = self.machine.apply(&Entry {
            at: Timestamp(self.at),
            content,
        });
        self.machine.check().expect("a sound machine");
        self.origin.applied(&outcome.events, &NoBodies, self.now);
        self.settles();
    }

    /// Reads are made from the machine as it is.
    pub(super) fn read(&mut self) {
        for ticket in std::mem::take(&mut self.tickets) {
            let answer = match &ticket.read {
                Read::Poll(tubes) => {
                    let super::Phase::Open(origin) = self.origin.phase() else {
                        continue;
                    };
                    let session = SessionId {
                        origin,
                        connection: ticket.connection,
                    };
                    if self.machine.would_reserve(tubes) || self.machine.holds_any(session) {
                        self.origin.poll_submitted(&ticket, self.now);
                        continue;
                    }
                    Answer::TimedOut
                }
                Read::Peek(job) => match self.machine.job(*job, Timestamp(self.at)) {
                    Some(view) => Answer::Found {
                        job: view.id,
                        body: Owed::at_hand(Bytes::new()),
                    },
                    None => Answer::NotFound,
                },
                Read::ListTubes => Answer::Tubes(self.machine.tubes().cloned().collect()),
                _ => Answer::NotFound,
            };
            self.origin.read_answered(&ticket, answer, self.now);
        }
        self.settles();
    }

    /// What follows from anything is done: lines are delivered, reads are kept for later.
    pub(super) fn settles(&mut self) {
        let effects = self.origin.take_effects();
        for line in effects.lines {
            line.deliver();
        }
        self.tickets.extend(effects.tickets);
    }
}

impl Client {
    /// What it has heard since it was last asked.
    pub(super) fn hears(&self) -> Vec<String> {
        std::mem::take(&mut self.heard.lock())
    }
}
