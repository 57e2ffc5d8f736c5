//! Servers that are started for a comparison, and stopped again whatever happens.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// Ports of the first node that are tried.
const PORTS: std::ops::Range<u16> = 21_300..29_000;
/// How long a server may take until it serves.
const START_MAX: Duration = Duration::from_secs(60);
/// How long it may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(10);

/// A server, or a cluster of them, that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Where clients connect.
    pub(crate) targets: Vec<String>,
    /// Folders in which a node leaves its process id.
    node_dirs: Vec<PathBuf>,
}

impl Server {
    /// Starts beanstalkd with `args` behind its address.
    pub(crate) fn beanstalkd(program: &Path, args: &[&str], log: &Path) -> anyhow::Result<Self> {
        let port = free_ports(1)?;
        let mut command = Command::new(program);
        command
            .args(["-l", "127.0.0.1", "-p", &port.to_string()])
            .args(args);
        Self::start(command, log, vec![port], Vec::new())
    }

    /// Starts a Trellis cluster of `nodes` with its data in `dir`.
    pub(crate) fn trellis(
        program: &Path,
        nodes: u16,
        dir: &Path,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let base = free_ports(nodes * 10)?;
        let mut command = Command::new(program);
        command.arg("local").args([
            "--nodes",
            &nodes.to_string(),
            "--base-port",
            &base.to_string(),
            "--no-restart",
        ]);
        command.arg("--data-dir").arg(dir);
        let ports = (0..nodes).map(|node| base + 10 * node).collect();
        let node_dirs = (0..nodes)
            .map(|node| dir.join(format!("node-{node}")))
            .collect();
        Self::start(command, log, ports, node_dirs)
    }

    fn start(
        mut command: Command,
        log: &Path,
        ports: Vec<u16>,
        node_dirs: Vec<PathBuf>,
    ) -> anyhow::Result<Self> {
        let log_file =
            File::create(log).with_context(|| format!("can't write {}", log.display()))?;
        let name = command.get_program().display().to_string();
        for (variable, _) in std::env::vars_os() {
            // A node takes them for settings; here they are those of whoever measures.
            if variable.to_string_lossy().starts_with("TRELLIS_") {
                command.env_remove(variable);
            }
        }
        command
            .stdin(Stdio::null())
            .stdout(log_file.try_clone()?)
            .stderr(log_file);
        let child = command
            .spawn()
            .with_context(|| format!("can't start {name}"))?;
        let targets = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        let mut server = Self {
            child,
            targets,
            node_dirs,
        };

        let begun = Instant::now();
        for target in server.targets.clone() {
            while let Err(last) = put_and_delete(&target) {
                if let Some(status) = server.child.try_wait()? {
                    bail!("{name} ended at once ({status}); see {}", log.display());
                }
                ensure!(
                    begun.elapsed() < START_MAX,
                    "{target} of {name} does not serve: {last:#}; see {}",
                    log.display()
                );
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(server)
    }

    /// The processes that serve.
    pub(crate) fn pids(&self) -> Vec<u32> {
        if self.node_dirs.is_empty() {
            return vec![self.child.id()];
        }
        self.node_dirs
            .iter()
            .filter_map(|dir| pid_in(dir))
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let nodes = self
            .node_dirs
            .iter()
            .filter_map(|dir| pid_in(dir))
            .collect::<Vec<_>>();
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < STOP_MAX {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
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
        let _ = self.child.kill();
        let _ = self.child.wait();
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
fn free_ports(count: u16) -> anyhow::Result<u16> {
    PORTS
        .step_by(usize::from(count.max(10)))
        // Benchmarks that run at the same time start at different places.
        .skip(std::process::id() as usize % 97)
        .find(|base| {
            (*base..base + count).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        })
        .context("no free ports")
}

/// Proves that a server takes a job and lets go of it.
fn put_and_delete(target: &str) -> anyhow::Result<()> {
    use std::io::{BufRead, BufReader, Write};

    let address: SocketAddr = target.parse()?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let mut ask = |line: &str| -> anyhow::Result<String> {
        stream.write_all(line.as_bytes())?;
        let mut reply = String::new();
        replies.read_line(&mut reply)?;
        Ok(reply.trim_end().to_owned())
    };
    let inserted = ask("put 0 0 60 1\r\nx\r\n")?;
    let id = inserted
        .strip_prefix("INSERTED ")
        .with_context(|| format!("a put is answered with '{inserted}'"))?;
    let deleted = ask(&format!("delete {id}\r\n"))?;
    ensure!(
        deleted == "DELETED",
        "a delete is answered with '{deleted}'"
    );
    Ok(())
}
