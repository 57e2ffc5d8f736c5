//! Servers that are started for a comparison, and stopped again whatever happens.

mod beanstalkd;
mod etcd;
mod nats;
mod rabbitmq;
mod redis;
mod site;
mod trellis;

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::drive::{self, Tongue};

pub(crate) use nats::Sync as NatsSync;
pub(crate) use site::Site;

/// Ports of the first node that are tried.
const PORTS: std::ops::Range<u16> = 21_300..29_000;
/// How long a server may take until it serves.
const START_MAX: Duration = Duration::from_secs(240);
/// How long it may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(60);
/// How long one try at finding out whether it serves may take.
const PROOF_MAX: Duration = Duration::from_secs(5);

/// Where a server's things go.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// Its data and its settings; empty before.
    pub(crate) dir: PathBuf,
    /// What it says; made anew.
    pub(crate) log: PathBuf,
    /// Where its system calls that make data durable are written down, one a line, with the moment; slows it.
    pub(crate) trace: Option<PathBuf>,
    /// The [`Site`] on whose ground this is.
    site: PathBuf,
}

impl Launch {
    /// The same, with the calls that make data durable written down.
    pub(crate) fn traced(mut self) -> Self {
        self.trace = Some(self.dir.join("trace"));
        self
    }

    /// `program`, so that it ends with us even if we are killed, and traced if that is wanted.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]);
        if let Some(trace) = &self.trace {
            // -D: the server is our child and strace its; --seccomp-bpf: only these calls are stopped at.
            command.args(["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-ttt"]);
            command.args(["-e", "trace=fsync,fdatasync,sync_file_range,msync"]);
            command.args(["-e", "signal=none", "-o"]).arg(trace);
        }
        command.arg(program);
        command
    }

    /// A folder of its own in the server's.
    fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(name);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("can't create {}", path.display()))?;
        Ok(path)
    }
}

/// A server, or a cluster of them, that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    children: Vec<Child>,
    /// How many of the first children only serve the others.
    attendants: usize,
    /// Where clients connect.
    pub(crate) targets: Vec<String>,
    tongue: Tongue,
    name: String,
    log: PathBuf,
    site: PathBuf,
    /// Folders in which a node leaves its process id, if the nodes are not our own children.
    node_dirs: Vec<PathBuf>,
}

impl Server {
    /// One that has no process yet.
    fn new(name: &str, launch: &Launch, tongue: Tongue, ports: &[u16]) -> anyhow::Result<Self> {
        File::create(&launch.log)
            .with_context(|| format!("can't write {}", launch.log.display()))?;
        Ok(Self {
            children: Vec::new(),
            attendants: 0,
            targets: ports
                .iter()
                .map(|port| format!("127.0.0.1:{port}"))
                .collect(),
            tongue,
            name: name.to_owned(),
            log: launch.log.clone(),
            site: launch.site.clone(),
            node_dirs: Vec::new(),
        })
    }

    fn spawn(&mut self, mut command: Command) -> anyhow::Result<()> {
        let log = File::options().append(true).open(&self.log)?;
        for (variable, _) in std::env::vars_os() {
            // A node takes them for settings; here they are those of whoever measures.
            if variable.to_string_lossy().starts_with("TRELLIS_") {
                command.env_remove(variable);
            }
        }
        command
            .env(site::MARK, &self.site)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let _starting = site::starting();
        let child = command
            .spawn()
            .with_context(|| format!("can't start {}", self.name))?;
        self.children.push(child);
        Ok(())
    }

    /// Waits until each of the first `count` targets takes a job.
    fn wait_for(&mut self, count: usize) -> anyhow::Result<()> {
        let begun = Instant::now();
        for target in self.targets.iter().take(count) {
            let address: SocketAddr = target.parse()?;
            while let Err(last) = drive::prove(address, self.tongue, PROOF_MAX) {
                for child in &mut self.children {
                    if let Some(status) = child.try_wait()? {
                        bail!(
                            "{} ended at once ({status}); see {}",
                            self.name,
                            self.log.display()
                        );
                    }
                }
                ensure!(
                    begun.elapsed() < START_MAX,
                    "{target} of {} does not serve: {last:#}; see {}",
                    self.name,
                    self.log.display()
                );
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// All that it needs is running: waits until it serves everywhere.
    fn ready(mut self) -> anyhow::Result<Self> {
        self.wait_for(self.targets.len())?;
        Ok(self)
    }

    /// Kills the processes that serve, without a word.
    pub(crate) fn kill_nodes(&self) {
        for pid in self.pids() {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// The processes that serve.
    pub(crate) fn pids(&self) -> Vec<u32> {
        if self.node_dirs.is_empty() {
            let serving = self.children.iter().skip(self.attendants);
            return serving.map(Child::id).collect();
        }
        self.node_dirs
            .iter()
            .filter_map(|dir| pid_in(dir))
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let nodes: Vec<u32> = self
            .node_dirs
            .iter()
            .filter_map(|dir| pid_in(dir))
            .collect();
        // Attendants last: the others take leave of them.
        for child in self.children.iter().rev() {
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
        let begun = Instant::now();
        while begun.elapsed() < STOP_MAX {
            let stopped = |child: &mut Child| matches!(child.try_wait(), Ok(Some(_)));
            if self.children.iter_mut().all(stopped) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // It did not stop as asked: nothing of it may stay behind.
        for pid in nodes {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn pid_in(dir: &Path) -> Option<u32> {
    std::fs::read_to_string(dir.join("pid"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// The first of `count` ports in a row that nobody listens on.
pub(crate) fn free_ports(count: u16) -> anyhow::Result<u16> {
    PORTS
        .step_by(usize::from(count.max(10)))
        // Benchmarks that run at the same time start at different places.
        .skip(std::process::id() as usize % 97)
        .find(|base| {
            (*base..base + count).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        })
        .context("no free ports")
}

/// What a program says of its version: the first line that it prints when asked.
pub(crate) fn version_of(program: &Path, flag: &str) -> Option<String> {
    let said = Command::new(program)
        .arg(flag)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    text.lines().next().map(|line| line.trim().to_owned())
}
