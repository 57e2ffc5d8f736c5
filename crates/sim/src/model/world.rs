use std::{
    collections::{BTreeSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use bytes::Bytes;
use trellis_node::model::{ModelMerger, ModelOrigin, Poll};
use trellis_queue::{Content, Entry, Event, LeaderCommand, Machine};
use trellis_types::{ConnectionId, NodeId, OriginId, Run, Timestamp};

use super::{
    promises::Promises,
    setup::{CLIENTS, Faults, LEAP_MS, NODES, Setup},
    shared::Shared,
};

/// Everything there is at one moment: nodes, streams, the log, clients.
///
/// Raft is one log: what is committed, and of each node a suffix that is not. Whoever is elected
/// keeps some prefix of somebody's suffix.
#[derive(Clone)]
pub struct World {
    pub(crate) nodes: [Node; NODES],
    pub(crate) term: u64,
    /// What is committed and not applied by every node.
    pub(crate) log: VecDeque<Arc<Committed>>,
    /// How many entries came before.
    pub(crate) trimmed: usize,
    /// The machine after all of it.
    pub(crate) tip: Arc<Machine>,
    pub(crate) promises: Arc<Promises>,
    pub(crate) left: Faults,
    /// How often time has leapt.
    pub(crate) leaps: u64,
    pub(crate) streams: u64,
}

/// An entry in the log for ever.
pub(crate) struct Committed {
    pub(crate) mark: u64,
    pub(crate) entry: Arc<Entry>,
    pub(crate) events: Vec<Event>,
    /// The machine that has applied it.
    pub(crate) machine: Arc<Machine>,
}

/// An entry that somebody has appended.
#[derive(Clone)]
pub(crate) struct Appended {
    pub(crate) term: u64,
    pub(crate) entry: Arc<Entry>,
    pub(crate) mark: u64,
}

#[derive(Clone)]
pub(crate) struct Node {
    /// `None` while the process is down.
    pub(crate) origin: Option<Shared>,
    pub(crate) run: u64,
    /// How many entries of the log it has applied, those that are trimmed included.
    pub(crate) applied: usize,
    pub(crate) machine: Arc<Machine>,
    pub(crate) suffix: VecDeque<Appended>,
    /// Its suffix contradicts what is committed; it leads and does not know yet.
    pub(crate) lost: bool,
    pub(crate) leads: Option<Lead>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) clients: [Client; CLIENTS],
    pub(crate) polls: Vec<Asked>,
    /// Milliseconds of its own clock.
    pub(crate) now: u64,
    /// Why its sessions may be given up: something happened that allows it.
    pub(crate) excused: bool,
    /// The origin that its clients' sessions are of.
    pub(crate) last_open: OriginId,
}

/// One term of office, from the election on.
#[derive(Clone)]
pub(crate) struct Lead {
    pub(crate) term: u64,
    /// All of the log before the term is applied: streams are served.
    pub(crate) office: bool,
    pub(crate) merger: ModelMerger,
    pub(crate) present: [bool; NODES],
    /// Origins that are to be told that an entry with their batches failed.
    pub(crate) doubt: BTreeSet<OriginId>,
}

/// A stream of batches from a node's origin to a leader.
#[derive(Clone)]
pub(crate) struct Stream {
    pub(crate) id: u64,
    pub(crate) leader: usize,
    pub(crate) term: u64,
    pub(crate) origin: OriginId,
    pub(crate) messages: VecDeque<(u64, Bytes)>,
    /// The origin still writes to it.
    pub(crate) written: bool,
    /// The leader still reads it.
    pub(crate) read: bool,
    /// What the origin doubted when it opened it.
    pub(crate) doubt: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) connection: Option<ConnectionId>,
    /// How much of its script it has said.
    pub(crate) said: usize,
    /// How much of that has no answer.
    pub(crate) unanswered: usize,
    pub(crate) half: bool,
    pub(crate) over: bool,
    /// It does not come back.
    pub(crate) gone: bool,
}

/// A poll that waits to be answered without the log.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) poll: Poll,
    /// How long the log was when it turned up.
    pub(crate) since: usize,
    /// The read index, when there is one.
    pub(crate) index: Option<usize>,
}

/// When the worlds of this process begin: moments count from here.
pub(crate) fn beginning() -> Instant {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    *BEGINNING.get_or_init(|| Instant::now() + Duration::from_secs(1_000))
}

pub(crate) fn node_id(node: usize) -> NodeId {
    NodeId(node as u64 + 1)
}

pub(crate) fn origin_id(node: usize, run: u64) -> OriginId {
    OriginId {
        node: node_id(node),
        run: Run(run),
    }
}

pub(crate) fn mark_of(entry: &Entry) -> u64 {
    let mut hash = DefaultHasher::new();
    format!("{entry:?}").hash(&mut hash);
    hash.finish()
}

