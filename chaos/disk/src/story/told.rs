use std::{
    fs, io,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use trellis_checker::{
    Verdict, check,
    history::{self, Bounds, Demands, Header, NodeEvent, Recorder, Stage, VERSION},
    workload::{Profile, Workload},
};
use trellis_testkit::recording::{Address, Recording};

use super::{
    account::{self, Fault},
    cluster::{Cluster, NODES},
};

/// How long a story's load may take to get so many answers more.
const ANSWERS_MAX: Duration = Duration::from_secs(60);

/// How long draining may take.
const DRAIN_MAX: Duration = Duration::from_secs(120);

/// A recorded load on a cluster, and the checker's word on it at the end.
pub(super) struct Told {
    path: PathBuf,
    recording: Recording,
    begin: Instant,
    story: String,
}

/// What came of it.
pub(super) struct End {
    pub(super) verdict: Verdict,
    /// Operations acknowledged in a second, while the load ran.
    pub(super) rate: f64,
    /// What was broken, and what clients saw of it.
    pub(super) faults: Vec<Fault>,
    /// Where the history is, if it is not sound.
    pub(super) history: Option<PathBuf>,
}

impl Told {
    /// Starts the load.
    pub(super) fn begin(
        cluster: &Cluster,
        story: &str,
        seed: u64,
        profile: &str,
        faults: u64,
    ) -> Result<Self> {
        let nodes = (0..NODES)
            .map(|node| Address {
                name: Cluster::name(node),
                clients: cluster.clients(node),
                admin: Some(cluster.admin(node)),
            })
            .collect();
        let file_name = format!("trellis-disk-{story}-{seed}-{}.jsonl", std::process::id());
        let path = std::env::temp_dir().join(file_name);
        let header = Header {
            version: VERSION,
            instrument: "disks".to_owned(),
            seed,
            commit: String::new(),
            profile: profile.to_owned(),
            // When all start together they take the time from wall clocks, as old as the answers that brought them
            // were slow.
            bounds: Bounds {
                early_ms: 1_000,
                ..Bounds::default()
            },
            demands: Demands {
                acknowledged: 200,
                faults,
                finals: NODES as u64,
            },
            local_reads: false,
        };
        let recorder = Recorder::new(Box::new(fs::File::create(&path)?), header);
        let workload = Workload::new(seed, Profile::named(profile)?);
        Ok(Self {
            path,
            recording: Recording::start(recorder, workload, nodes),
            begin: Instant::now(),
            story: story.to_owned(),
        })
    }

    /// Something is broken, and was seen to be.
    pub(super) fn broken(&self, fault: u32, what: &str, nodes: &[usize]) {
        self.nemesis(fault, what, nodes, Stage::Begin);
    }

    /// It is mended.
    pub(super) fn mended(&self, fault: u32, what: &str, nodes: &[usize]) {
        self.nemesis(fault, what, nodes, Stage::End);
    }

    fn nemesis(&self, fault: u32, what: &str, nodes: &[usize], stage: Stage) {
        let names: Vec<String> = nodes.iter().map(|node| Cluster::name(*node)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.recording.nemesis(fault, what, &names, stage, true);
    }

    /// A node's process or disk changed.
    pub(super) fn node(&self, node: usize, event: NodeEvent) {
        self.recording.node(&Cluster::name(node), event);
    }

    /// Waits until clients heard so many more answers; how long that took.
    pub(super) fn wait_for_answers(&self, cluster: &Cluster, more: u64) -> Result<Duration> {
        let begin = Instant::now();
        let wanted = self.recording.answered() + more;
        while self.recording.answered() < wanted {
            if begin.elapsed() > ANSWERS_MAX {
                bail!(
                    "{} of {wanted} answers within {ANSWERS_MAX:?}\n{}",
                    self.recording.answered(),
                    cluster.last_words()
                );
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(begin.elapsed())
    }

    /// Ends the load, lets everything drain, and asks the checker.
    pub(super) fn end(mut self, cluster: &Cluster) -> Result<End> {
        let answered = self.recording.answered();
        let took = self.begin.elapsed();
        self.recording.stop();
        self.recording.drain(DRAIN_MAX);
        if let Err(words) = self.recording.final_states(Duration::from_secs(60)) {
            bail!("{words}\n{}", cluster.last_words());
        }
        self.recording.finish()?;
        let input = io::BufReader::new(fs::File::open(&self.path)?);
        let records: Result<Vec<_>, _> = history::read(input).collect();
        let records = records?;
        let faults = account::faults(&self.story, &records);
        let verdict = check(records).context("the history can't be read")?;
        let history = if verdict.is_sound() {
            fs::remove_file(&self.path)?;
            None
        } else {
            Some(self.path.clone())
        };
        Ok(End {
            verdict,
            rate: answered as f64 / took.as_secs_f64(),
            faults,
            history,
        })
    }
}
