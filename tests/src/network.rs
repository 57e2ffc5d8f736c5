use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::Client;

/// How long a cluster may take to form.
const READY_MAX: Duration = Duration::from_secs(60);

/// Three nodes, each in a network of its own behind a bridge of this machine, so that a node can fall silent: its
/// process lives and its packets go nowhere. Needs root. All of it is gone when dropped.
pub struct Network {
    /// Starts the names of everything that is made, so that two of these do not meet.
    prefix: String,
    /// Third byte of all addresses, 10.231.x.*.
    subnet: u8,
    nodes: Vec<Child>,
    folder: TempDir,
}

impl Network {
    /// True if this process may make networks.
    pub fn is_possible() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Starts `nodes` nodes and waits until each serves.
    ///
    /// # Errors
    ///
    /// A network can't be made, or a node does not serve in time; its own words are included.
    pub fn start(binary: &Path, nodes: u8) -> io::Result<Self> {
        Self::start_with(binary, nodes, |_| Vec::new())
    }

    /// As [`Self::start`], with variables for each node.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn start_with(
        binary: &Path,
        nodes: u8,
        variables: impl Fn(u8) -> Vec<(String, String)>,
    ) -> io::Result<Self> {
        let pid = std::process::id();
        let mut network = Self {
            prefix: format!("tr{}", pid % 100_000),
            subnet: (pid % 250) as u8,
            nodes: Vec::new(),
            folder: TempDir::with_prefix("trellis-network-")?,
        };
        // What a run that was killed left behind under the same number.
        network.remove(nodes);
        let bridge = network.bridge();
        let own = format!("10.231.{}.254/24", network.subnet);
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["addr", "add", &own, "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for node in 0..nodes {
            network.connect(node)?;
        }
        let members: Vec<_> = (0..nodes)
            .map(|node| format!("node-{node}={}", network.at(node, 11301)))
            .collect();
        for node in 0..nodes {
            let child = network.spawn(binary, node, &members.join(","), variables(node))?;
            network.nodes.push(child);
        }
        for node in 0..nodes {
            network.wait_until_it_serves(node)?;
        }
        Ok(network)
    }

    /// Where clients connect to node `node`.
    pub fn address(&self, node: u8) -> SocketAddr {
        self.at(node, 11300)
    }

    /// From now on nothing reaches the node and nothing leaves it; nobody is told.
    ///
    /// # Errors
    ///
    /// iptables can't do it.
    pub fn silence(&self, node: u8) -> io::Result<()> {
        self.inside(
            node,
            &["iptables", "-I", "OUTPUT", "!", "-o", "lo", "-j", "DROP"],
        )?;
        self.inside(
            node,
            &["iptables", "-I", "INPUT", "!", "-i", "lo", "-j", "DROP"],
        )
    }

    /// The node is heard and hears again.
    ///
    /// # Errors
    ///
    /// As [`Self::silence`].
    pub fn heal(&self, node: u8) -> io::Result<()> {
        self.inside(node, &["iptables", "-F"])
    }

    fn at(&self, node: u8, port: u16) -> SocketAddr {
        (Ipv4Addr::new(10, 231, self.subnet, node + 1), port).into()
    }

    fn bridge(&self) -> String {
        format!("{}b", self.prefix)
    }

    fn namespace(&self, node: u8) -> String {
        format!("{}-{node}", self.prefix)
    }

    fn cable(&self, node: u8) -> String {
        format!("{}v{node}", self.prefix)
    }

    /// Makes the node's network and plugs it into the bridge.
    fn connect(&self, node: u8) -> io::Result<()> {
        let (space, cable) = (self.namespace(node), self.cable(node));
        let address = format!("{}/24", self.at(node, 0).ip());
        ip(&["netns", "add", &space])?;
        ip(&[
            "link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &space,
        ])?;
        ip(&["link", "set", &cable, "master", &self.bridge(), "up"])?;
        self.inside(node, &["ip", "addr", "add", &address, "dev", "eth0"])?;
        self.inside(node, &["ip", "link", "set", "eth0", "up"])?;
        self.inside(node, &["ip", "link", "set", "lo", "up"])
    }

    fn spawn(
        &self,
        binary: &Path,
        node: u8,
        members: &str,
        variables: Vec<(String, String)>,
    ) -> io::Result<Child> {
        let listen = |port| self.at(node, port).to_string();
        let mut command = Command::new("ip");
        for (name, _) in std::env::vars_os() {
            // To a node these would be settings; here they are ours (`TRELLIS_ROUNDS` and the like).
            if name.to_string_lossy().starts_with("TRELLIS_") {
                command.env_remove(name);
            }
        }
        command
            .envs(variables)
            .args(["netns", "exec", &self.namespace(node)])
            .arg(binary)
            .args(["serve", "--name", &format!("node-{node}")])
            .args(["--listen", &listen(11300), "--peer-listen", &listen(11301)])
            .args([
                "--admin-listen",
                &listen(11302),
                "--initial-members",
                members,
            ])
            .arg("--data-dir")
            .arg(self.folder.path().join(format!("node-{node}")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.log(node))?)
            .spawn()
    }

    fn log(&self, node: u8) -> std::path::PathBuf {
        self.folder.path().join(format!("node-{node}.log"))
    }

    fn wait_until_it_serves(&mut self, node: u8) -> io::Result<()> {
        let until = Instant::now() + READY_MAX;
        loop {
            let Err(error) = Client::connect(self.address(node)) else {
                return Ok(());
            };
            let ended = self.nodes[usize::from(node)].try_wait()?;
            if ended.is_some() || Instant::now() > until {
                let log = fs::read_to_string(self.log(node)).unwrap_or_default();
                return Err(io::Error::other(format!(
                    "node {node} does not serve ({error}; ended: {ended:?}); it says:\n{log}"
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a command in the node's network.
    fn inside(&self, node: u8, command: &[&str]) -> io::Result<()> {
        let space = self.namespace(node);
        let mut words = vec!["netns", "exec", &space];
        words.extend(command);
        ip(&words)
    }

    fn remove(&self, nodes: u8) {
        for node in 0..nodes {
            // The kernel takes a network down after the word is given; the cable, by itself, at once.
            let _ = ip(&["link", "del", &self.cable(node)]);
            let _ = ip(&["netns", "del", &self.namespace(node)]);
        }
        let _ = ip(&["link", "del", &self.bridge()]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
        self.remove(self.nodes.len().try_into().unwrap_or(u8::MAX));
    }
}

fn ip(words: &[&str]) -> io::Result<()> {
    let done = Command::new("ip")
        .args(words)
        .stdin(Stdio::null())
        .output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(io::Error::other(format!("ip {}: {said}", words.join(" "))))
}
