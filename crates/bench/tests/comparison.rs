//! `trellis-bench peers` beside beanstalkd, with a cluster that is beanstalkd as well: what it leaves behind however it
//! ends, and what a failed load does to the others.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Takes the place of `trellis local` with one node.
const CLUSTER: &str = r#"#!/bin/sh
[ "$1" = local ] || { echo 'no trellis'; exit; }
while [ $# -gt 0 ]; do
    case $1 in
        --base-port) port=$2 ;;
        --data-dir) dir=$2 ;;
    esac
    shift
done
mkdir -p "$dir/node-0"
echo $$ >"$dir/node-0/pid"
exec beanstalkd -l 127.0.0.1 -p "$port" -b "$dir/node-0"
"#;

/// One at a time: between a look for free ports and the server that takes them another benchmark
/// could find the same ones free.
static TURN: Mutex<()> = Mutex::new(());

struct Comparison {
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Comparison {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let cluster = folder.path().join("trellis");
        std::fs::write(&cluster, CLUSTER).expect("it is written");
        std::fs::set_permissions(&cluster, std::fs::Permissions::from_mode(0o755))
            .expect("it may be run");
        Self {
            folder,
            _turn: TURN.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn data_dir(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trellis-bench"));
        command
            .args(["peers", "--peers", "beanstalkd-log", "--nodes", "1"])
            .args(["--no-syncs", "--warm-up", "0", "--rounds", "1"])
            .arg("--trellis")
            .arg(self.folder.path().join("trellis"))
            .arg("--data-dir")
            .arg(self.data_dir())
            .args(args);
        command
    }

    /// Processes that were told of the folder in which servers run.
    fn servers(&self) -> Vec<String> {
        let runs = format!("{}/run-", self.data_dir().display());
        let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
        processes
            .filter_map(|process| {
                let told = std::fs::read(process.path().join("cmdline")).ok()?;
                let told = String::from_utf8_lossy(&told).replace('\0', " ");
                (told.contains("beanstalkd") && told.contains(&runs)).then_some(told)
            })
            .collect()
    }

    /// Folders in which servers ran.
    fn folders(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.data_dir()).into_iter().flatten();
        entries
            .flatten()
            .filter(|entry| entry.path().is_dir())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<(), String>) {
    let begun = Instant::now();
    while let Err(last) = is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}; last seen: {last}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ended(child: &mut Child) {
    wait_until("the benchmark ends", || {
        match child.try_wait().expect("it is a child") {
            Some(_) => Ok(()),
            None => Err("it runs".to_owned()),
        }
    });
}

#[test]
fn nothing_is_left_of_a_run_that_is_interrupted_or_killed() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL] {
        let comparison = Comparison::new();
        let mut run = comparison
            .command(&["--loads", "put:2", "--seconds", "600"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the benchmark starts");
        wait_until("both servers run", || {
            let running = comparison.servers();
            (running.len() == 2)
                .then_some(())
                .ok_or(format!("{running:?}"))
        });

        kill_process(Pid::from_child(&run), signal).expect("it is alive");
        ended(&mut run);
        let left = || (comparison.servers(), comparison.folders());
        if signal != Signal::KILL {
            let (servers, folders) = left();
            assert!(
                servers.is_empty() && folders.is_empty(),
                "{signal:?}: {servers:?} {folders:?}"
            );
        }
        wait_until("nothing is left", || match left() {
            (servers, folders) if servers.is_empty() && folders.is_empty() => Ok(()),
            left => Err(format!("{signal:?}: {left:?}")),
        });
    }
}

#[test]
fn a_load_that_fails_is_no_result_and_the_rest_goes_on() {
    let comparison = Comparison::new();
    // beanstalkd takes no body above 65,535 bytes.
    let output: Output = comparison
        .command(&["--loads", "put:2:1:70000 put:2", "--seconds", "0.3"])
        .output()
        .expect("the benchmark runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("put:2:1:70000: Trellis is no ratio"),
        "{said}"
    );
    assert!(
        said.contains("2 loads measured, 1 of them without a failed operation; 0 not measured"),
        "{said}"
    );
    assert_eq!(comparison.folders(), Vec::<String>::new());
}

#[test]
fn a_server_that_does_not_start_is_told_and_the_rest_goes_on() {
    let comparison = Comparison::new();
    let broken = comparison.folder.path().join("trellis");
    let once = comparison.folder.path().join("tried");
    let script = CLUSTER.replace(
        "mkdir -p",
        &format!(
            "[ -e {0} ] || {{ touch {0}; exit 3; }}\nmkdir -p",
            once.display()
        ),
    );
    std::fs::write(broken, script).expect("it is written");
    let output = comparison
        .command(&["--loads", "put:1 put:2", "--seconds", "0.3"])
        .output()
        .expect("the benchmark runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("not measured: put:1 of beanstalkd -b: trellis ended at once"),
        "{said}"
    );
    assert!(
        said.contains("1 loads measured, 1 of them without a failed operation; 1 not measured"),
        "{said}"
    );
}
