//! A queue of three nodes on paper: one machine, clients over a slow network, deaths.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use bytes::Bytes;
use rand::{Rng, SeedableRng, rngs::StdRng};
use trellis_checker::{
    history::{
        Body, Bounds, Call, CloseSide, Demands, Header, MILLI, Nanos, NodeEvent, Record, Reply,
        SECOND, Stage, VERSION,
    },
    workload::{Profile, Script, Step, Workload},
};
use trellis_queue::{
    Answer, Batch, Command, Content, Entry, Event, Fate, Item, LeaderCommand, Machine, Verdict,
};
use trellis_types::{ConnectionId, JobId, NodeId, OriginId, Run, SessionId, Timestamp, TubeName};

/// How long a silent node keeps its sessions.
const LEASE: Nanos = 2 * SECOND;

/// What this queue does wrong, now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// Ready jobs disappear.
    Loses,
    /// Holds are given back while their holders live on.
    StealsHolds,
    /// Delayed jobs mature at once.
    HurriesDelays,
    /// Reads show the state of two seconds ago.
    ReadsOld,
    /// The cluster's time jumps ahead.
    JumpsAhead,
    /// A deleted job is there again after a restart.
    Resurrects,
    /// The best of a tube is not what is delivered.
    Unordered,
    /// Polls are told that nothing is ready.
    HidesJobs,
    /// A byte of a body changes.
    Corrupts,
    /// One node's copy differs.
    Diverges,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    Turn(usize),
    Arrive(u64),
    Answer(u64),
    SessionEnds(u64),
    Kill,
    Restart(usize),
    Expire(usize, u64),
    Misdeed,
    /// Time goes on although everybody waits.
    Beat,
}

pub(super) struct Client {
    pub(super) script: Script,
    pub(super) connection: u64,
    pub(super) node: usize,
    pub(super) asked: Option<u64>,
    pub(super) told: Option<Reply>,
}

pub(super) struct Node {
    pub(super) run: u64,
    pub(super) seq: u64,
    pub(super) alive: bool,
}

pub(super) struct Asked {
    connection: u64,
    client: usize,
    call: Call,
    answer: Option<Reply>,
    over: bool,
}

/// The queue and all that goes on around it.
pub(crate) struct Paper {
    pub(super) bug: Bug,
    pub(super) random: StdRng,
    pub(super) now: Nanos,
    pub(super) order: u64,
    pub(super) coming: BinaryHeap<Reverse<(Nanos, u64, Happening)>>,
    pub(super) machine: Machine,
    pub(super) old: Vec<(Nanos, Machine)>,
    pub(super) ahead: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) clients: Vec<Client>,
    pub(super) asked: HashMap<u64, Asked>,
    /// The question that a session's parked reserve belongs to.
    pub(super) parked: HashMap<SessionId, u64>,
    pub(super) sessions: HashMap<u64, SessionId>,
    pub(super) connections: u64,
    pub(super) bodies: HashMap<u64, Body>,
    pub(super) ends: Nanos,
    pub(super) tubes: Vec<TubeName>,
    pub(super) misdeeds: u32,
    pub(super) deleted: Vec<(JobId, TubeName)>,
    pub(super) records: Vec<Record>,
}

/// Plays a workload for so long and returns what was recorded.
pub(crate) fn play(
    seed: u64,
    profile: &Profile,
    seconds: u64,
    deaths: bool,
    bug: Bug,
) -> Vec<Record> {
    let workload = Workload::new(seed, profile.clone());
    let mut paper = Paper {
        bug,
        random: StdRng::seed_from_u64(seed ^ 0x5EED),
        now: SECOND,
        order: 0,
        coming: BinaryHeap::new(),
        machine: Machine::new(),
        old: Vec::new(),
        ahead: 0,
        nodes: (0..3)
            .map(|_| Node {
                run: 1,
                seq: 0,
                alive: true,
            })
            .collect(),
        clients: Vec::new(),
        asked: HashMap::new(),
        parked: HashMap::new(),
        sessions: HashMap::new(),
        connections: 0,
        bodies: HashMap::new(),
        ends: SECOND + seconds * SECOND,
        tubes: profile.all_tubes(),
        misdeeds: 0,
        deleted: Vec::new(),
        records: Vec::new(),
    };
    paper.records.push(Record::Header(Header {
        version: VERSION,
        instrument: "paper".to_owned(),
        seed,
        commit: String::new(),
        profile: profile.name.clone(),
        bounds: Bounds {
            early_ms: 2,
            late_ms: 100,
            lease_ms: 2_000,
            firm_waits: true,
        },
        demands: Demands {
            acknowledged: 100,
            faults: u64::from(deaths),
            finals: 1,
        },
        local_reads: false,
    }));
    paper.lead(
        (0..3)
            .map(|node| LeaderCommand::OpenOrigin(paper.origin(node)))
            .collect(),
    );
    for client in 0..workload.clients() {
        let at = paper.clients.len();
        paper.clients.push(Client {
            script: workload.script(client),
            connection: 0,
            node: at % 3,
            asked: None,
            told: None,
        });
        paper.connect(at);
        paper.soon(10, Happening::Turn(at));
    }
    paper.at(SECOND, Happening::Beat);
    for node in 0..3 {
        paper.refer(node);
    }
    if deaths {
        paper.soon(3_000, Happening::Kill);
    }
    if bug != Bug::None {
        paper.soon(2_000, Happening::Misdeed);
    }
    paper.run();
    paper.records
}

