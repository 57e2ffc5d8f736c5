use std::collections::{BTreeMap, HashMap};

use trellis_types::Seconds;

use crate::history::{
    Call, CloseSide, FinalState, Header, Nanos, NodeEvent, Record, Reply, SECOND, Stage, VERSION,
};
use crate::standstill::Standstill;

/// A whole history, its lines put together.
#[derive(Debug)]
pub struct Run {
    /// What it is about.
    pub header: Header,
    /// By the moment of their questions.
    pub ops: Vec<Operation>,
    /// By number.
    pub connections: HashMap<u64, Connection>,
    /// Times in which something was broken, or was recovering from it.
    faults: Vec<Fault>,
    /// What became of the nodes' processes, by time.
    pub node_events: Vec<(Nanos, String, NodeEvent)>,
    /// Where nodes stood, by time.
    pub samples: Vec<Sample>,
    /// The last phase, if there was one.
    pub liveness: Option<Liveness>,
    /// What nodes held at the end.
    pub finals: Vec<FinalState>,
    /// Faults that were seen to take effect.
    pub faults_in_effect: u64,
    standstill: Standstill,
}

/// A question and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Its number.
    pub op: u64,
    /// Its connection's number.
    pub connection: u64,
    /// When it was asked.
    pub from: Nanos,
    /// When it was answered or given up.
    pub heard: Nanos,
    /// What was asked.
    pub call: Call,
    /// What is known of it.
    pub outcome: Outcome,
}

/// What is known of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was answered.
    Said(Reply),
    /// It may have happened, may happen later, or never.
    Unknown(String),
}

/// A connection from beginning to end.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Whose.
    pub client: u32,
    /// To which node.
    pub node: String,
    /// Since when.
    pub opened: Nanos,
    /// When and by whom it was closed.
    pub closed: Option<(Nanos, CloseSide)>,
    /// Its session cannot have ended before this moment.
    pub alive_until: Nanos,
}

/// Where a node stood.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // as in the record
pub struct Sample {
    pub t: Nanos,
    pub node: String,
    pub applied: u64,
    pub now: Option<u64>,
    pub digest: Option<String>,
    pub digest_at: Option<u64>,
}

/// The phase in which everything was to drain.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // as in the record
pub struct Liveness {
    pub t: Nanos,
    pub ended: Nanos,
    pub drained: bool,
    pub left: String,
}

#[derive(Clone, Debug)]
struct Fault {
    from: Nanos,
    to: Nanos,
}

/// Lines that make no history.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHistory {
    /// Nothing says what it is about.
    #[error("the first record is no header")]
    NoHeader,
    /// Another format.
    #[error("it has version {found}; this checker reads {VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
    /// A second header.
    #[error("there are two headers")]
    TwoHeaders,
    /// An answer to nothing.
    #[error("operation {0} ends without having begun")]
    NoQuestion(u64),
    /// A number is used twice.
    #[error("operation {0} begins or ends twice")]
    Twice(u64),
    /// A question on no connection.
    #[error("operation {op} is on connection {connection}, which was never opened")]
    NoConnection {
        /// Which.
        op: u64,
        /// On which.
        connection: u64,
    },
    /// A clock ran back.
    #[error("operation {0} ends before it begins")]
    Backwards(u64),
}

impl Operation {
    /// The answer, if it tells what happened. `INTERNAL_ERROR` does not: what was handed over may
    /// still be carried out.
    pub fn answer(&self) -> Option<&Reply> {
        match &self.outcome {
            Outcome::Said(Reply::InternalError) | Outcome::Unknown(_) => None,
            Outcome::Said(reply) => Some(reply),
        }
    }

    /// The last moment at which it can have happened.
    pub fn to(&self) -> Nanos {
        if self.answer().is_some() {
            self.heard
        } else {
            Nanos::MAX
        }
    }

    /// Whether it was acknowledged: answered, and not with a refusal.
    pub fn is_acknowledged(&self) -> bool {
        self.answer().is_some_and(|reply| !reply.is_refusal())
    }
}

