//! A cluster of real processes under a recorded load while its nodes are killed; then the checker's
//! word on it. `CHECKED_SECONDS`, `CHECKED_SEED` and `CHECKED_PROFILE` make it longer and other;
//! the history is kept if it is not sound.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    env, fs, io,
    net::TcpStream,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Pid;
use trellis_checker::{
    Verdict, check,
    history::{self, Bounds, Demands, Header, NodeEvent, Recorder, Stage, VERSION},
    workload::{Profile, Workload},
};
use trellis_testkit::{
    process::{Cluster, trellis_binary},
    recording::{Address, Recording},
};

/// What a test may say by the environment.
fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// A history on disk that goes unless it is needed.
struct Story {
    path: PathBuf,
    seed: u64,
    cluster: Cluster,
    recording: Recording,
    /// The processes that nodes had when they were killed.
    killed: RefCell<BTreeMap<u16, Option<Pid>>>,
}

fn name_of(node: u16) -> String {
    format!("n{node}")
}

impl Story {
    fn begin(name: &str, faults: u64) -> Self {
        let seed = setting("CHECKED_SEED", 1);
        let profile_name: String = setting("CHECKED_PROFILE", "mixed".to_owned());
        println!(
            "replay: CHECKED_SEED={seed} CHECKED_PROFILE={profile_name} sh tests/cargo.sh test -p trellis-tests --test checked {name}"
        );
        let profile = Profile::named(&profile_name).expect("a profile");
        let binary = trellis_binary().expect("a trellis binary");
        let cluster = Cluster::start_reviving(&binary, 3).expect("a cluster");
        let nodes = (0..cluster.nodes())
            .map(|node| Address {
                name: name_of(node),
                clients: cluster.address(node),
                admin: Some(cluster.admin_address(node)),
            })
            .collect();
        let path = env::temp_dir().join(format!(
            "trellis-checked-{name}-{}.jsonl",
            std::process::id()
        ));
        let header = Header {
            version: VERSION,
            instrument: "processes".to_owned(),
            seed,
            commit: String::new(),
            profile: profile_name,
            // When all start together they take the time from wall clocks, as old as the messages that
            // brought them were slow: on a busy machine, a while.
            bounds: Bounds {
                early_ms: 400,
                ..Bounds::default()
            },
            demands: Demands {
                acknowledged: 100,
                faults,
                finals: 3,
            },
            local_reads: false,
        };
        let file = fs::File::create(&path).expect("a file for the history");
        let recorder = Recorder::new(Box::new(file), header);
        let recording = Recording::start(recorder, Workload::new(seed, profile), nodes);
        let killed = RefCell::default();
        Self {
            path,
            seed,
            cluster,
            recording,
            killed,
        }
    }

    /// kill -9; whoever started the node starts it again after three seconds.
    fn kill(&self, node: u16) {
        let name = name_of(node);
        let pid = self.cluster.pid(node);
        let gone = self.cluster.kill(node).is_ok();
        self.killed.borrow_mut().insert(node, pid.ok());
        self.recording.node(&name, NodeEvent::Killed);
        self.recording
            .nemesis(1, "kill -9", &[&name], Stage::Once, gone);
    }

    /// Waits until nodes that were killed answer again.
    fn wait_for(&self, nodes: &[u16]) {
        for node in nodes {
            let before = self.killed.borrow().get(node).copied().flatten();
            let until = Instant::now() + Duration::from_secs(60);
            let is_back = || {
                self.cluster.pid(*node).is_ok_and(|pid| Some(pid) != before)
                    && TcpStream::connect(self.cluster.address(*node)).is_ok()
            };
            while !is_back() {
                let name = name_of(*node);
                assert!(
                    Instant::now() < until,
                    "{name} does not come back\n{}",
                    self.cluster.log()
                );
                thread::sleep(Duration::from_millis(50));
            }
            self.recording.node(&name_of(*node), NodeEvent::Started);
        }
    }

