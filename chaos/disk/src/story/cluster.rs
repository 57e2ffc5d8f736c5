use std::{
    fs::{self, File},
    io,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use trellis_testkit::process::{free_base_port, without_settings};

use crate::Plug;

/// Nodes of a story's cluster.
pub(super) const NODES: usize = 3;

/// How long the nodes may take until all are ready.
const READY_MAX: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How a cluster is made.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// The `trellis` to run.
    pub(super) trellis: PathBuf,
    /// The `trellis-chaos-disk` to mount with.
    pub(super) layer: PathBuf,
    /// Settings of every node, KEY=VALUE.
    pub(super) set: Vec<String>,
    /// Whether syncs of the layers wait for the disk beneath.
    pub(super) syncs_beneath: bool,
}

/// Three nodes, each with its data folder on a disk of its own that can be broken.
pub(super) struct Cluster {
    // Processes first, then the disks that they have open.
    nodes: Vec<Node>,
    disks: Vec<Plug>,
    plan: Plan,
    base_port: u16,
    folder: TempDir,
}

#[derive(Default)]
struct Node {
    child: Option<Child>,
    /// How long its log was when it was started last.
    log_before: usize,
}

impl Node {
    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref();
        let pid = child.and_then(|child| Pid::from_raw(i32::try_from(child.id()).ok()?));
        if let Some(pid) = pid {
            // It may have ended by itself.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for disk in &self.disks {
            // Who hangs in a sync cannot die.
            let _ = disk.tell("off all");
        }
        for node in &mut self.nodes {
            if let Some(mut child) = node.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

impl Cluster {
    /// Mounts three disks, starts three nodes on them, and waits until all are ready.
    pub(super) fn start(plan: Plan) -> Result<Self> {
        let folder = TempDir::with_prefix("trellis-disks-")?;
        let mut disks = Vec::new();
        for node in 0..NODES {
            let (mount, objects) = (
                folder.path().join(format!("node-{node}")),
                folder.path().join(format!("disk-{node}")),
            );
            disks.push(Plug::mount(
                &plan.layer,
                &mount,
                &objects,
                plan.syncs_beneath,
            )?);
        }
        let mut cluster = Self {
            nodes: (0..NODES).map(|_| Node::default()).collect(),
            disks,
            plan,
            base_port: free_base_port()?,
            folder,
        };
        for node in 0..NODES {
            cluster.start_node(node)?;
        }
        cluster.wait_until_ready(&[0, 1, 2])?;
        Ok(cluster)
    }

    /// What a history calls a node.
    pub(super) fn name(node: usize) -> String {
        format!("n{node}")
    }

    fn port(&self, node: usize, which: u16) -> SocketAddr {
        let node = u16::try_from(node).unwrap_or_default();
        (Ipv4Addr::LOCALHOST, self.base_port + 10 * node + which).into()
    }

    /// Where a node's clients connect.
    pub(super) fn clients(&self, node: usize) -> SocketAddr {
        self.port(node, 0)
    }

    /// A node's admin port.
    pub(super) fn admin(&self, node: usize) -> SocketAddr {
        self.port(node, 2)
    }

    /// A node's disk.
    pub(super) fn disk(&self, node: usize) -> &Plug {
        &self.disks[node]
    }

    fn log_path(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("node-{node}.log"))
    }

    /// What a node has said since it was started last.
    pub(super) fn log(&self, node: usize) -> String {
        let text = fs::read(self.log_path(node)).unwrap_or_default();
        let recent = text.get(self.nodes[node].log_before..).unwrap_or_default();
        String::from_utf8_lossy(recent).into_owned()
    }

    /// The last lines of every node.
    pub(super) fn last_words(&self) -> String {
        let mut words = String::new();
        for node in 0..NODES {
            let log = self.log(node);
            let lines: Vec<&str> = log.lines().collect();
            let from = lines.len().saturating_sub(12);
            words.push_str(&format!("-- node {node}\n{}\n", lines[from..].join("\n")));
        }
        words
    }

    /// Starts a node that does not run.
    pub(super) fn start_node(&mut self, node: usize) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path(node))?;
        self.nodes[node].log_before = usize::try_from(log.metadata()?.len())?;
        let members: Vec<String> = (0..NODES)
            .map(|node| format!("trellis-{node}={}", self.port(node, 1)))
            .collect();
        let mut command = without_settings(&self.plan.trellis);
        command
            .args(["serve", "--name", &format!("trellis-{node}"), "--data-dir"])
            .arg(self.disks[node].path())
            .args(["--listen", &self.port(node, 0).to_string()])
            .args(["--peer-listen", &self.port(node, 1).to_string()])
            .args(["--peer-address", &self.port(node, 1).to_string()])
            .args(["--admin-listen", &self.port(node, 2).to_string()])
            .args(["--initial-members", &members.join(",")])
            .args(["--set", "log=warn"]);
        for pair in &self.plan.set {
            command.args(["--set", pair]);
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command
            .spawn()
            .with_context(|| format!("can't start {}", self.plan.trellis.display()))?;
        self.nodes[node].child = Some(child);
        Ok(())
    }