impl Run {
    /// Puts records together.
    ///
    /// # Errors
    ///
    /// [`BadHistory`] names the first record that does not fit.
    pub fn assemble(records: impl IntoIterator<Item = Record>) -> Result<Self, BadHistory> {
        let mut records = records.into_iter();
        let Some(Record::Header(header)) = records.next() else {
            return Err(BadHistory::NoHeader);
        };
        if header.version != VERSION {
            return Err(BadHistory::Version {
                found: header.version,
            });
        }
        let mut run = Self {
            header,
            ops: Vec::new(),
            connections: HashMap::new(),
            faults: Vec::new(),
            node_events: Vec::new(),
            samples: Vec::new(),
            liveness: None,
            finals: Vec::new(),
            faults_in_effect: 0,
            standstill: Standstill::default(),
        };
        let mut open: HashMap<u64, Option<usize>> = HashMap::new();
        let mut begun: BTreeMap<(u32, Vec<String>), Nanos> = BTreeMap::new();
        let mut down: BTreeMap<String, Nanos> = BTreeMap::new();
        for record in records {
            match record {
                Record::Header(_) => return Err(BadHistory::TwoHeaders),
                Record::Opened {
                    t,
                    connection,
                    client,
                    node,
                } => {
                    let opened = Connection {
                        client,
                        node,
                        opened: t,
                        closed: None,
                        alive_until: 0,
                    };
                    run.connections.insert(connection, opened);
                }
                Record::Closed { t, connection, by } => {
                    if let Some(connection) = run.connections.get_mut(&connection) {
                        connection.closed.get_or_insert((t, by));
                    }
                }
                Record::Invoked {
                    t,
                    op,
                    connection,
                    call,
                } => {
                    if !run.connections.contains_key(&connection) {
                        return Err(BadHistory::NoConnection { op, connection });
                    }
                    if open.insert(op, Some(run.ops.len())).is_some() {
                        return Err(BadHistory::Twice(op));
                    }
                    run.ops.push(Operation {
                        op,
                        connection,
                        from: t,
                        heard: Nanos::MAX,
                        call,
                        outcome: Outcome::Unknown("the history ends".to_owned()),
                    });
                }
                Record::Replied { t, op, reply } => {
                    run.end(&mut open, op, t, Outcome::Said(reply))?;
                }
                Record::Unknown { t, op, why } => {
                    run.end(&mut open, op, t, Outcome::Unknown(why))?;
                }
                Record::Nemesis {
                    t,
                    fault,
                    nodes,
                    stage,
                    effect,
                    ..
                } => {
                    run.faults_in_effect += u64::from(effect && stage != Stage::End);
                    match stage {
                        Stage::Begin => {
                            begun.insert((fault, nodes), t);
                        }
                        Stage::End => {
                            let from = begun.remove(&(fault, nodes)).unwrap_or(0);
                            run.faults.push(Fault { from, to: t });
                        }
                        Stage::Once => run.faults.push(Fault { from: t, to: t }),
                    }
                }
                Record::Node { t, node, event } => {
                    match event {
                        NodeEvent::Started => {
                            if let Some(from) = down.remove(&node) {
                                run.faults.push(Fault { from, to: t });
                            }
                        }
                        NodeEvent::Killed | NodeEvent::DiskFailed => {
                            down.entry(node.clone()).or_insert(t);
                        }
                    }
                    run.node_events.push((t, node, event));
                }
                Record::Sample {
                    t,
                    node,
                    applied,
                    now,
                    digest,
                    digest_at,
                } => run.samples.push(Sample {
                    t,
                    node,
                    applied,
                    now: now.map(|now| now.0),
                    digest,
                    digest_at,
                }),
                Record::Liveness {
                    t,
                    ended,
                    drained,
                    left,
                } => {
                    run.liveness = Some(Liveness {
                        t,
                        ended,
                        drained,
                        left,
                    });
                }
                Record::Final(state) => run.finals.push(state),
            }
        }
        let unended = begun.into_values().chain(down.into_values());
        run.faults.extend(unended.map(|from| Fault {
            from,
            to: Nanos::MAX,
        }));
        run.ops.sort_by_key(|op| (op.from, op.op));
        run.node_events.sort_by_key(|(t, _, _)| *t);
        run.samples.sort_by_key(|sample| sample.t);
        run.prove_lives();
        run.standstill = Standstill::new(&run.ops, &run.connections);
        Ok(run)
    }

    fn end(
        &mut self,
        open: &mut HashMap<u64, Option<usize>>,
        op: u64,
        t: Nanos,
        outcome: Outcome,
    ) -> Result<(), BadHistory> {
        let at = open.get_mut(&op).ok_or(BadHistory::NoQuestion(op))?;
        let at = at.take().ok_or(BadHistory::Twice(op))?;
        let operation = &mut self.ops[at];
        if t < operation.from {
            return Err(BadHistory::Backwards(op));
        }
        operation.heard = t;
        operation.outcome = outcome;
        Ok(())
    }

    /// A session lives at least until the last command of it that went through the log. Without any
    /// fault around it also lives until its client closes.
    fn prove_lives(&mut self) {
        for op in &self.ops {
            if op.is_acknowledged()
                && !op.call.may_bypass_log()
                && let Some(connection) = self.connections.get_mut(&op.connection)
            {
                connection.alive_until = connection.alive_until.max(op.from);
            }
        }
        let lease = self.lease();
        for connection in self.connections.values_mut() {
            let open_until = match connection.closed {
                Some((closed, CloseSide::Client)) => closed,
                Some(_) => continue,
                None => Nanos::MAX,
            };
            if is_quiet(&self.faults, lease, connection.opened, open_until) {
                connection.alive_until = open_until;
            }
        }
    }

    fn lease(&self) -> Nanos {
        self.header.bounds.lease_ms.saturating_mul(1_000_000)
    }

    /// Whether nothing was broken in this time, nor could still be felt in it.
    pub fn is_quiet(&self, from: Nanos, to: Nanos) -> bool {
        is_quiet(&self.faults, self.lease(), from, to)
    }

    /// When the log stood still.
    pub(crate) fn standstill(&self) -> &Standstill {
        &self.standstill
    }

    /// Whether a `TIMED_OUT` to this reserve says that nothing was ready. A wait of a node that was
    /// away ends beside a ready job; a poll never does.
    pub fn is_firm(&self, op: &Operation) -> bool {
        let poll = matches!(
            op.call,
            Call::Reserve {
                timeout: Some(Seconds(0)),
                ..
            }
        );
        poll || (self.header.bounds.firm_waits && self.is_quiet(op.from, op.heard))
    }

    /// Client and node of an operation, for people.
    pub fn whose(&self, op: &Operation) -> (u32, &str) {
        self.connections
            .get(&op.connection)
            .map_or((0, "?"), |connection| {
                (connection.client, connection.node.as_str())
            })
    }

    /// The moment of the first question: where people's times start.
    pub fn start(&self) -> Nanos {
        self.ops.first().map_or(0, |op| op.from)
    }

    /// Operations that were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.ops.iter().filter(|op| op.is_acknowledged()).count() as u64
    }
}

fn is_quiet(faults: &[Fault], lease: Nanos, from: Nanos, to: Nanos) -> bool {
    // After a fault a lease must run out and a leader be found.
    let felt = lease.saturating_add(5 * SECOND);
    faults
        .iter()
        .all(|fault| fault.to.saturating_add(felt) < from || fault.from > to)
}
