use std::{
    fs, io,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::Network;

/// Where clients connect.
const CLIENTS: u16 = 11_300;
/// Where the other nodes connect.
const PEERS: u16 = 11_301;
/// Where the admin port is.
const ADMIN: u16 = 11_302;

/// How long a process may take to be gone after kill -9.
const DEATH_MAX: Duration = Duration::from_secs(20);

/// What a node is started with.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// The program.
    pub binary: PathBuf,
    /// The node's name.
    pub name: String,
    /// Its place's address, last byte.
    pub host: u8,
    /// The last byte of the address at which it listens for peers, if not `host`.
    pub peer_host: Option<u8>,
    /// Its data folder.
    pub data_dir: PathBuf,
    /// Where its standard error goes; it is added to what is there.
    pub log: PathBuf,
    /// NAME=HOST:PORT of all nodes of the first boot.
    pub initial_members: Vec<String>,
    /// More flags of `serve`.
    pub flags: Vec<String>,
    /// Variables of its environment.
    pub variables: Vec<(String, String)>,
}

/// A `trellis serve` in a place of its own; killed when dropped.
#[derive(Debug)]
pub struct NodeProcess {
    launch: Launch,
    addresses: [SocketAddr; 2],
    child: Option<Child>,
    /// How the last process ended, if one did by itself.
    ended: Option<ExitStatus>,
}

impl NodeProcess {
    /// The port at which nodes listen for each other.
    pub const PEER_PORT: u16 = PEERS;

    /// A node that is not started yet.
    pub fn new(network: &Network, launch: Launch) -> Self {
        let at = |port| SocketAddr::from((network.address(launch.host), port));
        Self {
            addresses: [at(CLIENTS), at(ADMIN)],
            launch,
            child: None,
            ended: None,
        }
    }

    /// What it is started with; a change counts from the next start.
    pub fn launch(&mut self) -> &mut Launch {
        &mut self.launch
    }

    /// Where clients connect.
    pub fn clients(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Where its admin port is.
    pub fn admin(&self) -> SocketAddr {
        self.addresses[1]
    }

    /// Starts its process. It goes when the thread that called this ends.
    ///
    /// # Errors
    ///
    /// It runs already, or it can't be started.
    pub fn start(&mut self, network: &Network) -> io::Result<()> {
        if self.is_alive() {
            return Err(io::Error::other(format!(
                "{} runs already",
                self.launch.name
            )));
        }
        let launch = &self.launch;
        let listen = |port| SocketAddr::from((network.address(launch.host), port)).to_string();
        let peer_host = network.address(launch.peer_host.unwrap_or(launch.host));
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(&launch.log)?;
        let mut command = network.command(launch.host, &launch.binary);
        command
            .envs(launch.variables.iter().cloned())
            .args(["serve", "--name", &launch.name])
            .args(["--listen", &listen(CLIENTS)])
            .args(["--peer-listen", &format!("{peer_host}:{PEERS}")])
            .args(["--admin-listen", &listen(ADMIN)])
            .args(["--die-with-parent", &std::process::id().to_string()]);
        if !launch.initial_members.is_empty() {
            command.args(["--initial-members", &launch.initial_members.join(",")]);
        }
        command
            .args(&launch.flags)
            .arg("--data-dir")
            .arg(&launch.data_dir);
        self.child = Some(command.stdout(Stdio::null()).stderr(log).spawn()?);
        self.ended = None;
        Ok(())
    }

    /// Whether its process is there, frozen or not.
    pub fn is_alive(&mut self) -> bool {
        let Some(child) = &mut self.child else {
            return false;
        };
        match child.try_wait() {
            Ok(Some(status)) => {
                self.ended = Some(status);
                self.child = None;
                false
            }
            _ => true,
        }
    }

    /// The exit code of the last process, if it ended by itself.
    pub fn exit_code(&mut self) -> Option<i32> {
        if self.is_alive() {
            return None;
        }
        self.ended?.code()
    }

    /// The process, if it lives.
    pub fn pid(&mut self) -> Option<u32> {
        if !self.is_alive() {
            return None;
        }
        self.child.as_ref().map(Child::id)
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// There is no process.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        let pid = self.pid().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other(format!("{} has no process", self.launch.name)))?;
        Ok(kill_process(pid, signal)?)
    }

    /// kill -9; returns when the process is gone.
    ///
    /// # Errors
    ///
    /// There is no process, or it does not go.
    pub fn kill(&mut self) -> io::Result<()> {
        self.signal(Signal::KILL)?;
        self.wait_for_end(DEATH_MAX)
    }

    /// Waits until its process is gone.
    ///
    /// # Errors
    ///
    /// It is still there after `bound`.
    pub fn wait_for_end(&mut self, bound: Duration) -> io::Result<()> {
        let until = Instant::now() + bound;
        while self.is_alive() {
            if Instant::now() > until {
                let words = format!("{} does not end within {bound:?}", self.launch.name);
                return Err(io::Error::other(words));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Waits until clients can connect.
    ///
    /// # Errors
    ///
    /// They can't within `bound`, or the process ends; its own words are included.
    pub fn wait_until_it_serves(&mut self, bound: Duration) -> io::Result<()> {
        let until = Instant::now() + bound;
        loop {
            let Err(error) = TcpStream::connect_timeout(&self.clients(), Duration::from_secs(1))
            else {
                return Ok(());
            };
            let alive = self.is_alive();
            if !alive || Instant::now() > until {
                let code = self.exit_code();
                let (name, words) = (&self.launch.name, self.last_words(40));
                return Err(io::Error::other(format!(
                    "{name} does not serve ({error}; exit code: {code:?}); it says:\n{words}"
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The end of its log, at most so many lines.
    pub fn last_words(&self, lines: usize) -> String {
        last_lines(&self.launch.log, lines)
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn last_lines(path: &Path, lines: usize) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
