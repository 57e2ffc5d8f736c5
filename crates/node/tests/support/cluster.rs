//! A cluster of cores in one process: Raft, log, state and network in memory, and words for the
//! stories in the files beside this folder.

#![allow(unreachable_pub, reason = "compiled into each file of stories")]
#![allow(dead_code, reason = "every story uses some of the words")]

#[path = "client.rs"]
mod client;
#[path = "wires.rs"]
mod wires;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};
use trellis_consensus::{
    Consensus, ConsensusSettings, Member, StateStore,
    memory::{LocalNetwork, MemoryLog, MemoryState},
};
use trellis_node::{Core, CoreParts, DoorState, NodeSettings};
use trellis_queue::Machine;
use trellis_types::{NodeId, Run};

#[allow(unused_imports, reason = "every story uses some of the words")]
pub use client::{Client, POLL, RESERVE, delete, put, put_for, tube};
use wires::Wires;

/// Nothing in a test takes longer, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `look` finds what it looks for; tells what it saw last when patience ends.
pub async fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) if Instant::now() > end => panic!("no {what}; last seen: {seen}"),
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    }
}

pub struct TestNode {
    pub core: Core,
    pub consensus: Consensus,
    pub log: MemoryLog,
    state: MemoryState,
    runs: Arc<AtomicU64>,
}

pub struct Cluster {
    pub raft: LocalNetwork,
    pub wires: Wires,
    pub nodes: BTreeMap<u64, TestNode>,
    settings: NodeSettings,
}

pub fn member(id: u64) -> Member {
    Member {
        id: NodeId(id),
        name: format!("trellis-{id}"),
        address: format!("node-{id}:1"),
    }
}

impl Cluster {
    /// Nodes 1 to `count`, formed, running, and open for clients.
    pub async fn of(count: u64) -> Self {
        Self::with(count, NodeSettings::default()).await
    }

    pub async fn with(count: u64, settings: NodeSettings) -> Self {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let mut cluster = Self {
            raft: LocalNetwork::new(),
            wires: Wires::default(),
            nodes: BTreeMap::new(),
            settings,
        };
        for id in 1..=count {
            let runs = Arc::new(AtomicU64::new(0));
            cluster
                .start(id, MemoryLog::new(), MemoryState::new(), runs)
                .await;
        }
        cluster
            .node(1)
            .consensus
            .initialize((1..=count).map(member).collect())
            .await
            .expect("an empty log");
        for id in 1..=count {
            cluster.opens(id).await;
        }
        cluster
    }

    async fn start(&mut self, id: u64, log: MemoryLog, state: MemoryState, runs: Arc<AtomicU64>) {
        let me = NodeId(id);
        let core = Core::new(me, self.settings.clone(), state.bodies());
        let consensus = Consensus::build(
            ConsensusSettings::default(),
            me,
            log.clone(),
            Arc::new(state.clone()),
            self.raft.transport(me),
            Box::new(core.listener()),
        )
        .await
        .expect("a sound log and state");
        consensus.tell_time_with({
            let core = core.clone();
            Arc::new(move || core.clock_report())
        });
        consensus.run();
        self.raft.attach(me, consensus.front());
        self.wires.attach(me, core.clone());
        let counter = runs.clone();
        core.start(CoreParts {
            consensus: consensus.clone(),
            neighbours: Arc::new(self.wires.of(me)),
            next_run: Arc::new(move || {
                Ok::<_, io::Error>(Run(counter.fetch_add(1, Ordering::SeqCst) + 1))
            }),
        });
        let node = TestNode {
            core,
            consensus,
            log,
            state,
            runs,
        };
        self.nodes.insert(id, node);
    }

    pub fn node(&self, id: u64) -> &TestNode {
        &self.nodes[&id]
    }

