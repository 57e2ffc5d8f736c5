//! Networks for processes: each place is a network namespace with an address of its own, all of
//! them plugged into one bridge of this machine, so that packets can be lost between them while
//! the processes live. Needs root.

mod filter;
mod nodes;

pub use filter::{Filter, Hook};
pub use nodes::{Launch, NodeProcess};

use std::{
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

/// What every name of ours starts with.
const PREFIX: &str = "tr";

/// The last byte of this machine's own address on the bridge.
const OWN_HOST: u8 = 254;

/// A bridge and the places behind it. All of it is gone when dropped.
#[derive(Debug)]
pub struct Network {
    /// Starts the names of everything that is made, so that two of these do not meet.
    prefix: String,
    /// Third byte of all addresses, 10.231.x.*.
    subnet: u8,
    places: Mutex<Vec<u8>>,
}

impl Network {
    /// True if this process may make networks.
    pub fn is_possible() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Lays the bridge. What processes that were killed left behind is taken away first.
    ///
    /// # Errors
    ///
    /// The kernel can't do it, or all subnets are taken.
    pub fn lay() -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        sweep();
        let pid = std::process::id();
        let count = COUNT.fetch_add(1, Ordering::Relaxed) % 26;
        let letter = char::from(b'a' + count as u8);
        let mut network = Self {
            // An interface's name has at most 15 bytes.
            prefix: format!("{PREFIX}{pid}{letter}"),
            subnet: 0,
            places: Mutex::new(Vec::new()),
        };
        network.subnet = free_subnet(pid)?;
        let bridge = network.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        network.answer_here(OWN_HOST)?;
        ip(&["link", "set", &bridge, "up"])?;
        Ok(network)
    }

    /// The address of the place `host`, or any other on this network.
    pub fn address(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 231, self.subnet, host)
    }

    /// This machine's own address on the network: where clients come from.
    pub fn own_address(&self) -> Ipv4Addr {
        self.address(OWN_HOST)
    }

    /// Gives this machine one more address on the network.
    ///
    /// # Errors
    ///
    /// It has it already.
    pub fn answer_here(&self, host: u8) -> io::Result<()> {
        let address = format!("{}/24", self.address(host));
        ip(&["addr", "add", &address, "dev", &self.bridge()])?;
        Ok(())
    }

    /// Makes a place with the address `host` and plugs it in.
    ///
    /// # Errors
    ///
    /// The kernel can't do it, or the place is there already.
    pub fn add(&self, host: u8) -> io::Result<()> {
        let (space, cable) = (self.namespace(host), self.cable(host));
        self.places().push(host);
        ip(&["netns", "add", &space])?;
        ip(&[
            "link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &space,
        ])?;
        ip(&["link", "set", &cable, "master", &self.bridge(), "up"])?;
        self.give(host, host)?;
        self.run(host, &["ip", "link", "set", "eth0", "up"])?;
        self.run(host, &["ip", "link", "set", "lo", "up"])?;
        Ok(())
    }

    /// Gives the place `host` the address `address` besides those it has.
    ///
    /// # Errors
    ///
    /// It has it already, or there is no such place.
    pub fn give(&self, host: u8, address: u8) -> io::Result<()> {
        let address = format!("{}/24", self.address(address));
        self.run(host, &["ip", "addr", "add", &address, "dev", "eth0"])?;
        Ok(())
    }

    /// Makes names known in the place `host`; those from before are forgotten.
    ///
    /// # Errors
    ///
    /// The file can't be written.
    pub fn name(&self, host: u8, names: &[(String, Ipv4Addr)]) -> io::Result<()> {
        let folder = self.settings_folder(host);
        fs::create_dir_all(&folder)?;
        let lines = names
            .iter()
            .map(|(name, address)| format!("{address} {name}\n"));
        let text: String = lines.collect();
        // In place: a running process there sees this very file.
        fs::write(folder.join("hosts"), format!("127.0.0.1 localhost\n{text}"))
    }

    /// A command that will run in the place `host`. Its process is the one that is started, so
    /// signals reach it.
    pub fn command(&self, host: u8, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = crate::process::without_settings(Path::new("ip"));
        command.args(["netns", "exec", &self.namespace(host)]);
        command.arg(program).stdin(Stdio::null());
        command
    }

    /// Runs a command in the place `host` to its end; what it printed.
    ///
    /// # Errors
    ///
    /// It fails; its own words are included.
    pub fn run(&self, host: u8, words: &[&str]) -> io::Result<String> {
        let space = self.namespace(host);
        let mut all = vec!["netns", "exec", &space];
        all.extend(words);
        ip(&all)
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bridge(&self) -> String {
        format!("{}b", self.prefix)
    }

    fn namespace(&self, host: u8) -> String {
        format!("{}-{host}", self.prefix)
    }

    fn cable(&self, host: u8) -> String {
        format!("{}v{host}", self.prefix)
    }

    fn settings_folder(&self, host: u8) -> PathBuf {
        Path::new("/etc/netns").join(self.namespace(host))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in std::mem::take(&mut *self.places()) {
            // The kernel takes a network down after the word is given; the cable, by itself, at once.
            let _ = ip(&["link", "del", &self.cable(host)]);
            let _ = ip(&["netns", "del", &self.namespace(host)]);
            let _ = fs::remove_dir_all(self.settings_folder(host));
        }
        let _ = ip(&["link", "del", &self.bridge()]);
    }
}

/// Runs `ip`; what it printed.
fn ip(words: &[&str]) -> io::Result<String> {
    let done = Command::new("ip")
        .args(words)
        .stdin(Stdio::null())
        .output()?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(io::Error::other(format!("ip {}: {said}", words.join(" "))))
}

/// One that nobody on this machine uses.
fn free_subnet(pid: u32) -> io::Result<u8> {
    let taken = ip(&["-o", "-4", "addr", "show"])?;
    (0..250)
        .map(|step| ((pid + step) % 250) as u8)
        .find(|subnet| !taken.contains(&format!("10.231.{subnet}.")))
        .ok_or_else(|| io::Error::other("all subnets 10.231.x.0 are taken"))
}

/// Takes away what processes that no longer live have left behind.
fn sweep() {
    let is_left = |name: &str| {
        let pid: String = name
            .strip_prefix(PREFIX)
            .unwrap_or_default()
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        // Ours go on: pid, a letter. Other programs' names are none of our business.
        let rest = name.get(PREFIX.len() + pid.len()..).unwrap_or_default();
        let ours = !pid.is_empty() && rest.starts_with(|c: char| c.is_ascii_lowercase());
        ours && !Path::new("/proc").join(&pid).exists()
    };
    let names = |words: &[&str], column: usize| -> Vec<String> {
        let text = ip(words).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.split_whitespace().nth(column))
            .map(|name| name.split(['@', ':']).next().unwrap_or(name).to_owned())
            .filter(|name| is_left(name))
            .collect()
    };
    for link in names(&["-o", "link", "show"], 1) {
        let _ = ip(&["link", "del", &link]);
    }
    for space in names(&["netns", "list"], 0) {
        let _ = ip(&["netns", "del", &space]);
        let _ = fs::remove_dir_all(Path::new("/etc/netns").join(space));
    }
}
