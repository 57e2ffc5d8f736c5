use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tempfile::TempDir;
use trellis_testkit::network::{Filter, Hook, Launch, Network as Places, NodeProcess};

/// How long a cluster may take to form.
const READY_MAX: Duration = Duration::from_secs(60);

/// A cluster whose nodes have a network each, so that one can fall silent: its process lives and its packets go
/// nowhere. Needs root. All of it is gone when dropped.
pub struct Network {
    // Before the places that they live in.
    nodes: Vec<NodeProcess>,
    silent: Mutex<Vec<(u8, Filter)>>,
    places: Places,
    _folder: TempDir,
}

impl Network {
    /// True if this process may make networks.
    pub fn is_possible() -> bool {
        Places::is_possible()
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
        let folder = TempDir::with_prefix("trellis-network-")?;
        let places = Places::lay()?;
        let members: Vec<_> = (0..nodes)
            .map(|node| {
                let address = places.address(node + 1);
                format!("node-{node}={address}:{}", NodeProcess::PEER_PORT)
            })
            .collect();
        let mut all = Vec::new();
        for node in 0..nodes {
            places.add(node + 1)?;
            let name = format!("node-{node}");
            let launch = Launch {
                binary: binary.to_owned(),
                host: node + 1,
                data_dir: folder.path().join(&name),
                log: folder.path().join(format!("{name}.log")),
                name,
                initial_members: members.clone(),
                variables: variables(node),
                ..Launch::default()
            };
            let mut process = NodeProcess::new(&places, launch);
            process.start(&places)?;
            all.push(process);
        }
        for node in &mut all {
            node.wait_until_it_serves(READY_MAX)?;
        }
        Ok(Self {
            nodes: all,
            silent: Mutex::default(),
            places,
            _folder: folder,
        })
    }

    /// Where clients connect to node `node`.
    pub fn address(&self, node: u8) -> SocketAddr {
        self.nodes[usize::from(node)].clients()
    }

    /// From now on nothing reaches the node and nothing leaves it; nobody is told.
    ///
    /// # Errors
    ///
    /// iptables can't do it.
    pub fn silence(&self, node: u8) -> io::Result<()> {
        for (hook, way) in [(Hook::Output, "-o"), (Hook::Input, "-i")] {
            let rule = ["!", way, "lo", "-j", "DROP"].map(str::to_owned).into();
            let filter = Filter::lay(&self.places, node + 1, hook, "silence", &[rule])?;
            self.silent().push((node, filter));
        }
        Ok(())
    }

    /// The node is heard and hears again.
    ///
    /// # Errors
    ///
    /// As [`Self::silence`].
    pub fn heal(&self, node: u8) -> io::Result<()> {
        let of_it = self
            .silent()
            .extract_if(.., |it| it.0 == node)
            .collect::<Vec<_>>();
        for (_, filter) in of_it {
            filter.lift(&self.places)?;
        }
        Ok(())
    }

    fn silent(&self) -> std::sync::MutexGuard<'_, Vec<(u8, Filter)>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