impl World {
    /// Two nodes with open origins and streams; the first one leads.
    pub fn new(setup: &Setup) -> Self {
        let mut machine = Machine::new();
        let open = (0..NODES)
            .map(|node| LeaderCommand::OpenOrigin(origin_id(node, 1)))
            .collect();
        let outcome = machine.apply(&Entry {
            at: Timestamp(LEAP_MS),
            content: Content::Leader(open),
        });
        let machine = Arc::new(machine);
        let mut merger = ModelMerger::default();
        for node in 0..NODES {
            merger.open(origin_id(node, 1), node as u64);
        }
        let nodes = std::array::from_fn(|node| {
            let mut origin = ModelOrigin::new(beginning());
            origin.opening(origin_id(node, 1));
            origin.applied(&outcome.events, 0);
            origin.hand();
            Node {
                run: 1,
                applied: 0,
                machine: machine.clone(),
                suffix: VecDeque::new(),
                lost: false,
                leads: (node == 0).then(|| Lead {
                    term: 1,
                    office: true,
                    merger: merger.clone(),
                    present: [true; NODES],
                    doubt: BTreeSet::new(),
                }),
                streams: vec![Stream {
                    id: node as u64,
                    leader: 0,
                    term: 1,
                    origin: origin_id(node, 1),
                    messages: VecDeque::new(),
                    written: true,
                    read: true,
                    doubt: origin.doubt(),
                }],
                clients: Default::default(),
                polls: Vec::new(),
                now: 0,
                excused: false,
                last_open: origin_id(node, 1),
                origin: Some(Shared::new(origin)),
            }
        });
        Self {
            nodes,
            term: 1,
            log: VecDeque::new(),
            trimmed: 0,
            tip: machine,
            promises: Arc::default(),
            left: setup.faults,
            leaps: 1,
            streams: NODES as u64,
        }
    }

    /// How long the log is.
    pub(crate) fn length(&self) -> usize {
        self.trimmed + self.log.len()
    }

    /// Who leads in the newest term.
    pub(crate) fn leader(&self) -> Option<usize> {
        (0..NODES).find(|node| self.term_of(*node) == Some(self.term))
    }

    pub(crate) fn term_of(&self, node: usize) -> Option<u64> {
        self.nodes[node].leads.as_ref().map(|lead| lead.term)
    }

    /// The stream that a node's origin writes to.
    pub(crate) fn stream(&self, node: usize) -> Option<&Stream> {
        self.nodes[node]
            .streams
            .iter()
            .find(|stream| stream.written)
    }

    /// Whether the stream's leader still leads in its term.
    pub(crate) fn is_served(&self, stream: &Stream) -> bool {
        stream.read
            && self.nodes[stream.leader]
                .leads
                .as_ref()
                .is_some_and(|lead| lead.term == stream.term && lead.office)
    }

    /// The machine after so many entries of the log.
    pub(crate) fn machine_at(&self, length: usize) -> Arc<Machine> {
        match length.checked_sub(self.trimmed + 1) {
            Some(place) => match self.log.get(place) {
                Some(committed) => committed.machine.clone(),
                None => self.tip.clone(),
            },
            // All nodes are at least so far.
            None => self
                .nodes
                .iter()
                .find(|node| node.applied == length)
                .map_or(self.tip.clone(), |node| node.machine.clone()),
        }
    }

    /// Everything that decides what happens next, as one number.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        let hash = &mut hash;
        (self.term, self.leaps, self.left).hash(hash);
        self.tip.digest().hash(hash);
        for committed in &self.log {
            committed.mark.hash(hash);
        }
        self.promises.hash(hash);
        for node in &self.nodes {
            node.fingerprint(self, hash);
        }
        hash.finish()
    }
}

impl Node {
    fn fingerprint(&self, world: &World, hash: &mut DefaultHasher) {
        self.origin.is_some().hash(hash);
        if let Some(origin) = &self.origin {
            origin.mark().hash(hash);
        }
        (self.run, world.length() - self.applied, self.lost).hash(hash);
        (self.now, self.excused, &self.clients).hash(hash);
        self.machine.digest().hash(hash);
        for appended in &self.suffix {
            (appended.term, appended.mark).hash(hash);
        }
        self.suffix.len().hash(hash);
        if let Some(lead) = &self.leads {
            (lead.term, lead.office, lead.present, &lead.doubt).hash(hash);
            lead.merger.fingerprint(hash);
        }
        for stream in &self.streams {
            (stream.leader, stream.term, stream.origin).hash(hash);
            (stream.written, stream.read, &stream.messages).hash(hash);
            self.origin
                .as_ref()
                .map(|origin| origin.doubt() == stream.doubt)
                .hash(hash);
        }
        for asked in &self.polls {
            (asked.poll.key(), world.length() - asked.since).hash(hash);
            asked.index.map(|index| world.length() - index).hash(hash);
        }
    }
}
