//! Whole nodes over real gRPC on loopback, each with a runtime of its own, so that one can be
//! killed without asking it; storage is in memory and outlives its node.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use trellis_consensus::{
    ConsensusSettings,
    memory::{MemoryLog, MemoryState},
};
use trellis_node::{
    Answer, BootError, BootParts, Call, CloseReason, Node, NodeSettings, Outlet, boot,
    membership::{
        DiskMark, MemberSettings, MemberStatus, Seed, Status,
        memory::{MemoryDisk, MemoryIdentity},
    },
};
use trellis_testkit::process::free_port;
use trellis_types::{NodeId, Priority, Seconds};

/// How long anything may take that a town waits for.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A lease for stories in which a silent node is given up.
pub const SHORT_LEASE: Duration = Duration::from_secs(3);

/// The nodes of one test, by name.
pub struct Town {
    houses: BTreeMap<String, House>,
    next_id: u64,
    /// Of nodes that are started from now on: the default, or [`SHORT_LEASE`].
    pub lease: Duration,
}

/// A node's place: its folder outlives the node.
struct House {
    address: String,
    folder: Folder,
    initial: Vec<String>,
    join: Vec<String>,
    life: Option<Life>,
}

/// What lies on a node's disk.
pub struct Folder {
    pub identity: Arc<MemoryIdentity>,
    pub log: MemoryLog,
    pub state: Arc<MemoryState>,
    pub disk: Arc<MemoryDisk>,
}

struct Life {
    runtime: Runtime,
    node: Node,
}

fn free_address() -> String {
    let port = free_port().unwrap_or_else(|error| panic!("no port: {error}"));
    SocketAddr::from(([127, 0, 0, 1], port)).to_string()
}

impl Folder {
    fn empty(id: u64) -> Self {
        Self {
            identity: Arc::new(MemoryIdentity::new(NodeId(id))),
            log: MemoryLog::default(),
            state: Arc::new(MemoryState::default()),
            disk: Arc::new(MemoryDisk::new(1 << 40)),
        }
    }
}

impl Town {
    /// Nodes that are to form one cluster together. None is started.
    pub fn of(names: &[&str]) -> Self {
        // RUST_LOG=trellis_node=info shows what the nodes say.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_thread_names(true)
            .try_init();
        let mut town = Self {
            houses: BTreeMap::new(),
            next_id: 1,
            lease: NodeSettings::default().node_lease,
        };
        let initial: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        for name in names {
            town.build(
                name,
                if names.len() == 1 {
                    Vec::new()
                } else {
                    initial.clone()
                },
                &[],
            );
        }
        town
    }

    /// A further node that is to join the cluster of `via`.
    pub fn joining(&mut self, name: &str, via: &[&str]) {
        self.build(name, Vec::new(), via);
    }

    /// A node that is to form a cluster with `absent`, which is never started.
    pub fn waiting_for(&mut self, name: &str, absent: &str) {
        let initial = vec![absent.to_owned(), name.to_owned()];
        self.build(absent, initial.clone(), &[]);
        self.build(name, initial, &[]);
    }

    fn build(&mut self, name: &str, initial: Vec<String>, via: &[&str]) {
        let folder = Folder::empty(self.fresh_id());
        let join = via.iter().map(|via| self.address(via)).collect();
        let house = House {
            address: free_address(),
            folder,
            initial,
            join,
            life: None,
        };
        self.houses.insert(name.to_owned(), house);
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        0xA000 + self.next_id
    }

    pub fn address(&self, name: &str) -> String {
        self.houses[name].address.clone()
    }

    pub fn folder(&self, name: &str) -> &Folder {
        &self.houses[name].folder
    }

    /// The data folder is lost.
    pub fn wipe(&mut self, name: &str) {
        let id = self.fresh_id();
        self.house(name).folder = Folder::empty(id);
    }

    /// The data folder is replaced by a copy of another.
    pub fn restore(&mut self, name: &str, identity: MemoryIdentity) {
        self.house(name).folder.identity = Arc::new(identity);
    }

