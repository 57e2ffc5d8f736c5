//! A cluster of cores in one process: Raft, log, state and network in memory, and words for the
//! stories in the files beside this folder.

#![allow(unreachable_pub, reason = "compiled into each file of stories")]
#![allow(dead_code, reason = "every story uses some of the words")]

use std::{
    collections::{BTreeMap, HashSet},
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, sleep},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use trellis_consensus::{
    Consensus, ConsensusSettings, Member, StateStore,
    memory::{LocalNetwork, MemoryLog, MemoryState},
};
use trellis_node::{
    Answer, Call, CloseReason, Core, CoreParts, DoorState, Neighbours, NodeSettings, Outlet,
    Session,
};
use trellis_queue::Machine;
use trellis_rpc::pb;
use trellis_types::{JobId, NodeId, Priority, Run, Seconds, TubeName};

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
    log: MemoryLog,
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

#[derive(Default)]
struct Heard {
    words: Mutex<Vec<String>>,
    bell: Notify,
}

struct Ear(Arc<Heard>);

impl Outlet for Ear {
    fn deliver(&self, answers: &mut Vec<Answer>) {
        self.0
            .words
            .lock()
            .extend(answers.drain(..).map(|answer| text(&answer)));
        self.0.bell.notify_one();
    }

    fn close(&self, why: CloseReason) {
        self.0.words.lock().push(format!("closed: {why:?}"));
        self.0.bell.notify_one();
    }
}

fn text(answer: &Answer) -> String {
    let read = |body: &trellis_node::Owed| {
        let body = body.read().expect("a body");
        String::from_utf8_lossy(&body).into_owned()
    };
    match answer {
        Answer::Inserted(job) => format!("inserted {job}"),
        Answer::Reserved { job, body } => format!("reserved {job} {}", read(body)),
        Answer::Found { job, body } => format!("found {job} {}", read(body)),
        Answer::Using(tube) => format!("using {tube}"),
        Answer::Watching(count) => format!("watching {count}"),
        other => format!("{other:?}"),
    }
}

pub struct Client {
    pub session: Session,
    heard: Arc<Heard>,
}

impl Client {
    /// A client of the node, if it takes one.
    pub fn of(core: &Core) -> Option<Self> {
        let heard = Arc::new(Heard::default());
        let session = core.connect(Arc::new(Ear(heard.clone()))).ok()?;
        Some(Self { session, heard })
    }

    /// The next word; `None` if none comes for ten seconds, as when the process is gone.
    pub async fn next_word(&self) -> Option<String> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            {
                let mut words = self.heard.words.lock();
                if !words.is_empty() {
                    return Some(words.remove(0));
                }
            }
            let bell = self.heard.bell.notified();
            tokio::time::timeout_at(end, bell).await.ok()?;
        }
    }

    pub fn say(&self, calls: impl IntoIterator<Item = Call>) {
        self.session.submit(&mut calls.into_iter().collect());
    }

    /// The next `count` words that it hears.
    pub async fn hears_next(&self, count: usize) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            {
                let mut words = self.heard.words.lock();
                if words.len() >= count {
                    return words.drain(..count).collect();
                }
            }
            let bell = self.heard.bell.notified();
            if tokio::time::timeout_at(end, bell).await.is_err() {
                panic!(
                    "{count} words wanted; last heard: {:?}",
                    self.heard.words.lock()
                );
            }
        }
    }

    pub async fn hears(&self) -> String {
        self.hears_next(1).await.remove(0)
    }

    /// What it has heard and nobody asked for.
    pub fn heard(&self) -> Vec<String> {
        self.heard.words.lock().clone()
    }

    pub async fn asks(&self, call: Call) -> String {
        self.say([call]);
        self.hears().await
    }
}

pub fn put(body: impl Into<Bytes>) -> Call {
    put_for(body, 0, 60)
}

pub fn put_for(body: impl Into<Bytes>, delay: u32, ttr: u32) -> Call {
    Call::Put {
        priority: Priority(0),
        delay: Seconds(delay),
        ttr: Seconds(ttr),
        body: body.into(),
    }
}

pub const RESERVE: Call = Call::Reserve { timeout: None };
pub const POLL: Call = Call::Reserve {
    timeout: Some(Seconds(0)),
};

pub fn delete(job: u64) -> Call {
    Call::Delete(JobId(job))
}

pub fn tube(name: &str) -> TubeName {
    TubeName::parse(name.as_bytes()).expect("a tube's name")
}

/// The wires between cores, as [`LocalNetwork`] is those of Raft.
#[derive(Clone, Default)]
pub struct Wires(Arc<Inner>);

