use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};
use trellis_beanstalk::{DoorSettings, serve_streams};
use trellis_consensus::{
    ConsensusSettings,
    memory::{MemoryLog, MemoryState},
};
use trellis_node::{
    BootError, BootParts, DoorState, Node, NodeSettings, Surroundings, WallClock, boot_in,
    membership::{DiskMark, MemberSettings, Seed, Status, memory::MemoryIdentity},
};
use trellis_types::NodeId;

use super::{
    disk::SimDisk,
    net::{HostId, Net, Port},
    pipe::door_stream,
    repeating::Repeating,
    roads::Roads,
};

/// The wall clocks' beginning: 2026-01-01, in milliseconds since 1970.
const WALL_BEGIN_MS: i64 = 1_767_225_600_000;

/// What lies on a node's disk, and outlives its process.
pub(super) struct Folder {
    pub(super) identity: Arc<MemoryIdentity>,
    pub(super) log: MemoryLog,
    pub(super) state: MemoryState,
    pub(super) disk: Arc<SimDisk>,
}

impl Folder {
    pub(super) fn empty(id: u64) -> Self {
        let log = MemoryLog::new();
        Self {
            identity: Arc::new(MemoryIdentity::new(NodeId(id))),
            disk: Arc::new(SimDisk::new(log.clone())),
            log,
            state: MemoryState::new(),
        }
    }

    /// What a power cut leaves; the first `kept` unsynced appends have reached the disk.
    pub(super) fn after_crash(&self, kept: usize) -> Self {
        let log = self.log.crash_keeping(kept);
        Self {
            identity: self.identity.clone(),
            disk: Arc::new(SimDisk::new(log.clone())),
            log,
            state: self.state.crash(),
        }
    }
}

impl Folder {
    /// As a copy of the volume has it: what is written to the folder from now on is not in it.
    pub(super) fn aged(mut self) -> Self {
        self.identity = Arc::new(self.identity.copy());
        self
    }
}

/// A node's place: machine, disk and clocks, with or without a process.
pub(super) struct House {
    pub(super) name: String,
    pub(super) host: HostId,
    pub(super) folder: Folder,
    pub(super) initial: Vec<String>,
    pub(super) join: Vec<String>,
    pub(super) lease: Duration,
    /// Millionths by which its monotonic clock is fast.
    pub(super) drift_ppm: i64,
    /// Milliseconds by which its wall clock is ahead.
    pub(super) wall_offset: Arc<AtomicI64>,
    /// No instruction of its process is carried out.
    pub(super) frozen: bool,
    pub(super) life: Option<Life>,
}

/// A process.
pub(super) struct Life {
    runtime: Runtime,
    /// When it started, in the world's milliseconds.
    born: u64,
    begin: Instant,
    /// How far its own clock is, in milliseconds since it was born.
    lived: u64,
    booted: Arc<Mutex<Option<Result<Node, BootError>>>>,
}

thread_local! {
    /// Whose instructions are carried out, and what became of its disk.
    static TURN: Cell<HostId> = const { Cell::new(0) };
    static FALLEN: RefCell<Vec<(HostId, String)>> = const { RefCell::new(Vec::new()) };
}

/// Called once: a process whose disk failed is heard no more from that instruction on.
pub(super) fn catch_fail_stops(net: &Net) {
    let net = net.clone();
    trellis_consensus::on_fail_stop(move |reason| {
        let host = TURN.get();
        net.mute(host);
        FALLEN.with_borrow_mut(|fallen| fallen.push((host, reason.to_owned())));
    });
}

/// Who has fallen since this was asked for.
pub(super) fn fallen() -> Vec<(HostId, String)> {
    FALLEN.with_borrow_mut(std::mem::take)
}

impl House {
    /// Starts a process in it. A sentence if it can't be.
    pub(super) fn start(&mut self, net: &Net) -> Result<(), String> {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(|error| error.to_string())?;
        net.power_on(self.host, &self.name);
        let born = net.now();
        let begin = runtime.block_on(async { Instant::now() });
        let parts = self.parts();
        let (offset, clock) = (self.wall_offset.clone(), net.clone());
        let surroundings = Surroundings {
            network: Arc::new(Roads::new(net.clone(), self.host)),
            wall: WallClock::new(move || {
                let now = i64::try_from(clock.now()).unwrap_or(i64::MAX);
                let wall = WALL_BEGIN_MS + now + offset.load(Ordering::Relaxed);
                u64::try_from(wall).unwrap_or(0)
            }),
            between: Repeating::between,
        };
        let booted = Arc::new(Mutex::new(None));
        let (slot, net, host) = (booted.clone(), net.clone(), self.host);
        runtime.spawn(async move {
            let node = boot_in(surroundings, parts).await;
            if let Ok(node) = &node {
                tokio::spawn(open_and_close(node.clone(), net, host));
            }
            *slot.lock() = Some(node);
        });
        self.frozen = false;
        self.life = Some(Life {
            runtime,
            born,
            begin,
            lived: 0,
            booted,
        });
        Ok(())
    }

