//! A cluster of real processes under a recorded load while its nodes are killed; then the checker's
//! word on it. `CHECKED_SECONDS`, `CHECKED_SEED` and `CHECKED_PROFILE` make it longer and other;
//! the history is kept if it is not sound.

use std::{
    env, fs, io,
    net::TcpStream,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

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
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A history on disk that goes unless it is needed.
struct Story {
    path: PathBuf,
    seed: u64,
    cluster: Cluster,
    recording: Recording,
}

impl Story {
    fn begin(name: &str, faults: u64) -> Self {
        let seed = setting("CHECKED_SEED", 1);
        let profile_name: String = setting("CHECKED_PROFILE", "mixed".to_owned());
        println!("replay: CHECKED_SEED={seed} CHECKED_PROFILE={profile_name} cargo test -p trellis-tests --test checked {name}");
        let profile = Profile::named(&profile_name).expect("a profile");
        let binary = trellis_binary().expect("a trellis binary");
        let cluster = Cluster::start_reviving(&binary, 3).expect("a cluster");
        let nodes = (0..cluster.nodes())
            .map(|node| Address {
                name: format!("n{node}"),
                clients: cluster.address(node),
                admin: Some(cluster.admin_address(node)),
            })
            .collect();
        let path = env::temp_dir().join(format!("trellis-checked-{name}-{}.jsonl", std::process::id()));
        let header = Header {
            version: VERSION,
            instrument: "processes".to_owned(),
            seed,
            commit: String::new(),
            profile: profile_name,
            bounds: Bounds::default(),
            demands: Demands { acknowledged: 500, faults, finals: 3 },
            local_reads: false,
        };
        let file = fs::File::create(&path).expect("a file for the history");
        let recorder = Recorder::new(Box::new(file), header);
        let recording = Recording::start(recorder, Workload::new(seed, profile), nodes);
        Self { path, seed, cluster, recording }
    }

    /// kill -9; whoever started the node starts it again after three seconds. Returns when it
    /// answers again.
    fn kill(&self, node: u16) {
        let name = format!("n{node}");
        let before = self.cluster.pid(node).expect("it runs");
        let gone = self.cluster.kill(node).is_ok();
        self.recording.node(&name, NodeEvent::Killed);
        self.recording.nemesis(1, "kill -9", &[&name], Stage::Once, gone);
        let until = Instant::now() + Duration::from_secs(60);
        let is_back = || {
            self.cluster.pid(node).is_ok_and(|pid| pid != before)
                && TcpStream::connect(self.cluster.address(node)).is_ok()
        };
        while !is_back() {
            assert!(Instant::now() < until, "{name} does not come back\n{}", self.cluster.log());
            thread::sleep(Duration::from_millis(50));
        }
        self.recording.node(&name, NodeEvent::Started);
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

#[test]
fn nodes_are_killed_one_after_the_other_and_no_promise_is_broken() {
    let story = Story::begin("nodes_are_killed", 2);
    let begin = Instant::now();
    let seconds = setting("CHECKED_SECONDS", 12);
    let mut victim = 0;
    while begin.elapsed() < Duration::from_secs(seconds) {
        thread::sleep(Duration::from_millis(2_500));
        story.kill(victim);
        victim = (victim + 1) % 3;
    }
    story.end().expect("a history that can be read");
}

#[test]
fn without_a_fault_no_promise_is_broken() {
    let story = Story::begin("without_a_fault", 0);
    thread::sleep(Duration::from_secs(setting("CHECKED_SECONDS", 6)));
    story.end().expect("a history that can be read");
}
