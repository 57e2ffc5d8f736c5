//! A cluster in one process: words for the stories in the files beside this folder.

#![allow(dead_code, reason = "every story uses some of the words")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};
use trellis_consensus::{
    Consensus, ConsensusSettings, Listener, Member, Membership, Payload, Position, ProposeError,
    Receipt, Role, Transport,
    memory::{LocalNetwork, MemoryLog, MemoryState},
};
use trellis_queue::{Batch, Command, Item, LeaderCommand, Machine, Outcome};
use trellis_rpc::queue::{encode_batch, encode_leader};
use trellis_types::{ConnectionId, NodeId, OriginId, Priority, Run, Seconds, Timestamp, TubeName};

/// Nothing in a test takes longer, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `look` finds what it looks for; tells what it saw last when patience ends.
pub(crate) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) if Instant::now() > end => panic!("no {what}; last seen: {seen}"),
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    }
}

/// What a listener has heard.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) applied: Vec<(Position, Outcome)>,
    pub(crate) memberships: Vec<Membership>,
    pub(crate) replaced: Vec<Option<Position>>,
    pub(crate) rounds: usize,
}

#[derive(Clone, Default)]
pub(crate) struct Ear(pub(crate) Arc<Mutex<Heard>>);

impl Listener for Ear {
    fn applied(&mut self, position: Position, _: Timestamp, outcome: Outcome, _: &Machine) {
        self.0.lock().applied.push((position, outcome));
    }

    fn membership(&mut self, membership: &Membership) {
        self.0.lock().memberships.push(membership.clone());
    }

    fn replaced(&mut self, _: &Machine, position: Option<Position>) {
        self.0.lock().replaced.push(position);
    }

    fn round_over(&mut self) {
        self.0.lock().rounds += 1;
    }
}

pub(crate) struct Node {
    pub(crate) consensus: Consensus,
    pub(crate) log: MemoryLog,
    pub(crate) state: MemoryState,
    pub(crate) ear: Ear,
}

impl Node {
    pub(crate) fn digest(&self) -> u64 {
        self.consensus.with_machine(Machine::digest)
    }

    pub(crate) fn applied(&self) -> u64 {
        *self.consensus.applied().borrow()
    }
}

pub(crate) struct Cluster {
    pub(crate) network: LocalNetwork,
    pub(crate) nodes: BTreeMap<u64, Node>,
    next_seq: u64,
}

pub(crate) fn member(id: u64) -> Member {
    Member {
        id: NodeId(id),
        name: format!("trellis-{id}"),
        address: format!("node-{id}:1"),
    }
}

pub(crate) async fn build(
    id: u64,
    log: MemoryLog,
    state: MemoryState,
    transport: Arc<dyn Transport>,
) -> Node {
    let ear = Ear::default();
    let consensus = Consensus::build(
        ConsensusSettings::default(),
        NodeId(id),
        log.clone(),
        Arc::new(state.clone()),
        transport,
        Box::new(ear.clone()),
    )
    .await
    .expect("a sound log and state");
    Node {
        consensus,
        log,
        state,
        ear,
    }
}

impl Cluster {
    /// Nodes 1 to `count`, formed and running.
    pub(crate) async fn of(count: u64) -> Self {
        let mut cluster = Self::empty();
        for id in 1..=count {
            cluster
                .start(id, MemoryLog::new(), MemoryState::new())
                .await;
        }
        let members = (1..=count).map(member).collect();
        cluster
            .node(1)
            .consensus
            .initialize(members)
            .await
            .expect("an empty log");
        cluster
    }

    pub(crate) fn empty() -> Self {
        Self {
            network: LocalNetwork::new(),
            nodes: BTreeMap::new(),
            next_seq: 1,
        }
    }

    pub(crate) async fn start(&mut self, id: u64, log: MemoryLog, state: MemoryState) {
        let node = build(id, log, state, self.network.transport(NodeId(id))).await;
        node.consensus.run();
        self.network.attach(NodeId(id), node.consensus.front());
        self.nodes.insert(id, node);
    }

    pub(crate) fn node(&self, id: u64) -> &Node {
        &self.nodes[&id]
    }

    /// The process ends in good order.
    pub(crate) async fn stop(&mut self, id: u64) {
        self.network.detach(NodeId(id));
        if let Some(node) = self.nodes.remove(&id) {
            node.consensus.shutdown().await;
        }
    }