    /// SIGSTOP, or SIGCONT.
    fn freeze(&self, node: u16, frozen: bool) {
        let (done, stage) = if frozen {
            (self.cluster.freeze(node), Stage::Begin)
        } else {
            (self.cluster.thaw(node), Stage::End)
        };
        self.recording
            .nemesis(6, "SIGSTOP", &[&name_of(node)], stage, done.is_ok());
    }

    fn end(mut self) -> io::Result<()> {
        let answered = self.recording.answered();
        self.recording.stop();
        println!("seed {}: {answered} answers", self.seed);
        self.recording.drain(Duration::from_secs(120));
        if let Err(words) = self.recording.final_states(Duration::from_secs(60)) {
            panic!("{words}\n{}", self.cluster.log());
        }
        self.recording.finish()?;
        let verdict = self.verdict()?;
        println!("{verdict}");
        assert!(
            verdict.is_sound(),
            "{verdict}\nthe history is {}\n{}",
            self.path.display(),
            self.cluster.log()
        );
        if env::var_os("CHECKED_KEEP").is_none() {
            fs::remove_file(&self.path)?;
        }
        Ok(())
    }

    fn verdict(&self) -> io::Result<Verdict> {
        let input = io::BufReader::new(fs::File::open(&self.path)?);
        let records: Result<Vec<_>, _> = history::read(input).collect();
        check(records.map_err(io::Error::other)?).map_err(io::Error::other)
    }
}

/// How long the faults go on.
fn seconds(default: u64) -> Duration {
    Duration::from_secs(setting("CHECKED_SECONDS", default))
}

#[test]
fn without_a_fault_no_promise_is_broken() {
    let story = Story::begin("without_a_fault", 0);
    thread::sleep(seconds(5));
    story.end().expect("a history that can be read");
}

#[test]
fn nodes_are_killed_one_after_the_other_and_no_promise_is_broken() {
    let story = Story::begin("nodes_are_killed", 2);
    let begin = Instant::now();
    for victim in (0..3).cycle() {
        thread::sleep(Duration::from_millis(2_500));
        story.kill(victim);
        story.wait_for(&[victim]);
        if begin.elapsed() > seconds(8) {
            break;
        }
    }
    story.end().expect("a history that can be read");
}

/// One freezes longer than elections take, and than the lease now and then; another dies meanwhile.
#[test]
fn a_node_is_frozen_while_another_is_killed_and_no_promise_is_broken() {
    let story = Story::begin("a_node_is_frozen", 2);
    let begin = Instant::now();
    for (frozen, freeze_ms) in (0..3)
        .cycle()
        .zip([2_000, 5_000, 12_000].into_iter().cycle())
    {
        let victim = (frozen + 1) % 3;
        thread::sleep(Duration::from_millis(2_000));
        story.freeze(frozen, true);
        thread::sleep(Duration::from_millis(freeze_ms / 2));
        story.kill(victim);
        thread::sleep(Duration::from_millis(freeze_ms / 2));
        story.freeze(frozen, false);
        story.wait_for(&[victim]);
        if begin.elapsed() > seconds(8) {
            break;
        }
    }
    story.end().expect("a history that can be read");
}

#[test]
fn two_nodes_and_then_all_are_killed_and_no_promise_is_broken() {
    let story = Story::begin("two_and_then_all", 2);
    let begin = Instant::now();
    for round in 0_u16.. {
        thread::sleep(Duration::from_millis(2_500));
        let victims: Vec<u16> = match round % 2 {
            0 => vec![round % 3, (round + 1) % 3],
            _ => vec![0, 1, 2],
        };
        for victim in &victims {
            story.kill(*victim);
        }
        story.wait_for(&victims);
        if begin.elapsed() > seconds(10) && round % 2 == 1 {
            break;
        }
    }
    story.end().expect("a history that can be read");
}
