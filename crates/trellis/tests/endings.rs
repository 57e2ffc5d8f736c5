//! How the program ends: each reason with its own exit code and one sentence, and within a bound.
//! The table is in `docs/operations.md`.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use trellis_testkit::process::{free_base_port, temporary_folder};

const TRELLIS: &str = env!("CARGO_BIN_EXE_trellis");

/// How long anything in here may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the program to its end; its exit code and what it said on standard error.
fn ends(arguments: &[&str]) -> (i32, String) {
    let Output { status, stderr, .. } = Command::new(TRELLIS)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it can be run");
    (
        status.code().expect("not by a signal"),
        String::from_utf8_lossy(&stderr).into_owned(),
    )
}

/// `trellis serve` in `folder`, with `port` and the two above it.
fn serving(folder: &Path, port: u16) -> Command {
    let mut command = Command::new(TRELLIS);
    command
        .args(["serve", "-l", "127.0.0.1", "-p", &port.to_string(), "-b"])
        .arg(folder)
        .args(["--peer-listen", &format!("127.0.0.1:{}", port + 1)])
        .args(["--admin-listen", &format!("127.0.0.1:{}", port + 2)])
        .stdin(Stdio::null());
    command
}

/// A node that does not start: its exit code and what it said.
fn refuses(folder: &Path) -> (i32, String) {
    let port = free_base_port().expect("a port");
    let Output { status, stderr, .. } = serving(folder, port).output().expect("it can be run");
    (
        status.code().expect("not by a signal"),
        String::from_utf8_lossy(&stderr).into_owned(),
    )
}

/// One node, or a local cluster, on ports of its own.
struct Running {
    child: Child,
    port: u16,
}

impl Running {
    fn serve(folder: &Path) -> Self {
        let port = free_base_port().expect("a port");
        let child = serving(folder, port)
            .stderr(Stdio::null())
            .spawn()
            .expect("it can be run");
        Self { child, port }
    }