impl Paper {
    fn run(&mut self) {
        while let Some(Reverse((at, _, what))) = self.coming.pop() {
            // Due events happen at their own moments, a tick later.
            while let Some(due) = self.machine.next_due() {
                let due = self.real(due).max(self.now) + MILLI;
                if due > at {
                    break;
                }
                self.now = due;
                self.lead(vec![LeaderCommand::Tick]);
            }
            self.now = self.now.max(at);
            if self.bug == Bug::ReadsOld {
                self.old.push((self.now, self.machine.clone()));
                self.old.retain(|(then, _)| then + 2 * SECOND > at);
            }
            self.happen(what);
        }
        self.finish();
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Turn(client) => self.turn(client),
            Happening::Arrive(op) => self.arrive(op),
            Happening::Answer(op) => self.answer(op),
            Happening::SessionEnds(connection) => {
                if let Some(session) = self.sessions.get(&connection).copied() {
                    self.submit(session, Command::CloseSession, None);
                }
            }
            Happening::Kill => self.kill(),
            Happening::Restart(node) => {
                self.nodes[node].alive = true;
                self.nodes[node].run += 1;
                self.nodes[node].seq = 0;
                self.note(node, NodeEvent::Started);
                self.lead(vec![LeaderCommand::OpenOrigin(self.origin(node))]);
                self.refer(node);
            }
            Happening::Expire(node, run) => {
                let origin = OriginId {
                    node: NodeId(node as u64 + 1),
                    run: Run(run),
                };
                self.lead(vec![LeaderCommand::ExpireOrigin(origin)]);
            }
            Happening::Beat => {
                if self.now < self.ends + 5 * SECOND {
                    self.at(self.now + 50 * MILLI, Happening::Beat);
                }
            }
            Happening::Misdeed => {
                self.misdeed();
                if self.now < self.ends {
                    self.soon(1_500, Happening::Misdeed);
                }
            }
        }
    }

    fn soon(&mut self, within_ms: u64, what: Happening) {
        let wait = self.random.random_range(0..=within_ms * MILLI);
        self.at(self.now + wait, what);
    }

    fn at(&mut self, t: Nanos, what: Happening) {
        self.order += 1;
        self.coming.push(Reverse((t, self.order, what)));
    }

    pub(super) fn stamp(&self) -> Timestamp {
        Timestamp(1_000_000 + self.now / MILLI + self.ahead)
    }

    fn real(&self, at: Timestamp) -> Nanos {
        at.0.saturating_sub(1_000_000 + self.ahead) * MILLI
    }

    pub(super) fn origin(&self, node: usize) -> OriginId {
        OriginId {
            node: NodeId(node as u64 + 1),
            run: Run(self.nodes[node].run),
        }
    }

    fn note(&mut self, node: usize, event: NodeEvent) {
        let node = format!("n{node}");
        self.records.push(Record::Node {
            t: self.now,
            node,
            event,
        });
    }

    /// Somebody at this node watches all tubes, so that none of them goes while it is empty.
    fn refer(&mut self, node: usize) {
        let keeper = SessionId {
            origin: self.origin(node),
            connection: ConnectionId(0),
        };
        for tube in self.tubes.clone() {
            self.submit(keeper, Command::TubeRef { tube, set: true }, None);
        }
    }

    fn connect(&mut self, client: usize) {
        let mut node = self.clients[client].node;
        while !self.nodes[node].alive {
            node = (node + 1) % 3;
        }
        self.connections += 1;
        let connection = self.connections;
        self.sessions.insert(
            connection,
            SessionId {
                origin: self.origin(node),
                connection: ConnectionId(connection),
            },
        );
        self.clients[client].connection = connection;
        self.clients[client].node = node;
        self.records.push(Record::Opened {
            t: self.now,
            connection,
            client: client as u32,
            node: format!("n{node}"),
        });
    }

    fn turn(&mut self, at: usize) {
        let over = self.now >= self.ends;
        let client = &mut self.clients[at];
        let told = client.told.take();
        let step = client.script.next(told.as_ref());
        let connection = client.connection;
        if over {
            self.close(at, connection);
            return;
        }
        match step {
            Step::Rest(ms) => self.at(self.now + u64::from(ms) * MILLI, Happening::Turn(at)),
            Step::Reconnect => {
                self.close(at, connection);
                self.clients[at].node = self.random.random_range(0..3);
                self.connect(at);
                self.at(self.now, Happening::Turn(at));
            }
            Step::Ask(call) => {
                let op = self.order;
                self.records.push(Record::Invoked {
                    t: self.now,
                    op,
                    connection,
                    call: call.clone(),
                });
                self.clients[at].asked = Some(op);
                self.asked.insert(
                    op,
                    Asked {
                        connection,
                        client: at,
                        call,
                        answer: None,
                        over: false,
                    },
                );
                self.soon(8, Happening::Arrive(op));
            }
        }
    }

    fn close(&mut self, _client: usize, connection: u64) {
        self.records.push(Record::Closed {
            t: self.now,
            connection,
            by: CloseSide::Client,
        });
        self.soon(5, Happening::SessionEnds(connection));
    }

    /// The question reaches the queue; for a client whose node has died it may still.
    fn arrive(&mut self, op: u64) {
        let Some(asked) = self.asked.get(&op) else {
            return;
        };
        let session = self.sessions[&asked.connection];
        let call = asked.call.clone();
        let command = match call.clone() {
            Call::Put {
                tube,
                priority,
                delay,
                ttr,
                body,
            } => {
                let key = body.key.clone().unwrap_or_default();
                let body = Bytes::from(Body::content(&key, body.bytes));
                Command::Put {
                    tube,
                    priority,
                    delay,
                    ttr,
                    body,
                }
            }
            Call::Reserve { tubes, timeout } => Command::Reserve { tubes, timeout },
            Call::ReserveJob { job } => Command::ReserveJob { job },
            Call::Delete { job } => Command::Delete { job },
            Call::Release {
                job,
                priority,
                delay,
            } => Command::Release {
                job,
                priority,
                delay,
            },
            Call::Bury { job, priority } => Command::Bury { job, priority },
            Call::Touch { job } => Command::Touch { job },
            Call::Kick { tube, bound } => Command::Kick { tube, bound },
            Call::KickJob { job } => Command::KickJob { job },
            Call::PauseTube { tube, delay } => Command::PauseTube { tube, delay },
            read => {
                let reply = self.look(&read);
                self.reply(op, reply);
                return;
            }
        };
        if let Command::Delete { job } = &command
            && let Some(view) = self.machine.job(*job, self.stamp())
        {
            self.deleted.push((*job, view.tube));
        }
        if self.bug == Bug::HidesJobs
            && self.random.random_range(0..4) == 0
            && matches!(
                call,
                Call::Reserve {
                    timeout: Some(trellis_types::Seconds(0)),
                    ..
                }
            )
        {
            self.reply(op, Reply::TimedOut);
            return;
        }
        if self.bug == Bug::Unordered
            && let Command::Reserve { tubes, .. } = &command
            && let [tube] = tubes.as_slice()
            && let Some(job) = self.worse_than_the_best(tube)
        {
            self.submit(session, Command::ReserveJob { job }, Some(op));
            return;
        }
        self.submit(session, command, Some(op));
    }

    pub(super) fn submit(&mut self, session: SessionId, command: Command, op: Option<u64>) {
        let node = session.origin.node.0 as usize - 1;
        if session.origin != self.origin(node) {
            return;
        }
        self.nodes[node].seq += 1;
        let batch = Batch {
            origin: session.origin,
            seq: self.nodes[node].seq,
            items: vec![Item {
                connection: session.connection,
                command,
            }],
        };
        let events = self.apply(Content::Batches(vec![batch]));
        for event in events {
            match event {
                Event::Batch {
                    fate: Fate::Applied(verdicts),
                    ..
                } => {
                    for verdict in verdicts {
                        match (verdict, op) {
                            (Verdict::Answer(answer), Some(op)) => self.say(op, answer),
                            (Verdict::Parked, Some(op)) => {
                                self.parked.insert(session, op);
                            }
                            _ => {}
                        }
                    }
                }
                Event::Deferred { session, answer } => self.defer(session, answer),
                _ => {}
            }
        }
    }

    pub(super) fn lead(&mut self, commands: Vec<LeaderCommand>) {
        for event in self.apply(Content::Leader(commands)) {
            if let Event::Deferred { session, answer } = event {
                self.defer(session, answer);
            }
        }
    }

    fn apply(&mut self, content: Content) -> Vec<Event> {
        let entry = Entry {
            at: self.stamp(),
            content,
        };
        self.machine.apply(&entry).events
    }

    fn defer(&mut self, session: SessionId, answer: Answer) {
        if let Some(op) = self.parked.remove(&session) {
            self.say(op, answer);
        }
    }

    fn say(&mut self, op: u64, answer: Answer) {
        let body = |paper: &Self, job: JobId| paper.bodies[&job.0].clone();
        let reply = match answer {
            Answer::Inserted(job) => {
                if let Call::Put { body, .. } = &self.asked[&op].call {
                    self.bodies.insert(job.0, body.clone());
                }
                Reply::Inserted { job }
            }
            Answer::Reserved { job, .. } => {
                let mut body = body(self, job);
                if self.bug == Bug::Corrupts && self.random.random_range(0..50) == 0 {
                    body.crc ^= 1;
                }
                Reply::Reserved { job, body }
            }
            Answer::DeadlineSoon => Reply::DeadlineSoon,
            Answer::TimedOut => Reply::TimedOut,
            Answer::Deleted => Reply::Deleted,
            Answer::Released => Reply::Released,
            Answer::Buried => Reply::Buried,
            Answer::Touched => Reply::Touched,
            Answer::Kicked(count) | Answer::KickedPortion { count, .. } => Reply::Kicked { count },
            Answer::KickedJob => Reply::KickedJob,
            Answer::Paused => Reply::Paused,
            Answer::NotFound => Reply::NotFound,
            Answer::OutOfMemory => Reply::OutOfMemory,
            Answer::Referenced | Answer::Undecodable => return,
        };
        self.reply(op, reply);
    }

    fn reply(&mut self, op: u64, reply: Reply) {
        if let Some(asked) = self.asked.get_mut(&op) {
            asked.answer = Some(reply);
        }
        self.soon(8, Happening::Answer(op));
    }

    fn answer(&mut self, op: u64) {
        let Some(asked) = self.asked.get_mut(&op) else {
            return;
        };
        if asked.over {
            return;
        }
        asked.over = true;
        let client = asked.client;
        let Some(reply) = asked.answer.take() else {
            return;
        };
        self.records.push(Record::Replied {
            t: self.now,
            op,
            reply: reply.clone(),
        });
        self.clients[client].asked = None;
        self.clients[client].told = Some(reply);
        self.at(self.now, Happening::Turn(client));
    }

    /// One node dies: its clients lose their connections, its sessions linger for the lease.
    fn kill(&mut self) {
        if self.now >= self.ends {
            return;
        }
        let node = self.random.random_range(0..3);
        let restart = self.random.random_range(200..5_000);
        self.soon(6_000, Happening::Kill);
        if !self.nodes[node].alive || self.nodes.iter().filter(|node| node.alive).count() < 2 {
            return;
        }
        self.nodes[node].alive = false;
        self.note(node, NodeEvent::Killed);
        self.records.push(Record::Nemesis {
            t: self.now,
            fault: 3,
            what: "kill -9".to_owned(),
            nodes: vec![format!("n{node}")],
            stage: Stage::Once,
            effect: true,
        });
        self.at(
            self.now + LEASE,
            Happening::Expire(node, self.nodes[node].run),
        );
        self.at(self.now + restart * MILLI, Happening::Restart(node));
        for at in 0..self.clients.len() {
            if self.clients[at].node != node {
                continue;
            }
            let connection = self.clients[at].connection;
            if let Some(op) = self.clients[at].asked.take() {
                let asked = self.asked.get_mut(&op).expect("it was asked");
                asked.over = true;
                // What is still on its way arrives or does not.
                if asked.answer.is_none() && self.random.random_range(0..2) == 0 {
                    self.asked.remove(&op);
                }
                self.records.push(Record::Unknown {
                    t: self.now,
                    op,
                    why: "closed".to_owned(),
                });
            }
            self.records.push(Record::Closed {
                t: self.now,
                connection,
                by: CloseSide::Server,
            });
            self.clients[at].script.lost();
            self.clients[at].told = None;
            self.clients[at].node = (node + 1) % 3;
            self.connect(at);
            // Turns that were on their way are for a rest; one more does no harm to anybody but
            // would ask twice, so the rest is left to be the turn.
            if !self
                .coming
                .iter()
                .any(|Reverse((_, _, what))| *what == Happening::Turn(at))
            {
                self.soon(50, Happening::Turn(at));
            }
        }
    }
}
