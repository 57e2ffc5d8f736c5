//! Nodes that come back at other addresses. Names in DNS are asked again at every connect and need nothing of this;
//! here the addresses themselves change.

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;
use trellis_testkit::process::{Killed, free_base_port, temporary_folder, trellis_binary};
use trellis_tests::{Client, status, wait_for};
use trellis_types::TubeName;

/// Nodes that are started one by one, each with peers where the test says.
struct Nodes {
    binary: PathBuf,
    base: u16,
    peers: Vec<u16>,
    folder: tempfile::TempDir,
    running: Vec<Option<Killed>>,
}

impl Nodes {
    fn start(count: u16) -> Self {
        let base = free_base_port().expect("ports");
        let mut nodes = Self {
            binary: trellis_binary().expect("the binary was built"),
            base,
            peers: (0..count).map(|node| base + 10 * node + 1).collect(),
            folder: temporary_folder().expect("a folder"),
            running: (0..count).map(|_| None).collect(),
        };
        for node in 0..usize::from(count) {
            nodes.run(node);
        }
        nodes.wait_until_all_serve();
        nodes
    }

    /// Starts the node; it knows of all peers where they are said to be now.
    fn run(&mut self, node: usize) {
        let at = |distance| format!("127.0.0.1:{}", self.base + 10 * node as u16 + distance);
        let members = self.peers.iter().enumerate();
        let members: Vec<_> = members
            .map(|(node, port)| format!("trellis-{node}=127.0.0.1:{port}"))
            .collect();
        let folder = self.folder.path().join(format!("node-{node}"));
        let log = File::options()
            .create(true)
            .append(true)
            .open(folder.with_extension("log"))
            .expect("a log");
        let child = Command::new(&self.binary)
            .args(["serve", "--name", &format!("trellis-{node}")])
            .args(["--listen", &at(0), "--admin-listen", &at(2)])
            .args(["--peer-listen", &format!("127.0.0.1:{}", self.peers[node])])
            .args(["--initial-members", &members.join(",")])
            .args(["--die-with-parent", &std::process::id().to_string()])
            .arg("--data-dir")
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.running[node] = Some(Killed(child.expect("it can be run")));
    }

    fn kill(&mut self, node: usize) {
        self.running[node] = None;
    }

    fn address(&self, node: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.base + 10 * node as u16).into()
    }

    fn status(&self, node: usize) -> Value {
        let mut admin = self.address(node);
        admin.set_port(admin.port() + 2);
        status(admin).unwrap_or_default()
    }

    fn wait_until_all_serve(&self) {
        wait_for("node that is ready, of all", || {
            let seen: Vec<_> = (0..self.running.len()).map(|it| self.status(it)).collect();
            let ready = seen.iter().all(|it| it["ready"] == true);
            if ready { Ok(()) } else { Err(seen) }
        });
    }

    fn leader(&self) -> usize {
        wait_for("leader", || {
            let leads = |node: &usize| self.status(*node)["leads"] == true;
            (0..self.running.len()).find(leads).ok_or("nobody leads")
        })
    }

    /// Puts at one node and reserves at the other.
    fn work(&self, from: usize, to: usize, body: &str) {
        let tube = TubeName::parse(b"moving").expect("a good name");
        let mut producer = Client::at_tube(self.address(from), &tube).expect("a client");
        let job = producer.put(body, 0).expect("a put");
        let mut worker = Client::at_tube(self.address(to), &tube).expect("a client");
        let found = worker.reserve(5).expect("a reserve").map(|it| it.0);
        assert_eq!(found, Some(job));
    }
}

/// Found by a newcomer: the leader went on calling the old address until somebody else led.
#[test]
fn a_member_at_a_new_address_is_found_by_the_leader_that_knew_the_old_one() {
    let mut nodes = Nodes::start(3);
    let (leader, elsewhere) = (nodes.leader(), free_base_port().expect("ports"));
    let (mover, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let term = nodes.status(leader)["term"].clone();

    nodes.kill(mover);
    nodes.peers[mover] = elsewhere + 1;
    nodes.run(mover);
    nodes.wait_until_all_serve();

    nodes.work(mover, other, "from the new place");
    let seen = wait_for("new address in the membership", || {
        let seen = nodes.status(leader);
        let members = seen["members"].as_array().into_iter().flatten();
        let recorded = members
            .filter(|it| it["name"] == format!("trellis-{mover}"))
            .any(|it| it["address"] == format!("127.0.0.1:{}", elsewhere + 1));
        if recorded { Ok(seen) } else { Err(seen) }
    });
    assert_eq!((&seen["leads"], &seen["term"]), (&Value::from(true), &term));
}

/// Without a majority where the membership says it is, nobody can be elected to record where it is now.
#[test]
fn one_of_two_that_moved_tells_the_other_where_it_is() {
    let mut nodes = Nodes::start(2);
    let (leader, elsewhere) = (nodes.leader(), free_base_port().expect("ports"));
    let mover = 1 - leader;
    nodes.kill(mover);
    // What a leader appends now makes its log the longer one: the mover can't be elected.
    wait_for("leader that notices", || {
        let seen = nodes.status(leader);
        if seen["ready"] == false {
            Ok(())
        } else {
            Err(seen)
        }
    });
    nodes.peers[mover] = elsewhere + 1;
    nodes.run(mover);
    nodes.wait_until_all_serve();
    nodes.work(mover, leader, "from the new place");
}

#[test]
fn all_nodes_at_new_addresses_find_each_other_by_their_configuration() {
    let mut nodes = Nodes::start(3);
    let tube = TubeName::parse(b"kept").expect("a good name");
    let mut client = Client::at_tube(nodes.address(0), &tube).expect("a client");
    let job = client.put("from the old place", 0).expect("a put");
    let elsewhere = free_base_port().expect("ports");
    for node in 0..3 {
        nodes.kill(node);
        nodes.peers[node] = elsewhere + 10 * node as u16 + 1;
    }
    for node in 0..3 {
        nodes.run(node);
    }
    nodes.wait_until_all_serve();
    let mut client = Client::at_tube(nodes.address(1), &tube).expect("a client");
    assert_eq!(
        client.reserve(5).expect("a reserve").map(|it| it.0),
        Some(job)
    );
    nodes.work(0, 2, "from the new place");
}
