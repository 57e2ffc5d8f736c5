//! Stories of three real nodes, each on a disk of its own that can be broken, under a recorded load.

mod account;
mod cluster;
mod full;
mod hanging;
mod power;
mod slow;
mod stopping;
mod told;
mod wrong;

use std::{
    fs::OpenOptions,
    io::Write,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::{Map, Value, json};
use trellis_checker::Invariant;

use account::{Account, Fault};
use cluster::Plan;
use told::End;

/// Which stories to tell, and how.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// Their names; none: all of them.
    pub stories: Vec<String>,
    /// The trellis to run; without it the one beside this program.
    #[arg(long, env = "TRELLIS_BIN")]
    pub trellis: Option<PathBuf>,
    /// How often what a story repeats is repeated.
    #[arg(long, default_value_t = 10)]
    pub rounds: u32,
    /// Where chance begins.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The workload's profile.
    #[arg(long, default_value = "busy")]
    pub profile: String,
    /// How long one side of a comparison is measured, in seconds.
    #[arg(long, default_value_t = 20)]
    pub seconds: u64,
    /// A file that the results are added to, a line of JSON each.
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// A story: its name, and how it is told.
struct Story {
    name: &'static str,
    /// Whether the checker is to find something broken.
    broken: bool,
    what: &'static str,
    tell: fn(&Scene) -> Result<Told>,
}

/// What a story is told with.
struct Scene {
    args: Args,
    plan: Plan,
    name: &'static str,
}

/// What a story came to.
struct Told {
    /// What the checker says, if the load was recorded.
    end: Option<End>,
    /// What was broken, if the load was not recorded.
    seen: Vec<Fault>,
    /// What was seen besides.
    figures: Map<String, Value>,
    /// Why it falls short, if it does.
    short: Vec<String>,
}

const STORIES: &[Story] = &[
    Story {
        name: "power-cut",
        broken: false,
        what: "power cut of all three nodes at once: what was not synced is gone",
        tell: |scene| power::cut(scene, 3, &scene.args.profile),
    },
    Story {
        name: "power-cut-large",
        broken: false,
        what: "the same with large bodies: each unsynced write is many pages, and any of them survive",
        tell: |scene| power::cut(scene, 3, "bodies"),
    },
    Story {
        name: "power-cut-two",
        broken: false,
        what: "power cut of two of three nodes",
        tell: |scene| power::cut(scene, 2, &scene.args.profile),
    },
    Story {
        name: "power-cut-one",
        broken: false,
        what: "power cut of one node",
        tell: |scene| power::cut(scene, 1, &scene.args.profile),
    },
    Story {
        name: "lying-disks",
        broken: true,
        what: "syncs of all disks lie, then a power cut: the checker must notice",
        tell: power::lies,
    },
    Story {
        name: "sync-error",
        broken: false,
        what: "one fsync of the log fails, of the leader and of a follower: the node stops",
        tell: stopping::sync_error,
    },
    Story {
        name: "state-sync-error",
        broken: false,
        what: "one fsync of the state fails while a snapshot is made: the node stops",
        tell: stopping::state_sync_error,
    },
    Story {
        name: "sync-hang",
        broken: false,
        what: "fsync of the leader's log hangs for 30 s",
        tell: hanging::leader,
    },
    Story {
        name: "slow-follower",
        broken: false,
        what: "a follower's disk 100 times slower, and a follower stopped: puts on the other two",
        tell: slow::follower,
    },
    Story {
        name: "disk-low",
        broken: false,
        what: "a node's disk falls below its mark: puts refused, deletes possible",
        tell: full::low,
    },
    Story {
        name: "no-space",
        broken: false,
        what: "ENOSPC on log, state and snapshots of one node, and recovery",
        tell: full::hard,
    },
    Story {
        name: "lost-write",
        broken: false,
        what: "a write of a node's log is lost or lands elsewhere: it is out, never silently wrong",
        tell: wrong::lost_write,
    },
];

impl Scene {
    fn say(&self, words: impl std::fmt::Display) {
        println!("{}: {words}", self.name);
    }
}

impl Told {
    fn of(end: End) -> Self {
        Self {
            end: Some(end),
            seen: Vec::new(),
            figures: Map::new(),
            short: Vec::new(),
        }
    }

    fn figure(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.figures.insert(name.to_owned(), value.into());
        self
    }

    fn shows(mut self, holds: bool, what: impl Into<String>) -> Self {
        if !holds {
            self.short.push(what.into());
        }
        self
    }
}

/// Tells them, prints a line for each, and adds the lines to the file asked for. Whether all of them hold.
///
/// # Errors
///
/// A story of that name does not exist, or the file can't be written.
pub fn run(args: &Args) -> Result<bool> {
    let chosen: Vec<&Story> = match args.stories.is_empty() {
        true => STORIES.iter().collect(),
        false => {
            let named = |name: &String| {
                let found = STORIES.iter().find(|story| story.name == *name);
                found.with_context(|| {
                    let names: Vec<_> = STORIES.iter().map(|story| story.name).collect();
                    format!("no story {name:?}; there are {}", names.join(", "))
                })
            };
            args.stories.iter().map(named).collect::<Result<_>>()?
        }
    };
    let mut short = Vec::new();
    for story in chosen {
        let account = tell(story, args)?;
        let line = serde_json::to_string(&account)?;
        let holds = account.why.is_empty();
        println!("{line}");
        if let Some(path) = &args.out {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            writeln!(file, "{line}")?;
        }
        if !holds {
            short.push(account.story);
        }
    }
    if !short.is_empty() {
        println!("falls short: {}", short.join(", "));
    }
    Ok(short.is_empty())
}

fn tell(story: &Story, args: &Args) -> Result<Account> {
    println!(
        "{}: {} (seed {}; replay: trellis-chaos-disk story {} --seed {} --rounds {})",
        story.name, story.what, args.seed, story.name, args.seed, args.rounds
    );
    let begin = Instant::now();
    let here = std::env::current_exe()?;
    let beside = here.with_file_name("trellis");
    let scene = Scene {
        args: args.clone(),
        plan: Plan {
            trellis: args.trellis.clone().unwrap_or(beside),
            layer: here,
            ..Plan::default()
        },
        name: story.name,
    };
    let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let told = (story.tell)(&scene);
    let version = Command::new(&scene.plan.trellis).arg("--version").output();
    let version = version.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    let mut account = Account {
        instrument: "disks",
        story: story.name.to_owned(),
        seed: args.seed,
        version: format!("{} ({})", version.unwrap_or_default(), account::commit()),
        at,
        seconds: begin.elapsed().as_secs_f64(),
        outage_seconds: 0.0,
        acknowledged: 0,
        unknown: 0,
        invariants: Vec::new(),
        faults: Vec::new(),
        verdict: "sound",
        why: Vec::new(),
        kept: None,
        figures: Map::new(),
    };
    match told {
        Ok(told) => {
            account.figures = told.figures;
            account.why = told.short;
            account.faults = told.seen;
            if let Some(end) = told.end {
                account.take(end, story.broken);
            }
        }
        Err(error) => account.why.push(format!("{error:#}")),
    }
    for reason in &account.why {
        println!("{}: FALLS SHORT: {reason}", story.name);
    }
    if !account.why.is_empty() && account.verdict == "sound" {
        account.verdict = "rejected";
    }
    Ok(account)
}

impl Account {
    /// What the checker says; `broken`: it is to find something broken.
    fn take(&mut self, end: End, broken: bool) {
        let coverage = &end.verdict.coverage;
        self.acknowledged = coverage.acknowledged;
        self.unknown = coverage.unknown;
        self.invariants = Invariant::ALL.map(|it| it.to_string()).into();
        self.faults.extend(end.faults);
        let rate = (end.rate * 10.0).round() / 10.0;
        self.figures
            .insert("acknowledged_per_second".to_owned(), json!(rate));
        match (broken, end.verdict.is_sound()) {
            (false, true) => println!("{}", end.verdict),
            (true, false) => {
                println!("the checker noticed: {:?}", end.verdict.first());
                if let Some(path) = &end.history {
                    // It shows what was wanted and nothing more.
                    let _ = std::fs::remove_file(path);
                }
            }
            (false, false) => {
                println!("{}", end.verdict);
                self.verdict = match end.verdict.findings.is_empty() {
                    true => "rejected",
                    false => "broken",
                };
                let findings = end.verdict.findings.iter().map(|it| it.words.clone());
                self.why
                    .extend(findings.chain(end.verdict.rejected).take(5));
                self.kept = end.history;
            }
            (true, true) => self.why.push("the checker noticed nothing".to_owned()),
        }
    }
}

/// Waits for something, with a bound.
fn within(what: &str, bound: Duration, mut look: impl FnMut() -> Result<bool>) -> Result<Duration> {
    let begin = Instant::now();
    while !look()? {
        if begin.elapsed() > bound {
            bail!("waited {bound:?} for {what}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(begin.elapsed())
}