    /// The power of `id` goes and comes back.
    pub(crate) async fn crash(&mut self, id: u64) {
        // From this moment on nobody hears it.
        self.network.detach(NodeId(id));
        let (log, state) = (self.node(id).log.crash(), self.node(id).state.crash());
        self.stop(id).await;
        self.start(id, log, state).await;
    }

    /// Who leads in the newest term, once a majority acknowledges it.
    pub(crate) async fn leader(&self) -> u64 {
        self.leader_other_than(&[]).await
    }

    pub(crate) async fn leader_other_than(&self, not: &[u64]) -> u64 {
        eventually("leader", || {
            let roles = self.roles();
            roles
                .iter()
                .filter(|(id, _)| !not.contains(id))
                .filter_map(|(id, role)| Some((role.leads()?, *id)))
                .max()
                .filter(|(_, id)| self.node(*id).consensus.quorum_ack_age().is_some())
                .map(|(_, id)| id)
                .ok_or_else(|| format!("{roles:?}"))
        })
        .await
    }

    pub(crate) fn roles(&self) -> BTreeMap<u64, Role> {
        self.nodes
            .iter()
            .map(|(id, node)| (*id, *node.consensus.role().borrow()))
            .collect()
    }

    /// Has `payload` applied by whoever leads, and tells where. Whose fate is unknown is proposed
    /// again: the machine knows a batch that it has seen.
    pub(crate) async fn propose(&self, payload: Payload) -> u64 {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(
                Instant::now() < end,
                "nobody takes it; roles: {:?}",
                self.roles()
            );
            let leader = self.node(self.leader().await);
            let Some(term) = leader.consensus.role().borrow().leads() else {
                continue;
            };
            match leader.consensus.propose(term, payload.clone()).await {
                Ok(receipt) => match self.fate(receipt).await {
                    Ok(index) => return index,
                    Err(ProposeError::NotLeader { .. } | ProposeError::Unknown) => {
                        sleep(Duration::from_millis(10)).await;
                    }
                    Err(error) => panic!("{error}"),
                },
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn fate(&self, receipt: Receipt) -> Result<u64, ProposeError> {
        let fate = timeout(PATIENCE, receipt).await;
        fate.unwrap_or_else(|_| panic!("no fate; roles: {:?}", self.roles()))
    }

    pub(crate) async fn open_origin(&mut self) {
        let open = encode_leader(&LeaderCommand::OpenOrigin(origin()));
        self.propose(Payload {
            at: Timestamp(1),
            leader: vec![open],
            batches: vec![],
        })
        .await;
    }

    /// Puts `count` jobs, each in an entry of its own.
    pub(crate) async fn put(&mut self, count: u64) -> u64 {
        let mut index = 0;
        for _ in 0..count {
            index = self.propose(puts(self.next_seq, 1, b"body")).await;
            self.next_seq += 1;
        }
        index
    }

    /// Waits until all (of `ids`) hold the same state, at or after `index`.
    pub(crate) async fn agree(&self, index: u64) {
        eventually("agreement", || {
            let seen: Vec<_> = self
                .nodes
                .iter()
                .map(|(id, node)| (*id, node.applied(), node.digest()))
                .collect();
            let digests: BTreeSet<_> = seen.iter().map(|(_, _, digest)| *digest).collect();
            let reached = seen.iter().all(|(_, applied, _)| *applied >= index);
            if reached && digests.len() == 1 {
                return Ok(());
            }
            Err(format!(
                "(node, applied, digest): {seen:?}; roles {:?}",
                self.roles()
            ))
        })
        .await;
    }

    pub(crate) async fn shutdown(&mut self) {
        self.network.mend();
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.stop(id).await;
        }
    }
}

pub(crate) fn origin() -> OriginId {
    OriginId {
        node: NodeId(1),
        run: Run(1),
    }
}

/// One batch of `count` puts.
pub(crate) fn puts(seq: u64, count: u64, body: &'static [u8]) -> Payload {
    let put = |connection| Item {
        connection: ConnectionId(connection),
        command: Command::Put {
            tube: TubeName::default_tube(),
            priority: Priority(0),
            delay: Seconds(0),
            ttr: Seconds(60),
            body: Bytes::from_static(body),
        },
    };
    let batch = Batch {
        origin: origin(),
        seq,
        items: (1..=count).map(put).collect(),
    };
    Payload {
        at: Timestamp(seq),
        batches: vec![encode_batch(&batch)],
        leader: vec![],
    }
}