    fn parts(&self) -> BootParts<MemoryLog> {
        let seed = |name: &String| Seed {
            name: name.clone(),
            address: address(name),
        };
        BootParts {
            identity: self.folder.identity.clone(),
            log: self.folder.log.clone(),
            state: Arc::new(self.folder.state.clone()),
            disk: self.folder.disk.clone(),
            settings: NodeSettings {
                node_lease: self.lease,
                ..NodeSettings::default()
            },
            consensus: ConsensusSettings::default(),
            members: MemberSettings {
                name: self.name.clone(),
                listen: SocketAddr::from(([127, 0, 0, 1], 11_301)),
                address: address(&self.name),
                initial_members: self.initial.iter().map(seed).collect(),
                join: self.join.iter().map(|name| address(name)).collect(),
                disk_mark: DiskMark::default(),
            },
            version: "0.0.0-sim".to_owned(),
        }
    }

    /// Carries out what its process does until the world's time `now`.
    pub(super) fn step(&mut self, now: u64) {
        if self.frozen {
            return;
        }
        let target = {
            let Some(life) = &self.life else { return };
            let world = now.saturating_sub(life.born);
            let drift = i64::try_from(world).unwrap_or(i64::MAX) * self.drift_ppm / 1_000_000;
            world.saturating_add_signed(drift)
        };
        TURN.set(self.host);
        if let Some(life) = &mut self.life
            && target > life.lived
        {
            life.lived = target;
            let until = life.begin + Duration::from_millis(target);
            life.runtime
                .block_on(async { tokio::time::sleep_until(until).await });
        }
    }

    /// Its process goes on after having been stopped: its clock has jumped.
    pub(super) fn thaw(&mut self, now: u64) {
        if !std::mem::take(&mut self.frozen) {
            return;
        }
        TURN.set(self.host);
        if let Some(life) = &mut self.life {
            let jump = now.saturating_sub(life.born).saturating_sub(life.lived);
            if jump > 1 {
                life.lived += jump - 1;
                let jump = Duration::from_millis(jump - 1);
                life.runtime
                    .block_on(async { tokio::time::advance(jump).await });
            }
        }
    }

    /// Its process is gone, at once: nothing of it is carried out any more.
    pub(super) fn kill(&mut self, net: &Net, power: bool, kept: usize) {
        let Some(life) = self.life.take() else { return };
        net.process_gone(self.host, power);
        TURN.set(self.host);
        drop(life);
        self.frozen = false;
        self.folder = self.folder.after_crash(kept);
        // What fell while it was torn down had fallen already.
        FALLEN.with_borrow_mut(|fallen| fallen.retain(|(host, _)| *host != self.host));
    }

    /// The node, once it has loaded its storage.
    pub(super) fn node(&self) -> Option<Node> {
        let booted = self.life.as_ref()?.booted.lock();
        booted.as_ref()?.as_ref().ok().cloned()
    }

    /// Why its process could not start.
    pub(super) fn refused(&self) -> Option<String> {
        let booted = self.life.as_ref()?.booted.lock();
        Some(booted.as_ref()?.as_ref().err()?.to_string())
    }

    /// How the node says it is.
    pub(super) fn status(&self) -> Option<Status> {
        let node = self.node()?;
        let _inside = self.life.as_ref()?.runtime.enter();
        Some(node.members().status())
    }

    /// Whether it serves, and hears a leader.
    pub(super) fn is_ready(&self) -> bool {
        let Some((node, life)) = self.node().zip(self.life.as_ref()) else {
            return false;
        };
        let _inside = life.runtime.enter();
        !self.frozen && node.members().health().ready
    }

    /// Lets the node do something beside everything else.
    pub(super) fn spawn<F>(&self, act: impl FnOnce(Node) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if let Some((node, life)) = self.node().zip(self.life.as_ref()) {
            life.runtime.spawn(act(node));
        }
    }
}

/// The peer address of the node called `name`.
pub(super) fn address(name: &str) -> String {
    format!("{name}:11301")
}

/// Listens for clients while the node's doors are open.
async fn open_and_close(node: Node, net: Net, host: HostId) {
    let mut doors = node.doors();
    let (streams, incoming) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(serve_streams(
        DoorSettings::on(Vec::new()),
        node.clone(),
        incoming,
    ));
    loop {
        let state = doors.borrow_and_update().clone();
        if !matches!(state, DoorState::Open { .. }) {
            if doors.changed().await.is_err() {
                return;
            }
            continue;
        }
        let mut listening = net.listen(host, Port::Clients);
        loop {
            tokio::select! {
                biased;
                changed = doors.changed() => {
                    net.close_port(host, Port::Clients);
                    if changed.is_err() {
                        return;
                    }
                    break;
                }
                end = listening.recv() => {
                    let Some(end) = end else { return };
                    if streams.send(door_stream(end)).is_err() {
                        return;
                    }
                }
            }
        }
    }
}
