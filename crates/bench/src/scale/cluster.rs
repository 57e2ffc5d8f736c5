//! A Trellis cluster, as its machine sees it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::figures::{Figures, cpu_seconds_of, rss_bytes_of};
use crate::plan::{Load, Mix, Plan};
use crate::servers::{Launch, Server};
use crate::{drive, servers};

/// A node's admin port lies so far above that of its clients.
const ADMIN_ABOVE: u16 = 2;

pub(super) struct Cluster {
    program: PathBuf,
    nodes: u16,
    launch: Launch,
    settings: Vec<String>,
    base: u16,
    server: Option<Server>,
}

impl Cluster {
    /// Starts one. `settings` are keys of its configuration.
    pub(super) fn start(
        program: &Path,
        nodes: u16,
        launch: Launch,
        settings: &[&str],
    ) -> anyhow::Result<Self> {
        let mut cluster = Self {
            program: program.to_owned(),
            nodes,
            launch,
            settings: settings.iter().map(|it| (*it).to_owned()).collect(),
            base: servers::free_ports(nodes * 10)?,
            server: None,
        };
        cluster.start_again()?;
        Ok(cluster)
    }

    /// Starts it where its data is, on the same ports; how long that took until every node had taken a put.
    pub(super) fn start_again(&mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let server = Server::trellis_at(
            &self.program,
            self.nodes,
            self.base,
            &self.settings,
            &self.launch,
        )?;
        self.server = Some(server);
        Ok(begun.elapsed())
    }

    /// Stops it in good order.
    pub(super) fn stop(&mut self) {
        self.server = None;
    }

    /// Kills every node.
    pub(super) fn kill(&mut self) {
        if let Some(server) = &self.server {
            server.kill_nodes();
        }
        self.server = None;
    }

    pub(super) fn targets(&self) -> Vec<String> {
        self.server
            .as_ref()
            .map(|server| server.targets.clone())
            .unwrap_or_default()
    }

    fn pids(&self) -> Vec<u32> {
        self.server.as_ref().map(Server::pids).unwrap_or_default()
    }

    /// Bytes of each node that are in memory.
    pub(super) fn rss(&self) -> Vec<f64> {
        let of = |pid| rss_bytes_of(pid).map_or(f64::NAN, |bytes| bytes as f64);
        self.pids().into_iter().map(of).collect()
    }

    /// CPU seconds of each node so far.
    pub(super) fn cpu(&self) -> Vec<f64> {
        let of = |pid| cpu_seconds_of(pid).unwrap_or(f64::NAN);
        self.pids().into_iter().map(of).collect()
    }

    /// Bytes that each node has had written to the disk so far.
    pub(super) fn written(&self) -> Vec<f64> {
        self.pids().into_iter().map(written_bytes_of).collect()
    }

    /// Bytes that all nodes' files take on the disk.
    pub(super) fn disk_bytes(&self) -> u64 {
        disk_bytes(&self.launch.dir)
    }

    /// Measures a load over all nodes.
    pub(super) fn load(&self, load: &Load) -> anyhow::Result<Figures> {
        let figures = drive::run(&Plan::new(&self.targets(), load, &[])?)?;
        ensure!(
            figures.failed == 0,
            "{} operations failed: {}",
            figures.failed,
            figures.failures.join("; ")
        );
        Ok(figures)
    }

    /// Asks for something at the admin port of node `index`; what it answers.
    pub(super) fn post(&self, index: u16, path: &str) -> anyhow::Result<String> {
        let port = self.base + 10 * index + ADMIN_ABOVE;
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.lines().next().unwrap_or_default();
        let said = answer.lines().last().unwrap_or(status);
        ensure!(status.contains(" 200"), "{path}: {said}");
        Ok(said.to_owned())
    }

    pub(super) fn nodes(&self) -> u16 {
        self.nodes
    }
}

/// A closed loop of small jobs.
pub(super) fn closed(mix: Mix, connections: usize, seconds: f64) -> Load {
    Load {
        dialect: drive::Tongue::Beanstalk,
        mix,
        connections,
        depth: 1,
        body_bytes: 256,
        tubes: 1,
        roam: 0,
        rate: None,
        warm_up: 1.0,
        seconds,
        threads: 1,
        patience: 30.0,
    }
}

/// What others do meanwhile: a few hundred puts a second, each sent when it is due.
pub(super) fn others(seconds: f64) -> Load {
    Load {
        depth: 256,
        rate: Some(500.0),
        ..closed(Mix::Put, 15, seconds)
    }
}

fn written_bytes_of(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|value| value.trim().parse().ok())
        .unwrap_or(f64::NAN)
}

/// What a folder's files take; a file that goes meanwhile is not counted.
fn disk_bytes(dir: &Path) -> u64 {
    use std::collections::BTreeSet;
    use std::os::unix::fs::MetadataExt;

    fn walk(dir: &Path, seen: &mut BTreeSet<u64>) -> u64 {
        let mut sum = 0;
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                sum += walk(&entry.path(), seen);
            } else if seen.insert(metadata.ino()) {
                // A snapshot's files are links to those of the state.
                sum += metadata.blocks() * 512;
            }
        }
        sum
    }
    walk(dir, &mut BTreeSet::new())
}

/// Waits until something is so.
pub(super) fn wait_until(
    what: &str,
    bound: Duration,
    mut is_so: impl FnMut() -> anyhow::Result<Result<(), String>>,
) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    loop {
        match is_so()? {
            Ok(()) => return Ok(begun.elapsed()),
            Err(last) => ensure!(
                begun.elapsed() < bound,
                "{what}: not within {} s; last seen: {last}",
                bound.as_secs()
            ),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The largest of some nodes' figures.
pub(super) fn largest(of: &[f64]) -> f64 {
    of.iter().copied().fold(f64::NAN, f64::max)
}

/// What each node's figure grew by.
pub(super) fn growth(before: &[f64], after: &[f64]) -> Vec<f64> {
    before
        .iter()
        .zip(after)
        .map(|(before, after)| after - before)
        .collect()
}

/// A latency of the whole operation.
pub(super) fn p99(figures: &Figures) -> anyhow::Result<f64> {
    let latency = crate::table::main_latency(figures).context("nothing was timed")?;
    Ok(latency.p99_us)
}