    /// What the command says of this node on standard output, and its exit code.
    fn asked(&self, command: &[&str]) -> (i32, String) {
        let output = Command::new(TRELLIS)
            .args(command)
            .args(["--addr", &format!("127.0.0.1:{}", self.port + 2)])
            .output()
            .expect("it can be run");
        (
            output.status.code().expect("not by a signal"),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    }

    fn local(folder: &Path, port: u16) -> Self {
        let child = Command::new(TRELLIS)
            .args(["local", "--base-port", &port.to_string(), "--data-dir"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it can be run");
        Self { child, port }
    }

    /// A client of the node at this distance from the base port, as soon as it is let in.
    fn client(&self, distance: u16) -> TcpStream {
        let client = within("the door is open", || {
            TcpStream::connect(("127.0.0.1", self.port + distance)).ok()
        });
        client.set_read_timeout(Some(PATIENCE)).expect("a socket");
        client
    }

    fn told(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it lives");
    }

    fn ends(&mut self) -> ExitStatus {
        within("it ends", || self.child.try_wait().expect("it is ours"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for something, with a bound.
fn within<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited {PATIENCE:?} until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn says(client: &mut TcpStream, text: &str) {
    client.write_all(text.as_bytes()).expect("the door reads");
}

fn hears(client: &mut TcpStream, text: &str) {
    let mut heard = vec![0; text.len()];
    client.read_exact(&mut heard).expect("the door answers");
    assert_eq!(String::from_utf8_lossy(&heard), text);
}

/// What the pid file says, once the process it names lives.
fn pid_in(folder: &Path) -> Option<Pid> {
    let text = fs::read_to_string(folder.join("pid")).ok()?;
    let pid = Pid::from_raw(text.trim().parse().ok()?)?;
    test_kill_process(pid).is_ok().then_some(pid)
}

#[test]
fn a_mistake_in_the_configuration_ends_with_78_and_one_sentence() {
    let (code, said) = ends(&["config", "check", "--set", "reads=fast", "--name", "a"]);
    assert_eq!(code, 78);
    assert_eq!(
        said,
        "trellis: configuration: reads is \"fast\" (--set); allowed is linearizable or local\n"
    );
    let (code, said) = ends(&["serve", "--set", "colour=red"]);
    assert_eq!(code, 78);
    assert!(
        said.starts_with("trellis: configuration: \"colour\" is no setting (--set); "),
        "{said}"
    );
    let (code, said) = ends(&["config", "check", "--set", "port"]);
    assert_eq!(code, 78);
    assert_eq!(
        said,
        "trellis: configuration: --set is \"port\"; allowed is KEY=VALUE with a key of the file\n"
    );
    let (code, said) = ends(&["member", "remove", ""]);
    assert_eq!(code, 64);
    assert!(said.contains("MEMBER is \"\"; allowed is a name"), "{said}");
    let (code, said) = ends(&["serve", "--config", "/nowhere/trellis.toml"]);
    assert_eq!(code, 78);
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn what_is_shown_can_be_used_as_a_file() {
    let folder = temporary_folder().expect("a folder");
    let file = folder.path().join("trellis.toml");
    let shown = Command::new(TRELLIS)
        .args(["config", "show", "--name", "a", "--set", "heartbeat_ms=50"])
        .output()
        .expect("it can be run");
    fs::write(&file, &shown.stdout).expect("it can be written");
    let (code, said) = ends(&["config", "check", "--config", &file.display().to_string()]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(String::from_utf8_lossy(&shown.stdout).contains("heartbeat_ms = 50"));
}

#[test]
fn a_command_line_that_makes_no_sense_ends_with_64_and_a_silent_admin_port_with_69() {
    assert_eq!(ends(&["serve", "--colour"]).0, 64);
    let port = free_base_port().expect("a port");
    let (code, said) = ends(&["status", "--addr", &format!("127.0.0.1:{port}")]);
    assert_eq!(code, 69);
    assert!(said.contains("--addr"), "it says what to do: {said}");
}

#[test]
fn a_folder_in_use_ends_with_73_an_address_in_use_with_71_and_a_newer_format_with_76() {
    let folder = temporary_folder().expect("a folder");
    let mut first = Running::serve(folder.path());
    let mut client = first.client(0);
    says(&mut client, "list-tube-used\r\n");
    hears(&mut client, "USING default\r\n");

    let other = free_base_port().expect("a port");
    let on = |port: u16| format!("127.0.0.1:{port}");
    let (code, said) = ends(&[
        "serve",
        "-l",
        &on(other),
        "--peer-listen",
        &on(other + 1),
        "--admin-listen",
        &on(other + 2),
        "-b",
        &folder.path().display().to_string(),
    ]);
    assert_eq!(code, 73, "{said}");
    assert!(
        said.contains(&format!("by process {}", first.child.id())),
        "{said}"
    );

    // Whichever it is, it is told in the same words, and nothing was begun.
    let begun = folder.path().join("begun");
    for (at, key) in [(0, "listen"), (1, "peer_listen"), (2, "admin_listen")] {
        let mut ports = [other, other + 1, other + 2];
        ports[at] = first.port + at as u16;
        let (code, said) = ends(&[
            "serve",
            "-l",
            &on(ports[0]),
            "--peer-listen",
            &on(ports[1]),
            "--admin-listen",
            &on(ports[2]),
            "-b",
            &begun.display().to_string(),
        ]);
        assert_eq!(code, 71, "{said}");
        let last = said.lines().last().unwrap_or_default();
        assert_eq!(
            last,
            format!(
                "trellis: cannot listen on {}: another process does ({key})",
                on(ports[at])
            )
        );
        assert!(!begun.exists(), "{key}");
    }

    first.told(Signal::TERM);
    assert_eq!(first.ends().code(), Some(0));
    fs::write(folder.path().join("FORMAT"), "trellis 4000\n").expect("it can be written");
    let (code, said) = ends(&[
        "serve",
        "-l",
        &on(other),
        "--peer-listen",
        &on(other + 1),
        "--admin-listen",
        &on(other + 2),
        "-b",
        &folder.path().display().to_string(),
    ]);
    assert_eq!(code, 76, "{said}");
}

#[test]
fn a_folder_of_somebody_else_is_left_alone() {
    let folder = temporary_folder().expect("a folder");
    let mut node = Running::serve(&folder.path().join("node-0"));
    drop(node.client(0));
    let (code, said) = refuses(folder.path());
    assert_eq!(code, 76, "{said}");
    assert!(said.contains("node-0"), "{said}");
    let left: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
    assert_eq!(left.len(), 1, "nothing was written: {left:?}");
    node.told(Signal::TERM);
    node.ends();
}

/// A rebuilt node that knows nobody would be an empty cluster where its jobs were expected.
#[test]
fn a_rebuilt_node_that_knows_nobody_does_not_start_however_far_the_rebuilding_came() {
    let folder = temporary_folder().expect("a folder");
    let here = |name: &str| folder.path().join(name);
    let mut node = Running::serve(folder.path());
    let mut client = node.client(0);
    says(&mut client, "put 0 0 60 1\r\na\r\n");
    hears(&mut client, "INSERTED 1\r\n");
    within("the members are noted", || {
        here("members").exists().then_some(())
    });
    node.told(Signal::TERM);
    node.ends();

    let at = folder.path().display().to_string();
    let (code, said) = ends(&["rebuild", "--data-dir", &at]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("only voter") && said.contains("--force"),
        "{said}"
    );
    assert!(here("log").exists(), "nothing was moved");
    let (code, said) = ends(&["rebuild", "--force", "--data-dir", &at]);
    assert_eq!(code, 0, "{said}");

    let evidence = fs::read_dir(here("evidence")).expect("it is there").next();
    let evidence = evidence.expect("one").expect("readable").path();
    // As if the process had ended at each step of it: the note goes last.
    for step in [
        "",
        "FORMAT",
        "log",
        "state",
        "snapshots",
        "members",
        "quarantine",
    ] {
        if !step.is_empty() {
            let _ = fs::rename(here(step), evidence.join(step));
        } else {
            for name in fs::read_dir(&evidence).expect("a folder") {
                let name = name.expect("readable").file_name();
                fs::rename(evidence.join(&name), folder.path().join(&name)).expect("it moves");
            }
        }
        let (code, said) = refuses(folder.path());
        assert_eq!(code, 78, "after {step:?}: {said}");
        assert!(
            said.contains("name no other node"),
            "after {step:?}: {said}"
        );
    }
    // A start that came as far as a new log is no way around it.
    fs::create_dir(here("log")).expect("a folder");
    fs::write(
        here("FORMAT"),
        fs::read(evidence.join("FORMAT")).expect("it is kept"),
    )
    .expect("a file");
    for _ in 0..2 {
        let (code, said) = refuses(folder.path());
        assert_eq!(code, 78, "{said}");
    }

    // Everything put back, it is what it was.
    fs::remove_dir_all(here("log")).expect("it goes");
    for name in ["FORMAT", "log", "state", "snapshots", "members"] {
        let _ = fs::remove_dir_all(here(name));
        fs::rename(evidence.join(name), here(name)).expect("it moves");
    }
    let node = Running::serve(folder.path());
    let mut client = node.client(0);
    says(&mut client, "reserve\r\n");
    hears(&mut client, "RESERVED 1 1\r\na\r\n");
}

#[test]
fn people_are_told_the_verdict_first() {
    let folder = temporary_folder().expect("a folder");
    let node = Running::serve(folder.path());
    drop(node.client(0));
    let (code, said) = node.asked(&["status"]);
    assert_eq!(code, 0);
    assert!(said.starts_with("ready; 1 of 1 voters present\n"), "{said}");
    assert!(
        said.contains(concat!(" ", env!("CARGO_PKG_VERSION"), " ")),
        "{said}"
    );
    let (code, said) = node.asked(&["health"]);
    assert_eq!(code, 0);
    assert!(said.starts_with("ready\n  ok  runtime"), "{said}");
    let (code, said) = node.asked(&["snapshot"]);
    assert_eq!(code, 0);
    assert!(said.ends_with("is written\n"), "{said}");
    node.told(Signal::USR1);
    within("status says that puts are refused", || {
        let (_, said) = node.asked(&["status"]);
        said.contains("puts_refused_here: true").then_some(())
    });
}

/// Told to stop, a node lets its clients go and is gone soon; what it acknowledged is there when
/// it comes back.
#[test]
fn a_node_that_is_told_to_stop_lets_its_clients_go_and_loses_nothing() {
    let folder = temporary_folder().expect("a folder");
    let mut node = Running::serve(folder.path());
    let mut producer = node.client(0);
    says(&mut producer, "use mail\r\nput 0 0 60 5\r\nhello\r\n");
    hears(&mut producer, "USING mail\r\nINSERTED 1\r\n");
    let mut worker = node.client(0);
    says(&mut worker, "watch other\r\nignore default\r\nreserve\r\n");
    hears(&mut worker, "WATCHING 2\r\nWATCHING 1\r\n");

    let begin = Instant::now();
    node.told(Signal::TERM);
    assert_eq!(node.ends().code(), Some(0));
    assert!(
        begin.elapsed() < Duration::from_secs(15),
        "took {:?}",
        begin.elapsed()
    );
    let mut rest = Vec::new();
    worker.read_to_end(&mut rest).expect("an orderly end");
    assert_eq!(String::from_utf8_lossy(&rest), "", "its wait simply ends");
    assert!(!folder.path().join("pid").exists());

    let node = Running::serve(folder.path());
    let mut worker = node.client(0);
    says(&mut worker, "watch mail\r\nreserve\r\n");
    hears(&mut worker, "WATCHING 2\r\nRESERVED 1 5\r\nhello\r\n");
}

#[test]
fn a_closed_terminal_stops_a_node_in_good_order_and_stray_signals_do_not() {
    let folder = temporary_folder().expect("a folder");
    let mut node = Running::serve(folder.path());
    let mut client = node.client(0);
    node.told(Signal::USR2);
    node.told(Signal::ALARM);
    says(&mut client, "put 0 0 60 1\r\na\r\n");
    hears(&mut client, "INSERTED 1\r\n");
    node.told(Signal::HUP);
    assert_eq!(node.ends().code(), Some(0));
}

#[test]
fn a_local_cluster_whose_ports_are_taken_can_have_others_the_next_time() {
    let folder = temporary_folder().expect("a folder");
    let folder = folder.path().join("cluster");
    let port = free_base_port().expect("a port");
    let taken = std::net::TcpListener::bind(("127.0.0.1", port + 11)).expect("it is free");
    let (code, said) = ends(&[
        "local",
        "--data-dir",
        &folder.display().to_string(),
        "--base-port",
        &port.to_string(),
    ]);
    assert_eq!(code, 71, "{said}");
    assert!(said.contains(&format!("127.0.0.1:{}", port + 11)), "{said}");
    assert!(!folder.exists(), "nothing was begun");
    drop(taken);
}

/// Sharp edge 130.
#[test]
fn told_by_sigusr1_a_node_refuses_puts_and_does_everything_else() {
    let folder = temporary_folder().expect("a folder");
    let node = Running::serve(folder.path());
    let mut client = node.client(0);
    says(&mut client, "put 0 0 60 1\r\na\r\n");
    hears(&mut client, "INSERTED 1\r\n");
    node.told(Signal::USR1);
    puts_are_refused(&mut client);
    says(&mut client, "reserve\r\n");
    hears(&mut client, "RESERVED 1 1\r\na\r\n");
}

fn puts_are_refused(client: &mut TcpStream) {
    within("puts are refused", || {
        says(client, "put 0 0 60 1\r\nb\r\n");
        let mut word = [0; 10];
        client.read_exact(&mut word).expect("an answer");
        if &word == b"DRAINING\r\n" {
            return Some(());
        }
        let mut rest = [0; 1];
        while rest != *b"\n" {
            client
                .read_exact(&mut rest)
                .expect("the rest of the answer");
        }
        None
    });
}

#[test]
fn a_local_cluster_leaves_a_folder_of_somebody_else_alone() {
    let folder = temporary_folder().expect("a folder");
    fs::write(folder.path().join("passwd"), "theirs").expect("a file");
    let port = free_base_port().expect("a port").to_string();
    let path = folder.path().display().to_string();
    let (code, said) = ends(&["local", "--data-dir", &path, "--base-port", &port]);
    assert_eq!((code, said.lines().count()), (76, 1), "{said}");
    assert!(
        said.contains("passwd") && said.contains("--data-dir"),
        "{said}"
    );
    let left = fs::read_dir(folder.path()).expect("it is there");
    assert_eq!(left.count(), 1, "nothing was added");
}

#[test]
fn a_local_cluster_restarts_what_dies_and_takes_its_nodes_with_it() {
    let folder = temporary_folder().expect("a folder");
    let nodes: [PathBuf; 3] = [0, 1, 2].map(|index| folder.path().join(format!("node-{index}")));
    // Mount points and home folders come with hidden names; those are in nobody's way.
    fs::write(folder.path().join(".hidden"), "theirs").expect("a file");
    let port = free_base_port().expect("a port");
    let mut cluster = Running::local(folder.path(), port);
    let pids = nodes
        .each_ref()
        .map(|node| within("each node has a pid", || pid_in(node)));
    let mut client = cluster.client(10);
    says(&mut client, "put 0 0 60 1\r\na\r\n");
    hears(&mut client, "INSERTED 1\r\n");

    kill_process(pids[2], Signal::KILL).expect("it lives");
    let again = within("it is started again", || {
        pid_in(&nodes[2]).filter(|pid| *pid != pids[2])
    });
    let mut client = cluster.client(20);
    says(&mut client, "reserve\r\n");
    hears(&mut client, "RESERVED 1 1\r\na\r\n");

    let (code, said) = ends(&[
        "local",
        "--data-dir",
        &folder.path().display().to_string(),
        "--base-port",
        "20000",
    ]);
    assert_eq!(code, 78, "{said}");
    assert!(said.contains(&format!("allowed is {port}")), "{said}");

    let (code, said) = ends(&[
        "local",
        "--data-dir",
        &folder.path().display().to_string(),
        "--base-port",
        &port.to_string(),
    ]);
    assert_eq!((code, said.lines().count()), (73, 1), "{said}");
    assert!(said.contains("is running already"), "{said}");

    // Its nodes are told what it is told.
    cluster.told(Signal::USR1);
    for distance in [0, 10, 20] {
        puts_are_refused(&mut cluster.client(distance));
    }

    // However it ends, nothing is left behind.
    cluster.told(Signal::INT);
    assert_eq!(cluster.ends().code(), Some(0));
    for pid in [pids[0], pids[1], again] {
        assert!(
            test_kill_process(pid).is_err(),
            "process {pid:?} is left behind"
        );
    }

    let mut cluster = Running::local(folder.path(), port);
    let mut client = cluster.client(0);
    says(&mut client, "reserve\r\n");
    hears(&mut client, "RESERVED 1 1\r\na\r\n");
    let pids = nodes
        .each_ref()
        .map(|node| within("each node has a pid", || pid_in(node)));
    cluster.told(Signal::KILL);
    cluster.ends();
    for pid in pids {
        within("the nodes end with it", || {
            test_kill_process(pid).is_err().then_some(())
        });
    }
}