struct Inner {
    cores: Mutex<BTreeMap<NodeId, Core>>,
    /// From whom to whom nothing gets; and how often somebody was detached.
    cuts: watch::Sender<HashSet<(NodeId, NodeId)>>,
    gone: watch::Sender<HashSet<NodeId>>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            cores: Mutex::default(),
            cuts: watch::Sender::new(HashSet::new()),
            gone: watch::Sender::new(HashSet::new()),
        }
    }
}

impl Wires {
    fn attach(&self, node: NodeId, core: Core) {
        self.0.cores.lock().insert(node, core);
        self.0.gone.send_modify(|gone| {
            gone.remove(&node);
        });
    }

    fn detach(&self, node: NodeId) {
        self.0.cores.lock().remove(&node);
        self.0.gone.send_modify(|gone| {
            gone.insert(node);
        });
    }

    fn of(&self, from: NodeId) -> Wire {
        Wire {
            wires: self.clone(),
            from,
        }
    }

    fn isolate(&self, node: NodeId) {
        let others: Vec<_> = self.0.cores.lock().keys().copied().collect();
        self.0.cuts.send_modify(|cuts| {
            for other in others.into_iter().filter(|other| *other != node) {
                cuts.insert((node, other));
                cuts.insert((other, node));
            }
        });
    }

    fn cut(&self, from: NodeId, to: NodeId) {
        self.0.cuts.send_modify(|cuts| {
            cuts.insert((from, to));
        });
    }

    fn mend(&self) {
        self.0.cuts.send_modify(HashSet::clear);
    }

    async fn passes(&self, from: NodeId, to: NodeId) {
        let mut cuts = self.0.cuts.subscribe();
        let _ = cuts.wait_for(|cuts| !cuts.contains(&(from, to))).await;
    }

    async fn is_gone(&self, node: NodeId) {
        let mut gone = self.0.gone.subscribe();
        let _ = gone.wait_for(|gone| gone.contains(&node)).await;
    }

    fn core(&self, node: NodeId) -> Result<Core, Status> {
        let core = self.0.cores.lock().get(&node).cloned();
        core.ok_or_else(|| Status::unavailable("connection refused"))
    }
}

#[derive(Clone)]
struct Wire {
    wires: Wires,
    from: NodeId,
}

impl Wire {
    /// Carries messages while both ends live and the cable is whole.
    fn carry<T: Send + 'static>(
        &self,
        from: NodeId,
        to: NodeId,
        mut messages: BoxStream<'static, T>,
    ) -> mpsc::Receiver<T> {
        let (sender, receiver) = mpsc::channel(64);
        let wires = self.wires.clone();
        tokio::spawn(async move {
            loop {
                let message = tokio::select! {
                    message = messages.next() => message,
                    () = wires.is_gone(from) => return,
                    () = wires.is_gone(to) => return,
                    () = sender.closed() => return,
                };
                let Some(message) = message else { return };
                tokio::select! {
                    () = wires.passes(from, to) => {}
                    () = wires.is_gone(to) => return,
                }
                if sender.send(message).await.is_err() {
                    return;
                }
            }
        });
        receiver
    }
}

impl Neighbours for Wire {
    fn forward(
        &self,
        leader: NodeId,
        up: mpsc::Receiver<pb::ForwardUp>,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Result<pb::ForwardDown, Status>>, Status>>
    {
        let this = self.clone();
        async move {
            this.wires.passes(this.from, leader).await;
            let core = this.wires.core(leader)?;
            let up = this.carry(this.from, leader, ReceiverStream::new(up).boxed());
            let down = core.forward(Some(this.from), ReceiverStream::new(up).map(Ok));
            let down = this.carry(leader, this.from, down);
            Ok(ReceiverStream::new(down).boxed())
        }
        .boxed()
    }

    fn read_index(&self, leader: NodeId) -> BoxFuture<'static, Result<pb::ReadIndexReply, Status>> {
        let this = self.clone();
        async move {
            this.wires.passes(this.from, leader).await;
            let reply = this.wires.core(leader)?.read_index().await;
            this.wires.passes(leader, this.from).await;
            reply
        }
        .boxed()
    }

    fn census(
        &self,
        node: NodeId,
        request: pb::CensusRequest,
    ) -> BoxFuture<'static, Result<pb::CensusReply, Status>> {
        let this = self.clone();
        async move {
            this.wires.passes(this.from, node).await;
            let reply = this.wires.core(node)?.census(&request);
            this.wires.passes(node, this.from).await;
            reply
        }
        .boxed()
    }
}