    /// A copy of what is on the disk of a node that is not running.
    pub fn copy_storage(&mut self, name: &str) -> (MemoryLog, MemoryState) {
        let folder = &mut self.house(name).folder;
        let copy = (folder.log.crash(), folder.state.crash());
        folder.log = folder.log.crash();
        folder.state = Arc::new(folder.state.crash());
        copy
    }

    /// The log and the state are replaced by older ones.
    pub fn restore_storage(&mut self, name: &str, log: MemoryLog, state: MemoryState) {
        let folder = &mut self.house(name).folder;
        (folder.log, folder.state) = (log, Arc::new(state));
    }

    /// Takes the folder of `other`'s node of the same name.
    pub fn swap_folder(&mut self, name: &str, other: &mut Self) {
        std::mem::swap(&mut self.house(name).folder, &mut other.house(name).folder);
    }

    fn house(&mut self, name: &str) -> &mut House {
        self.houses
            .get_mut(name)
            .unwrap_or_else(|| panic!("no house {name}"))
    }

    pub fn start(&mut self, name: &str) {
        if let Err(error) = self.try_start(name) {
            panic!("{name} does not start: {error}");
        }
    }

    pub fn try_start(&mut self, name: &str) -> Result<(), BootError> {
        let seeds: Vec<Seed> = self.houses[name]
            .initial
            .iter()
            .map(|name| Seed {
                name: name.clone(),
                address: self.address(name),
            })
            .collect();
        let lease = self.lease;
        let house = self.house(name);
        assert!(house.life.is_none(), "{name} runs already");
        let parts = BootParts {
            identity: house.folder.identity.clone(),
            log: house.folder.log.clone(),
            state: house.folder.state.clone(),
            disk: house.folder.disk.clone(),
            settings: NodeSettings {
                node_lease: lease,
                ..NodeSettings::default()
            },
            consensus: ConsensusSettings::default(),
            members: MemberSettings {
                name: name.to_owned(),
                listen: house
                    .address
                    .parse()
                    .unwrap_or_else(|error| panic!("{error}")),
                address: house.address.clone(),
                initial_members: seeds,
                join: house.join.clone(),
                disk_mark: DiskMark::default(),
            },
            version: "0.0.0-test".to_owned(),
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name(name)
            .enable_all()
            .build()
            .unwrap_or_else(|error| panic!("no runtime: {error}"));
        let node = runtime.block_on(boot(parts))?;
        self.house(name).life = Some(Life { runtime, node });
        Ok(())
    }

    pub fn start_all(&mut self) {
        let names: Vec<String> = self.houses.keys().cloned().collect();
        for name in names {
            self.start(&name);
        }
    }

    /// Like `kill -9`: nothing is said to anybody.
    pub fn kill(&mut self, name: &str) {
        if let Some(Life { runtime, node }) = self.house(name).life.take() {
            drop(node);
            // Waits until no task of it can touch its folder any more.
            runtime.shutdown_timeout(PATIENCE);
            let folder = &mut self.house(name).folder;
            folder.log = folder.log.crash();
            folder.state = Arc::new(folder.state.crash());
        }
    }

    pub fn kill_all(&mut self) {
        let names: Vec<String> = self.houses.keys().cloned().collect();
        for name in names {
            self.kill(&name);
        }
    }

    fn life(&self, name: &str) -> &Life {
        self.houses[name]
            .life
            .as_ref()
            .unwrap_or_else(|| panic!("{name} is not running"))
    }

    pub fn node(&self, name: &str) -> Node {
        self.life(name).node.clone()
    }

    pub fn status(&self, name: &str) -> Status {
        self.life(name).node.members().status()
    }

    pub fn running(&self) -> Vec<String> {
        let live = self.houses.iter().filter(|(_, house)| house.life.is_some());
        live.map(|(name, _)| name.clone()).collect()
    }

    /// Runs a future on a node's own runtime, with a bound.
    pub fn on<T: Debug>(&self, name: &str, future: impl Future<Output = T>) -> T {
        let done = async { tokio::time::timeout(PATIENCE, future).await };
        match self.life(name).runtime.block_on(done) {
            Ok(value) => value,
            Err(_) => panic!("not done in time on {name}: {}", self.picture()),
        }
    }

    /// Waits until `look` sees what it wants; on time-out shows what was seen last.
    pub fn wait<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{what}: not in time\n{}",
                self.picture()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Everybody's status, for a person who reads a failed test.
    pub fn picture(&self) -> String {
        let running = self.running();
        let lines = running.iter().map(|name| {
            let health = self.node(name).members().health();
            let reasons: Vec<&str> = health.reasons().collect();
            format!("{name}: not ready: {reasons:?}\n{:#?}\n", self.status(name))
        });
        lines.collect()
    }

    pub fn wait_ready(&self, names: &[&str]) {
        self.wait(&format!("{names:?} ready"), |town| {
            let ready = |name: &&str| town.node(name).members().health().ready;
            names.iter().all(ready).then_some(())
        });
    }

    /// The leader that all the named agree on.
    pub fn wait_leader(&self, names: &[&str]) -> String {
        self.wait(&format!("a leader of {names:?}"), |town| {
            let leader = town.status(names[0]).leader?;
            let leader = names.contains(&leader.as_str()).then_some(leader)?;
            let agrees = |name: &&str| town.status(name).leader.as_ref() == Some(&leader);
            (names.iter().all(agrees) && town.status(&leader).role == "leader").then_some(leader)
        })
    }

    /// The members, as soon as there are `count`, as the named node knows, and all of them vote.
    pub fn wait_voters(&self, name: &str, count: usize) -> Vec<MemberStatus> {
        self.wait(&format!("{count} voters, as {name} knows"), |town| {
            let members = town.status(name).members;
            let all_vote = members.iter().all(|member| member.voter);
            (all_vote && members.len() == count).then_some(members)
        })
    }

    /// Waits until all the named have applied as much and hold equal states.
    pub fn wait_equal(&self, names: &[&str]) {
        self.wait(&format!("equal states of {names:?}"), |town| {
            let digest = |name: &&str| {
                let digest = town.status(name).digest;
                digest.map(|digest| (digest.index, digest.value))
            };
            let first = digest(&names[0])?;
            names
                .iter()
                .all(|name| digest(name).as_ref() == Some(&first))
                .then_some(())
        });
    }

    /// Puts one job through the named node and waits for its id.
    pub fn put(&self, name: &str, body: &str) -> u64 {
        let outlet = Arc::new(Heard::default());
        let session = self
            .node(name)
            .connect(outlet.clone())
            .unwrap_or_else(|error| panic!("{name}: {error}\n{}", self.picture()));
        session.submit(&mut vec![Call::Put {
            priority: Priority(0),
            delay: Seconds(0),
            ttr: Seconds(60),
            body: Bytes::copy_from_slice(body.as_bytes()),
        }]);
        self.wait("the put's answer", |_| {
            let answers = outlet.answers.lock();
            match answers.first() {
                Some(Answer::Inserted(job)) => Some(job.0),
                Some(other) => panic!("expected INSERTED, got {other:?}"),
                None => {
                    let closed = *outlet.closed.lock();
                    assert!(closed.is_none(), "{name} hung up: {closed:?}");
                    None
                }
            }
        })
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// A client that remembers what it was told.
#[derive(Default)]
pub struct Heard {
    pub answers: Mutex<Vec<Answer>>,
    pub closed: Mutex<Option<CloseReason>>,
}

impl Outlet for Heard {
    fn deliver(&self, answers: &mut Vec<Answer>) {
        self.answers.lock().append(answers);
    }

    fn close(&self, why: CloseReason) {
        *self.closed.lock() = Some(why);
    }
}
