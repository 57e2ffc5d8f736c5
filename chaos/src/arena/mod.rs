//! The place where things are broken.

mod balancer;
mod clock;
mod links;
mod standing;
mod volume;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use tempfile::TempDir;
use trellis_chaos_disk::Plug;
use trellis_checker::history::NodeEvent;
use trellis_testkit::{
    network::{Launch, Network, NodeProcess},
    recording::{Address, Recording},
};

pub(crate) use links::Manner;

use balancer::Balancer;
use clock::Clock;
use links::Links;
use volume::Volume;

/// Members of a cluster's first boot.
pub(crate) const NODES: usize = 3;

/// Places for nodes: the members, and one that may join.
pub(crate) const PLACES: usize = NODES + 1;

/// How long a cluster may take until all its nodes are ready.
pub(crate) const READY_MAX: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The load balancer's place.
const BALANCER_HOST: u8 = 200;
/// Added to a node's host: the proxy in front of its peer port.
const PROXY_OFFSET: u8 = 100;
/// Added to a node's host: the proxy where it calls others on that node's behalf.
const CALLER_OFFSET: u8 = 150;

/// What a story needs besides nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Nodes reach each other through proxies of ours, which can be slow.
    pub proxied: bool,
    /// Clients connect through HAProxy, besides to the nodes themselves.
    pub balanced: bool,
    /// Each node has a wall clock that can be set.
    pub clocks: bool,
    /// Each node's data is on a small file system of its own.
    pub volumes: bool,
    /// Each node's data is on a disk that fails, lies and forgets on command. Not with `volumes`.
    pub disks: bool,
}

impl Setup {
    /// Everything that either of two needs.
    pub fn and(self, other: Self) -> Self {
        Self {
            proxied: self.proxied || other.proxied,
            balanced: self.balanced || other.balanced,
            clocks: self.clocks || other.clocks,
            volumes: self.volumes || other.volumes,
            disks: self.disks || other.disks,
        }
    }
}

/// Nodes in places of their own, and all that is around them.
pub struct Arena {
    // Dropped in this order: first what runs in the places, then the places, then the disks.
    load: Option<Recording>,
    nodes: Vec<NodeProcess>,
    balancer: Option<Balancer>,
    links: Option<Links>,
    clocks: Vec<Clock>,
    network: Network,
    volumes: Vec<Volume>,
    disks: Vec<Plug>,
    folder: TempDir,
    setup: Setup,
    binary: PathBuf,
    /// Which nodes are members and should be ready.
    members: Vec<usize>,
    frozen: Vec<usize>,
    /// Nodes whose disks were damaged: whoever runs them starts them again, and rebuilds them if
    /// they say so.
    suspects: Vec<usize>,
    /// Nodes that a fault which is not over concerns.
    concerned: Vec<usize>,
    /// The last byte of the address at which each node listens for peers.
    peer_hosts: Vec<u8>,
}

impl Arena {
    /// Makes the place, starts three nodes and waits until all of them are ready.
    ///
    /// # Errors
    ///
    /// Something can't be made here, or the cluster does not form in time.
    pub fn raise(binary: &Path, setup: Setup) -> Result<Self> {
        let folder = TempDir::with_prefix("trellis-chaos-")?;
        let network = Network::lay()?;
        for place in 0..PLACES {
            network.add(host(place))?;
        }
        let links = if setup.proxied {
            for place in 0..PLACES {
                network.answer_here(host(place) + PROXY_OFFSET)?;
                network.answer_here(host(place) + CALLER_OFFSET)?;
            }
            Some(Links::lay(&network, PLACES)?)
        } else {
            None
        };
        let mut arena = Self {
            load: None,
            nodes: Vec::new(),
            balancer: None,
            links,
            clocks: Vec::new(),
            network,
            volumes: Vec::new(),
            disks: Vec::new(),
            folder,
            setup,
            binary: binary.to_owned(),
            members: (0..NODES).collect(),
            frozen: Vec::new(),
            suspects: Vec::new(),
            concerned: Vec::new(),
            peer_hosts: (0..PLACES).map(host).collect(),
        };
        arena.tell_names()?;
        for node in 0..PLACES {
            arena.prepare(node)?;
        }
        for node in 0..NODES {
            arena.nodes[node].start(&arena.network)?;
        }
        if setup.balanced {
            arena.network.add(BALANCER_HOST)?;
            let nodes: Vec<_> = arena.nodes.iter().map(NodeProcess::clients).collect();
            let folder = arena.folder.path();
            let balancer = Balancer::start(&arena.network, BALANCER_HOST, folder, &nodes)?;
            arena.balancer = Some(balancer);
        }
        arena.settle(READY_MAX).context("the cluster forms")?;
        Ok(arena)
    }