    /// The node serves clients.
    pub async fn opens(&self, id: u64) {
        let doors = self.node(id).core.doors();
        eventually("open doors", || match &*doors.borrow() {
            DoorState::Open { .. } => Ok(()),
            closed @ DoorState::Closed { .. } => {
                Err(format!("node {id} {closed:?}; roles {:?}", self.roles()))
            }
        })
        .await;
    }

    pub async fn closes(&self, id: u64) {
        let doors = self.node(id).core.doors();
        eventually("closed doors", || match &*doors.borrow() {
            DoorState::Open { .. } => Err(format!("node {id} is open; roles {:?}", self.roles())),
            DoorState::Closed { .. } => Ok(()),
        })
        .await;
    }

    pub fn roles(&self) -> Vec<(u64, String)> {
        self.nodes
            .iter()
            .map(|(id, node)| (*id, format!("{:?}", *node.consensus.role().borrow())))
            .collect()
    }

    /// Who leads with a majority behind it.
    pub async fn leader(&self) -> u64 {
        self.leader_other_than(0).await
    }

    pub async fn leader_other_than(&self, not: u64) -> u64 {
        eventually("leader", || {
            self.nodes
                .iter()
                .filter(|(id, _)| **id != not)
                .filter_map(|(id, node)| Some((node.consensus.role().borrow().leads()?, *id)))
                .max()
                .filter(|(_, id)| {
                    let age = self.node(*id).consensus.quorum_ack_age();
                    age.is_some_and(|age| age < Duration::from_millis(900))
                })
                .map(|(_, id)| id)
                .ok_or_else(|| format!("{:?}", self.roles()))
        })
        .await
    }

    /// Some node that does not lead.
    pub async fn follower(&self) -> u64 {
        let leader = self.leader().await;
        *self
            .nodes
            .keys()
            .find(|id| **id != leader)
            .expect("more than one node")
    }

    /// The process of a node is gone.
    pub async fn kill(&mut self, id: u64) -> TestNode {
        self.raft.detach(NodeId(id));
        self.wires.detach(NodeId(id));
        let node = self.nodes.remove(&id).expect("a node");
        node.core.shutdown().await;
        node.consensus.shutdown().await;
        node
    }

    /// It comes back with what its disk had.
    pub async fn revive(&mut self, id: u64, dead: TestNode) {
        self.start(id, dead.log.crash(), dead.state.crash(), dead.runs)
            .await;
    }

    /// Nothing gets to or from `id`.
    pub fn isolate(&self, id: u64) {
        self.raft.isolate(NodeId(id));
        self.wires.isolate(NodeId(id));
    }

    /// Nothing gets from one to the other.
    pub fn cut(&self, from: u64, to: u64) {
        self.raft.cut(NodeId(from), NodeId(to));
        self.wires.cut(NodeId(from), NodeId(to));
    }

    /// Nobody reaches anybody.
    pub fn freeze(&self) {
        for id in self.nodes.keys() {
            self.isolate(*id);
        }
    }

    pub fn mend(&self) {
        self.raft.mend();
        self.wires.mend();
    }

    pub fn look<R>(&self, id: u64, look: impl FnOnce(&Machine) -> R) -> R {
        self.node(id).consensus.with_machine(look)
    }

    /// All nodes hold the same state.
    pub async fn agree(&self) {
        eventually("agreement", || {
            let seen: Vec<_> = self
                .nodes
                .values()
                .map(|node| {
                    let digest = node.consensus.with_machine(Machine::digest);
                    (*node.consensus.applied().borrow(), digest)
                })
                .collect();
            match seen.windows(2).all(|pair| pair[0] == pair[1]) {
                true => Ok(()),
                false => Err(format!("(applied, digest): {seen:?}")),
            }
        })
        .await;
    }

    pub fn client(&self, id: u64) -> Client {
        Client::of(&self.node(id).core).expect("a session")
    }

    pub async fn end(&mut self) {
        self.mend();
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.kill(id).await;
        }
    }
}
