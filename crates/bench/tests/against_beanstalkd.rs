//! The benchmark's figures against what Debian's beanstalkd counted itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};

use trellis_testkit::process::{Server, ServerCommand};

struct Beanstalkd(Server);

impl Beanstalkd {
    fn start(flags: &[&str]) -> Self {
        let command = ServerCommand {
            program: "beanstalkd".into(),
            first: Vec::new(),
            flags: flags.iter().map(ToString::to_string).collect(),
            always_stores: false,
            more: |_| Vec::new(),
        };
        Self(Server::start(command).expect("beanstalkd is installed (make test installs it)"))
    }

    fn stat(&self, key: &str) -> u64 {
        let mut stream = TcpStream::connect(self.0.address()).expect("it listens");
        stream.write_all(b"stats\r\n").expect("it takes a line");
        let mut reply = BufReader::new(stream);
        let mut head = String::new();
        reply.read_line(&mut head).expect("it answers");
        let length = head
            .trim_end()
            .strip_prefix("OK ")
            .and_then(|it| it.parse().ok())
            .expect("OK and a length");
        let mut yaml = vec![0; length];
        reply.read_exact(&mut yaml).expect("the whole document");
        let yaml = String::from_utf8(yaml).expect("text");
        let line = yaml
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{key}: ")));
        line.and_then(|value| value.parse().ok())
            .unwrap_or_else(|| panic!("no {key} in {yaml}"))
    }
}

fn bench(server: &Beanstalkd, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trellis-bench"))
        .args([
            "run",
            "--target",
            &server.0.address().to_string(),
            "--seconds",
            "0.5",
            "--warm-up",
            "0",
            "--json",
            "-",
        ])
        .args(args)
        .output()
        .expect("the benchmark runs")
}

fn json(output: &Output) -> serde_json::Value {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else")
}

#[test]
fn every_put_that_is_counted_was_made() {
    let server = Beanstalkd::start(&[]);
    let figures = json(&bench(
        &server,
        &[
            "--mix",
            "put",
            "-c",
            "8",
            "--depth",
            "4",
            "--threads",
            "2",
            "--tubes",
            "3",
        ],
    ));

    let counted = figures["latency"]["put"]["count"]
        .as_u64()
        .expect("a count");
    let made = server.stat("total-jobs");
    // The last put of each place in flight may be answered after the time is over.
    assert!(
        counted > 0 && counted <= made && made <= counted + 8 * 4,
        "counted {counted}, made {made}"
    );
    assert_eq!(figures["failed"], 0);
    assert_eq!(
        figures["own_cpu_by_thread"].as_array().map(Vec::len),
        Some(2)
    );
}

#[test]
fn cycles_leave_nothing_behind() {
    let server = Beanstalkd::start(&[]);
    let figures = json(&bench(
        &server,
        &["--mix", "cycle", "-c", "4", "--depth", "3"],
    ));
    assert!(
        figures["latency"]["cycle"]["count"].as_u64() > Some(0),
        "{figures}"
    );
    assert_eq!(
        server.stat("current-jobs-ready") + server.stat("current-jobs-reserved"),
        0
    );
    assert!(server.stat("cmd-delete") > 0);
}

#[test]
fn deliveries_go_to_workers_that_wait() {
    let server = Beanstalkd::start(&[]);
    let figures = json(&bench(&server, &["--mix", "delivery", "-c", "4"]));
    assert!(
        figures["latency"]["delivery"]["count"].as_u64() > Some(0),
        "{figures}"
    );
    assert_eq!(figures["connections"], 8, "a producer and a worker each");
    assert_eq!(
        server.stat("current-jobs-ready") + server.stat("current-jobs-reserved"),
        0
    );
}

#[test]
fn an_open_loop_sends_as_much_as_it_was_asked_to() {
    let server = Beanstalkd::start(&[]);
    let figures = json(&bench(
        &server,
        &["--mix", "put", "-c", "4", "--rate", "1000"],
    ));
    let counted = figures["latency"]["put"]["count"]
        .as_u64()
        .expect("a count");
    assert_eq!(
        counted, 500,
        "half a second at 1000 a second, however late an answer was"
    );
    assert_eq!(server.stat("total-jobs"), 500);
}

#[test]
fn a_failed_operation_fails_the_run() {
    let server = Beanstalkd::start(&["-z", "100"]);
    let output = bench(&server, &["--mix", "put", "-c", "2", "--body-bytes", "101"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("FAILED") && said.contains("JobTooBig"),
        "{said}"
    );
}