    fn prepare(&mut self, node: usize) -> Result<()> {
        let name = name(node);
        let data_dir = if self.setup.volumes {
            let volume = Volume::make(&self.folder.path().join(format!("volume-{node}")))?;
            let data_dir = volume.mounted_at().join("data");
            self.volumes.push(volume);
            data_dir
        } else if self.setup.disks {
            let mount = self.folder.path().join(format!("disk-{node}"));
            let objects = self.folder.path().join(format!("objects-{node}"));
            let program = disk_program()?;
            let disk = Plug::mount(&program, &mount, &objects, false)
                .with_context(|| program.display().to_string())?;
            self.disks.push(disk);
            mount.join("data")
        } else {
            self.folder.path().join(&name)
        };
        let mut variables = Vec::new();
        if self.setup.clocks {
            let clock = Clock::new(self.folder.path().join(format!("clock-{node}")))?;
            variables = clock.variables();
            self.clocks.push(clock);
        }
        let members = (0..NODES).map(|node| format!("{}={}", self::name(node), peer_name(node)));
        let launch = Launch {
            binary: self.binary.clone(),
            host: host(node),
            data_dir,
            log: self.folder.path().join(format!("{name}.log")),
            initial_members: members.collect(),
            variables,
            name,
            ..Launch::default()
        };
        self.nodes.push(NodeProcess::new(&self.network, launch));
        Ok(())
    }

    /// Makes every place know under which address every node is reached.
    fn tell_names(&self) -> Result<()> {
        let names: Vec<(String, Ipv4Addr)> = (0..PLACES)
            .map(|node| {
                let host = match self.links {
                    Some(_) => host(node) + PROXY_OFFSET,
                    None => self.peer_hosts[node],
                };
                let name = peer_name(node);
                let name = name.split(':').next().unwrap_or_default().to_owned();
                (name, self.network.address(host))
            })
            .collect();
        for place in 0..PLACES {
            self.network.name(host(place), &names)?;
        }
        Ok(())
    }

    /// Where clients connect.
    pub fn addresses(&self) -> Vec<Address> {
        let mut all: Vec<_> = (0..PLACES)
            .map(|node| Address {
                name: name(node),
                clients: self.nodes[node].clients(),
                admin: Some(self.nodes[node].admin()),
            })
            .collect();
        if self.balancer.is_some() {
            all.push(Address {
                name: BALANCER.to_owned(),
                clients: SocketAddr::from((self.network.address(BALANCER_HOST), 11_300)),
                admin: None,
            });
        }
        all
    }

    /// From now on what happens to nodes is recorded there.
    pub fn bear(&mut self, load: Recording) {
        self.load = Some(load);
    }

    /// The load, if there is one.
    pub fn load(&self) -> Option<&Recording> {
        self.load.as_ref()
    }

    /// The load, to be stopped.
    pub fn load_mut(&mut self) -> Option<&mut Recording> {
        self.load.as_mut()
    }

    /// The places.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The file system of a node.
    ///
    /// # Errors
    ///
    /// The story has none.
    pub fn volume(&self, node: usize) -> Result<&Volume> {
        self.volumes.get(node).context("this story has no volumes")
    }

    /// The disk of a node that takes orders.
    ///
    /// # Errors
    ///
    /// The story has none.
    pub fn disk(&self, node: usize) -> Result<&Plug> {
        self.disks.get(node).context("this story has no such disks")
    }

    /// The proxies between nodes.
    ///
    /// # Errors
    ///
    /// The story has none.
    pub fn links(&self) -> Result<&Links> {
        self.links.as_ref().context("this story has no proxies")
    }

    /// All nodes that should be ready when nothing is broken.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Counts a node among the members from now on, or no longer.
    pub fn set_member(&mut self, node: usize, is_member: bool) {
        self.members.retain(|member| *member != node);
        if is_member {
            self.members.push(node);
            self.members.sort_unstable();
        }
    }

    /// Places that belong to no member now.
    pub fn strangers(&self) -> Vec<usize> {
        (0..PLACES)
            .filter(|node| !self.members.contains(node))
            .collect()
    }

    /// A node's process.
    pub fn node(&mut self, node: usize) -> &mut NodeProcess {
        &mut self.nodes[node]
    }

    /// A node's data folder.
    pub fn data_dir(&mut self, node: usize) -> PathBuf {
        self.nodes[node].launch().data_dir.clone()
    }

    /// A folder for whatever a nemesis has to put away.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// kill -9; the process is gone and its port is refused.
    ///
    /// # Errors
    ///
    /// It had no process, or does not go.
    pub fn kill(&mut self, node: usize) -> Result<()> {
        self.nodes[node].kill()?;
        self.frozen.retain(|frozen| *frozen != node);
        self.note(node, NodeEvent::Killed);
        Ok(())
    }

    /// Starts a node's process again.
    ///
    /// # Errors
    ///
    /// It runs already.
    pub fn start(&mut self, node: usize) -> Result<()> {
        self.nodes[node].start(&self.network)?;
        self.note(node, NodeEvent::Started);
        Ok(())
    }

    /// A fault begins that concerns these nodes.
    pub fn concern(&mut self, nodes: &[usize]) {
        self.concerned.extend(nodes);
    }

    /// All faults are over.
    pub fn calm(&mut self) {
        self.concerned.clear();
    }

