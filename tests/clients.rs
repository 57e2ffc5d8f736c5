//! Real clients of six languages tell their story (`clients/README.md`) over the followers of a cluster, and over
//! beanstalkd, so that what the programs expect is what the reference does.

use std::{
    io::Read,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use trellis_testkit::process::{Cluster, Server, ServerCommand, trellis_binary};
use trellis_tests::Roles;

const CLIENTS: &[&str] = &[
    "greenstalk",
    "aiostalk",
    "pystalk",
    "exporter",
    "jackd",
    "node-beanstalk",
    "go-beanstalk",
    "java-beanstalk-client",
    "pheanstalk",
    "beaneater",
];

/// A story has pauses of three seconds; the rest is for a busy machine.
const STORY_MAX: Duration = Duration::from_secs(90);

/// How many stories are told at the same time.
const AT_ONCE: usize = 4;

#[test]
fn every_client_tells_its_story_over_followers() {
    let binary = trellis_binary().expect("the binary was built");
    let cluster = Cluster::start(&binary, 3).expect("a cluster");
    let followers = Roles::of(&cluster).followers;
    let [worker, producer] = followers[..] else {
        panic!("two of three nodes follow: {followers:?}");
    };
    all_tell(cluster.address(worker), cluster.address(producer));
}

#[test]
fn beanstalkd_hears_the_same_stories() {
    let server = Server::start(ServerCommand {
        program: "beanstalkd".into(),
        first: Vec::new(),
        flags: Vec::new(),
        always_stores: false,
        more: |_| Vec::new(),
    })
    .expect("beanstalkd is installed (make test installs it)");
    all_tell(server.address(), server.address());
}

/// Runs all programs, a few at a time, and fails with what the failed ones said.
fn all_tell(worker: SocketAddr, producer: SocketAddr) {
    let mut waiting = CLIENTS.iter();
    let mut telling: Vec<Story> = Vec::new();
    let mut failures = Vec::new();
    loop {
        while telling.len() < AT_ONCE
            && let Some(client) = waiting.next()
        {
            telling.push(Story::begin(client, worker, producer));
        }
        if telling.is_empty() {
            break;
        }
        for mut story in std::mem::take(&mut telling) {
            match story.ended() {
                None => telling.push(story),
                Some(Ok(said)) => println!("{}:\n{said}", story.client),
                Some(Err(failure)) => failures.push(format!("{}: {failure}", story.client)),
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// A program at work.
struct Story {
    client: &'static str,
    child: Child,
    begun: Instant,
}

impl Story {
    fn begin(client: &'static str, worker: SocketAddr, producer: SocketAddr) -> Self {
        let folder = Path::new("clients");
        let child = Command::new("sh")
            .arg(folder.join("run.sh"))
            .arg(client)
            .env("ADDR", worker.to_string())
            .env("PUT_ADDR", producer.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sh runs");
        Self {
            client,
            child,
            begun: Instant::now(),
        }
    }

    /// `None` while it runs; then what it said, as an error unless it told the whole story.
    fn ended(&mut self) -> Option<Result<String, String>> {
        let status = match self.child.try_wait() {
            Ok(Some(status)) => status,
            Ok(None) if self.begun.elapsed() < STORY_MAX => return None,
            Ok(None) | Err(_) => {
                let _ = self.child.kill();
                let _ = self.child.wait();
                let said = self.said();
                return Some(Err(format!(
                    "not over after {STORY_MAX:?}; it said\n{said}"
                )));
            }
        };
        let said = self.said();
        // A missing library is a failure like any other: the programs say what they miss.
        if status.success() && said.lines().any(|line| line.starts_with("ok ")) {
            Some(Ok(said))
        } else {
            Some(Err(format!("{status}; it said\n{said}")))
        }
    }

    /// A story is a few lines, so the pipes hold it until the end.
    fn said(&mut self) -> String {
        let mut said = String::new();
        if let Some(out) = &mut self.child.stdout {
            let _ = out.read_to_string(&mut said);
        }
        if let Some(err) = &mut self.child.stderr {
            let _ = err.read_to_string(&mut said);
        }
        said
    }
}
