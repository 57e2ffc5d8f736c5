//! What a person does with a cluster on the first day.

use std::{
    fs,
    io::{self, BufRead},
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;
use trellis_testkit::process::{Cluster, trellis_binary};
use trellis_tests::{Client, Roles, get, status, wait_for};
use trellis_types::TubeName;
use trellis_wire::beanstalk::{Reply, Request};

/// Says `lines` to a server with netcat and returns what it answers. The last line is `quit`, so the server closes.
fn netcat(address: SocketAddr, lines: &str) -> String {
    use io::Write;

    let mut nc = Command::new("nc")
        .args([&address.ip().to_string(), &address.port().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("nc is installed (make test installs it)");
    let mut input = nc.stdin.take().expect("a pipe");
    input
        .write_all(lines.replace('\n', "\r\n").as_bytes())
        .expect("nc reads");
    // nc stays for as long as either side may still say something.
    drop(input);
    let output = nc
        .wait_with_output()
        .expect("nc ends when the server closes");
    String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n")
}

#[test]
fn a_job_put_on_one_node_is_reserved_on_another_and_gone_on_the_third() {
    let binary = trellis_binary().expect("the binary was built");
    let cluster = Cluster::start(&binary, 3).expect("a cluster");
    assert_eq!(
        netcat(cluster.address(1), "put 0 0 60 5\nhello\nquit\n"),
        "INSERTED 1\n"
    );
    let said = netcat(
        cluster.address(2),
        "reserve-with-timeout 5\ndelete 1\nquit\n",
    );
    assert_eq!(said, "RESERVED 1 5\nhello\nDELETED\n");
    assert_eq!(
        netcat(cluster.address(0), "peek 1\nquit\n"),
        "NOT_FOUND\n",
        "at once"
    );
}

/// Bugs on purpose are for the suites (`crates/types/src/seeded.rs`): what chooses one of them is
/// not even in the binary.
#[test]
fn the_product_has_no_bug_on_purpose() {
    let binary = fs::File::open(trellis_binary().expect("a trellis binary")).expect("readable");
    // Cut at its first letter, the word begins some piece if it is anywhere.
    let chooses = |piece: io::Result<Vec<u8>>| piece.expect("readable").starts_with(b"EEDED_BUG");
    assert!(!io::BufReader::new(binary).split(b'S').any(chooses));
}

#[test]
fn every_metric_stands_in_the_operators_document() {
    let binary = trellis_binary().expect("the binary was built");
    let cluster = Cluster::start(&binary, 1).expect("a cluster");
    let metrics = get(cluster.admin_address(0), "/metrics").expect("metrics");
    let document = Path::new("../docs/operations.md");
    let document = fs::read_to_string(document).expect("the document");
    let names = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
    let missing: Vec<_> = names
        .filter(|name| !document.contains(&format!("`{name}`")))
        .collect();
    assert!(metrics.contains("# HELP "), "{metrics}");
    assert!(
        missing.is_empty(),
        "docs/operations.md does not explain {missing:#?}"
    );
}

/// Section 4 of the architecture: an idle cluster writes nothing.
#[test]
fn an_idle_cluster_writes_nothing() {
    let binary = trellis_binary().expect("the binary was built");
    let cluster = Cluster::start(&binary, 3).expect("a cluster");
    // A worker that waits is no reason to write either.
    let tube = TubeName::parse(b"quiet").expect("a good name");
    let mut worker = Client::at_tube(cluster.address(1), &tube).expect("a client");
    worker.send(&Request::Reserve).expect("sent");
    let written = || -> Vec<String> {
        let counts = |line: &&str| {
            let counters = [
                "trellis_log_entries_total",
                "trellis_state_written_bytes_total",
            ];
            counters.iter().any(|counter| line.starts_with(counter))
        };
        (0..3)
            .flat_map(|node| {
                let metrics = get(cluster.admin_address(node), "/metrics").expect("metrics");
                metrics
                    .lines()
                    .filter(counts)
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .collect()
    };
    let settled = wait_for("two seconds without a write", || {
        let before = written();
        thread::sleep(Duration::from_secs(2));
        let after = written();
        if before == after {
            Ok(after)
        } else {
            Err((before, after))
        }
    });
    thread::sleep(Duration::from_secs(3));
    assert_eq!(written(), settled);
    assert_eq!(settled.len(), 6, "{settled:?}");
}

/// Section 12 of the architecture: an empty disk under a known name is a new node id.
#[test]
fn a_node_that_lost_its_folder_comes_back_as_a_new_member() {
    let binary = trellis_binary().expect("the binary was built");
    let cluster = Cluster::start_reviving(&binary, 3).expect("a cluster");
    let victim = Roles::of(&cluster).followers[0];
    let survivor = Roles::of(&cluster).leader;
    let tube = TubeName::parse(b"kept").expect("a good name");
    let mut client = Client::at_tube(cluster.address(survivor), &tube).expect("a client");
    let jobs: Vec<_> = (0..100)
        .map(|n| client.put(&n.to_string(), 0).expect("a put"))
        .collect();
    let before = member(&cluster, survivor, victim);

    cluster.kill(victim).expect("it lived");
    // `trellis local` starts it again after three seconds, and finds nothing.
    fs::remove_dir_all(cluster.data_dir().join(format!("node-{victim}"))).expect("the folder goes");
    let after = wait_for("new voter under the old name", || {
        let seen = member(&cluster, survivor, victim);
        let is_new =
            seen["node"] != before["node"] && seen["voter"] == true && seen["present"] == true;
        if is_new { Ok(seen) } else { Err(seen) }
    });
    println!("{} became {}", before["node"], after["node"]);

    let digests = wait_for("equal digests", || {
        let seen: Vec<_> = (0..3)
            .map(|node| {
                status(cluster.admin_address(node))
                    .map(|it| it["digest"].clone())
                    .ok()
            })
            .collect();
        let equal = seen.iter().all(|it| it.is_some() && *it == seen[0]);
        if equal { Ok(seen) } else { Err(seen) }
    });
    println!("{digests:?}");
    let mut client = Client::at_tube(cluster.address(victim), &tube).expect("it serves again");
    for job in jobs {
        let found = client.reserve(5).expect("a reserve").map(|it| it.0);
        assert_eq!(found, Some(job));
        client
            .demand(&Request::Delete(job), &Reply::Deleted)
            .expect("a delete");
    }
}

/// What node `asked` knows of the member that is node `about` of the cluster.
fn member(cluster: &Cluster, asked: u16, about: u16) -> Value {
    let status = status(cluster.admin_address(asked)).expect("it lives");
    let name = Value::from(format!("trellis-{about}"));
    let members = status["members"].as_array().cloned().unwrap_or_default();
    members
        .into_iter()
        .find(|it| it["name"] == name)
        .unwrap_or_default()
}