    /// Whether, without `node`, there is a majority that no fault concerns.
    pub fn can_spare(&self, node: usize) -> bool {
        self.is_majority(|other| other != node && !self.concerned.contains(&other))
    }

    /// Whether there is a majority that no fault concerns. Two faults at two of three nodes leave none,
    /// though each of them would.
    pub fn majority_is_well(&self) -> bool {
        self.is_majority(|node| !self.concerned.contains(&node))
    }

    fn is_majority(&self, is: impl Fn(usize) -> bool) -> bool {
        self.members.iter().filter(|node| is(**node)).count() > self.members.len() / 2
    }

    /// SIGSTOP, seen in the process' state.
    ///
    /// # Errors
    ///
    /// There is no process, or it goes on.
    pub fn freeze(&mut self, node: usize) -> Result<()> {
        self.nodes[node].signal(Signal::STOP)?;
        self.frozen.push(node);
        let pid = self.nodes[node].pid().context("no process")?;
        wait(Duration::from_secs(5), "the process is stopped", || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
            let state = stat.rsplit_once(')').map(|it| it.1.trim_start());
            match state {
                Some(state) if state.starts_with('T') => Ok(()),
                other => bail!("its state is {other:?}"),
            }
        })
    }

    /// SIGCONT.
    ///
    /// # Errors
    ///
    /// There is no process.
    pub fn thaw(&mut self, node: usize) -> Result<()> {
        self.frozen.retain(|frozen| *frozen != node);
        Ok(self.nodes[node].signal(Signal::CONT)?)
    }

    /// Moves a node's peer port to another address; its name follows. Counts from its next start.
    ///
    /// # Errors
    ///
    /// The address is taken.
    pub fn move_peer_address(&mut self, node: usize) -> Result<()> {
        let new = self.peer_hosts[node] + 20;
        self.network.give(host(node), new)?;
        self.peer_hosts[node] = new;
        self.nodes[node].launch().peer_host = Some(new);
        if let Some(links) = &self.links {
            links.moved(node, new);
        }
        self.tell_names()
    }

    /// All addresses from which packets of a node come, and to which others send for it.
    pub fn faces(&self, node: usize) -> Vec<Ipv4Addr> {
        let mut hosts = vec![host(node)];
        if self.peer_hosts[node] != host(node) {
            hosts.push(self.peer_hosts[node]);
        }
        if self.links.is_some() {
            hosts.extend([host(node) + PROXY_OFFSET, host(node) + CALLER_OFFSET]);
        }
        hosts
            .into_iter()
            .map(|host| self.network.address(host))
            .collect()
    }

    /// All addresses from which clients come.
    pub fn clients(&self) -> Vec<Ipv4Addr> {
        let mut all = vec![self.network.own_address()];
        if self.balancer.is_some() {
            all.push(self.network.address(BALANCER_HOST));
        }
        all
    }

    /// From now on the node may find its folder damaged at any time.
    pub fn suspect(&mut self, node: usize) {
        self.suspects.push(node);
    }

    /// Records what became of a node.
    pub fn note(&self, node: usize, event: NodeEvent) {
        if let Some(load) = &self.load {
            load.node(&name(node), event);
        }
    }

    /// Copies every node's log into `to`.
    ///
    /// # Errors
    ///
    /// As the file system has it.
    pub fn keep_logs(&self, to: &Path) -> Result<()> {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "log")
                && let Some(file) = path.file_name()
            {
                fs::copy(&path, to.join(file))?;
            }
        }
        Ok(())
    }
}

/// The program of disks that take orders: it lies where this one does.
fn disk_program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().context("a program is in a folder")?;
    // A test lies one folder deeper.
    let places = [folder.to_owned(), folder.join("..")];
    let programs = places.map(|place| place.join("trellis-chaos-disk"));
    let found = programs.into_iter().find(|program| program.is_file());
    found.with_context(|| format!("no trellis-chaos-disk beside {}", own.display()))
}

/// What the history calls the load balancer.
pub(crate) const BALANCER: &str = "haproxy";

/// A node's name.
pub(crate) fn name(node: usize) -> String {
    format!("node-{node}")
}

/// A node's peer address, by name.
pub(crate) fn peer_name(node: usize) -> String {
    format!("node-{node}.trellis.test:{}", NodeProcess::PEER_PORT)
}

/// The last byte of the address of a node's place.
pub(crate) fn host(node: usize) -> u8 {
    u8::try_from(node + 1).unwrap_or(u8::MAX)
}

/// Looks until it is so.
///
/// # Errors
///
/// It is not so within `bound`; the last look's words are included.
pub(crate) fn wait<T>(
    bound: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T>,
) -> Result<T> {
    let until = Instant::now() + bound;
    loop {
        match look() {
            Ok(seen) => return Ok(seen),
            Err(error) if Instant::now() > until => {
                return Err(error.context(format!("not within {bound:?}: {what}")));
            }
            Err(_) => thread::sleep(LOOK_EVERY),
        }
    }
}
