use std::{
    env, fs,
    io::{self, BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::free_base_port;

/// How long a cluster may take to form.
const READY_MAX: Duration = Duration::from_secs(60);

/// How long `trellis local` may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(10);

/// The trellis binary to test: `TRELLIS_BIN`, or the one that was built beside the running test.
///
/// # Errors
///
/// There is none; the message says how to get one.
pub fn trellis_binary() -> io::Result<PathBuf> {
    if let Some(path) = env::var_os("TRELLIS_BIN") {
        return Ok(path.into());
    }
    // target/<profile>/deps/<test> → target/<profile>/trellis
    let test = env::current_exe()?;
    let beside = test
        .parent()
        .and_then(Path::parent)
        .map(|folder| folder.join("trellis"));
    beside.filter(|path| path.is_file()).ok_or_else(|| {
        io::Error::other("no trellis binary: run `cargo build -p trellis` or set TRELLIS_BIN")
    })
}

/// A `trellis local` with its nodes, all stopped when dropped.
pub struct Cluster {
    local: Child,
    binary: PathBuf,
    base_port: u16,
    nodes: u16,
    revives: bool,
    folder: TempDir,
}

impl Cluster {
    /// Starts `nodes` nodes (at most 3) and waits for the line "cluster ready". A node that dies
    /// stays dead.
    ///
    /// # Errors
    ///
    /// It cannot be started, ends early, or does not get ready in time; its own words are
    /// included.
    pub fn start(binary: &Path, nodes: u16) -> io::Result<Self> {
        Self::start_with(binary, nodes, false)
    }

    /// As [`Self::start`], but a node that dies is started again after three seconds, by
    /// `trellis local` itself.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn start_reviving(binary: &Path, nodes: u16) -> io::Result<Self> {
        Self::start_with(binary, nodes, true)
    }

    fn start_with(binary: &Path, nodes: u16, revives: bool) -> io::Result<Self> {
        let base_port = free_base_port()?;
        let folder = TempDir::with_prefix("trellis-cluster-")?;
        let local = spawn(binary, nodes, base_port, revives, &folder)?;
        let mut cluster = Self {
            local,
            binary: binary.to_owned(),
            base_port,
            nodes,
            revives,
            folder,
        };
        cluster.wait_until_ready()?;
        Ok(cluster)
    }

    /// kill -9 of every node at once, then all of them again on the same ports and data.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn kill_all_and_restart(&mut self) -> io::Result<()> {
        // First the one that would revive them.
        self.local.kill()?;
        self.local.wait()?;
        for node in 0..self.nodes {
            // One that is dead already is as good.
            let _ = self.kill(node);
        }
        // Their ports are free when the kernel has taken them apart to the last thread.
        let until = Instant::now() + STOP_MAX;
        let ports = (0..self.nodes).flat_map(|node| [0, 1, 2].map(|port| 10 * node + port));
        for port in ports.map(|port| self.base_port + port) {
            while TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
                if Instant::now() > until {
                    return Err(io::Error::other(format!("port {port} outlives kill -9")));
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        self.local = spawn(
            &self.binary,
            self.nodes,
            self.base_port,
            self.revives,
            &self.folder,
        )?;
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let stdout = self.local.stdout.take();
        let log_path = self.folder.path().join("log");
        let (said, hear) = mpsc::channel();
        // Reads on to the end, so that the pipe never fills up.
        thread::spawn(move || {
            for line in stdout
                .into_iter()
                .flat_map(|out| BufReader::new(out).lines())
            {
                let Ok(line) = line else { return };
                let _ = said.send(line);
            }
        });
        let until = Instant::now() + READY_MAX;
        let mut lines = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match hear.recv_timeout(left) {
                Ok(line) if line.contains("cluster ready") => return Ok(()),
                Ok(line) => lines.push(line),
                Err(gone) => {
                    let log = fs::read_to_string(&log_path).unwrap_or_default();
                    return Err(io::Error::other(format!(
                        "the cluster is not ready ({gone}); it said {lines:#?}\n{log}"
                    )));
                }
            }
        }
    }

    /// Where clients connect to node `node`, from 0.
    pub fn address(&self, node: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.base_port + 10 * node).into()
    }

    /// Where node `node` answers health and admin requests.
    pub fn admin_address(&self, node: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.base_port + 10 * node + 2).into()
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> u16 {
        self.nodes
    }

    /// The folder under which each node has its data.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The process of node `node`, from the file that it writes.
    ///
    /// # Errors
    ///
    /// The file is missing or holds no pid.
    pub fn pid(&self, node: u16) -> io::Result<Pid> {
        let text = fs::read_to_string(self.data_dir().join(format!("node-{node}/pid")))?;
        let pid = text.trim().parse().ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| io::Error::other(format!("{text:?} is no pid")))
    }

    /// kill -9 of one node.
    ///
    /// # Errors
    ///
    /// As [`Self::pid`], or it is gone already.
    pub fn kill(&self, node: u16) -> io::Result<()> {
        self.signal(node, Signal::KILL)
    }

    /// SIGSTOP: the node's sockets stay, and it neither hears nor says anything.
    ///
    /// # Errors
    ///
    /// As [`Self::kill`].
    pub fn freeze(&self, node: u16) -> io::Result<()> {
        self.signal(node, Signal::STOP)
    }

    /// Lets a frozen node go on.
    ///
    /// # Errors
    ///
    /// As [`Self::kill`].
    pub fn thaw(&self, node: u16) -> io::Result<()> {
        self.signal(node, Signal::CONT)
    }

    fn signal(&self, node: u16, signal: Signal) -> io::Result<()> {
        Ok(kill_process(self.pid(node)?, signal)?)
    }

    /// What the nodes have written to standard error so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let pids: Vec<_> = (0..self.nodes)
            .filter_map(|node| self.pid(node).ok())
            .collect();
        for pid in &pids {
            // A frozen one would not hear that it is over.
            let _ = kill_process(*pid, Signal::CONT);
        }
        if let Some(pid) = i32::try_from(self.local.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let until = Instant::now() + STOP_MAX;
        while matches!(self.local.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
        }
        if matches!(self.local.try_wait(), Ok(None)) {
            let _ = self.local.kill();
            let _ = self.local.wait();
            // Its children may have outlived it. Their pid files are ours and recent.
            for pid in pids {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

fn spawn(
    binary: &Path,
    nodes: u16,
    base_port: u16,
    revives: bool,
    folder: &TempDir,
) -> io::Result<Child> {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(folder.path().join("log"))?;
    let mut local = super::without_settings(binary);
    local.args(["local", "--nodes", &nodes.to_string()]);
    if !revives {
        local.arg("--no-restart");
    }
    local
        .arg("--data-dir")
        .arg(folder.path().join("data"))
        .args(["--base-port", &base_port.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
}