    /// SIGKILL, SIGSTOP, SIGCONT …
    pub(super) fn signal(&self, node: usize, signal: Signal) {
        self.nodes[node].signal(signal);
    }

    /// Waits until a process is gone; how it ended.
    pub(super) fn wait_for_end(&mut self, node: usize, within: Duration) -> Result<ExitStatus> {
        let until = Instant::now() + within;
        loop {
            let child = self.nodes[node].child.as_mut();
            let child = child.with_context(|| format!("node {node} does not run"))?;
            if let Some(status) = child.try_wait()? {
                self.nodes[node].child = None;
                return Ok(status);
            }
            if Instant::now() > until {
                bail!(
                    "node {node} still runs after {within:?}\n{}",
                    self.last_words()
                );
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// kill -9 at one moment, then the power of their disks, then it comes back. What was lost, by node. Each disk has
    /// a seed of its own.
    pub(super) fn cut_power(
        &mut self,
        nodes: &[usize],
        how: &str,
        seed: u64,
    ) -> Result<Vec<Value>> {
        for node in nodes {
            self.signal(*node, Signal::KILL);
        }
        let mut lost = Vec::new();
        for node in nodes {
            let seed = seed.wrapping_add(*node as u64);
            lost.push(self.disks[*node].tell(&format!("cut {how} seed={seed}"))?["lost"].clone());
        }
        for node in nodes {
            self.disks[*node].tell("off all")?;
            self.wait_for_end(*node, Duration::from_secs(10))?;
        }
        Ok(lost)
    }

    /// Waits until these nodes say that they are ready and take connections.
    pub(super) fn wait_until_ready(&mut self, nodes: &[usize]) -> Result<Duration> {
        let begin = Instant::now();
        for node in nodes {
            while !self.is_ready(*node) {
                if let Some(child) = self.nodes[*node].child.as_mut()
                    && let Some(status) = child.try_wait()?
                {
                    bail!("node {node} ended: {status}\n{}", self.last_words());
                }
                if begin.elapsed() > READY_MAX {
                    bail!(
                        "node {node} is not ready within {READY_MAX:?}\n{}",
                        self.last_words()
                    );
                }
                thread::sleep(LOOK_EVERY);
            }
        }
        Ok(begin.elapsed())
    }

    /// Whether a node says that it is ready, and lets clients in.
    pub(super) fn is_ready(&self, node: usize) -> bool {
        trellis_tests::get(self.admin(node), "/readyz").is_ok()
            && TcpStream::connect_timeout(&self.clients(node), Duration::from_secs(1)).is_ok()
    }

    /// A node's own view of the cluster.
    pub(super) fn status(&self, node: usize) -> io::Result<Value> {
        trellis_tests::status(self.admin(node))
    }

    /// Who leads, as these nodes agree.
    pub(super) fn leader(&self, among: &[usize]) -> Result<usize> {
        let until = Instant::now() + READY_MAX;
        loop {
            let said: Vec<_> = among
                .iter()
                .map(|node| trellis_tests::stats(self.clients(*node)))
                .collect();
            let leads = |stats: &io::Result<std::collections::BTreeMap<String, String>>| {
                let stats = stats.as_ref().ok()?;
                Some(stats.get("trellis-node")? == stats.get("trellis-leader")?)
            };
            let leaders: Vec<usize> = among
                .iter()
                .zip(&said)
                .filter(|(_, stats)| leads(stats) == Some(true))
                .map(|(node, _)| *node)
                .collect();
            if let [leader] = leaders[..]
                && said.iter().all(|stats| leads(stats).is_some())
            {
                return Ok(leader);
            }
            if Instant::now() > until {
                bail!(
                    "no one leader among {among:?}: {said:?}\n{}",
                    self.last_words()
                );
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}
