//! Stories of three real nodes, each on a disk of its own that can be broken, under a recorded load.

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
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde::Serialize;
use serde_json::{Map, Value, json};

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

/// A story: its name, the fault that it is about, and how it is told.
struct Story {
    name: &'static str,
    fault: u32,
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
    /// What was seen besides.
    figures: Map<String, Value>,
    /// Why it falls short, if it does.
    short: Vec<String>,
}

/// The line that is kept of a story.
#[derive(Debug, Serialize)]
pub struct Account {
    /// The story's name.
    pub story: String,
    /// Its number in the list of faults.
    pub fault: u32,
    /// What was done.
    pub what: String,
    /// What replays it.
    pub seed: u64,
    /// How long it took.
    pub seconds: f64,
    /// Operations acknowledged.
    pub acknowledged: u64,
    /// Operations whose outcome is unknown.
    pub unknown: u64,
    /// Faults that were seen to take effect.
    pub faults: u64,
    /// Whether all that it is to show holds.
    pub holds: bool,
    /// Why not.
    pub short: Vec<String>,
    /// What was seen besides.
    pub figures: Map<String, Value>,
}

const STORIES: &[Story] = &[
    Story {
        name: "power-cut",
        fault: 31,
        what: "power cut of all three nodes at once: what was not synced is gone",
        tell: |scene| power::cut(scene, 3),
    },
    Story {
        name: "power-cut-two",
        fault: 31,
        what: "power cut of two of three nodes",
        tell: |scene| power::cut(scene, 2),
    },
    Story {
        name: "power-cut-one",
        fault: 31,
        what: "power cut of one node",
        tell: |scene| power::cut(scene, 1),
    },
    Story {
        name: "lying-disks",
        fault: 31,
        what: "syncs of all disks lie, then a power cut: the checker must notice",
        tell: power::lies,
    },
    Story {
        name: "sync-error",
        fault: 27,
        what: "one fsync of the log fails, of the leader and of a follower: the node stops",
        tell: stopping::sync_error,
    },
    Story {
        name: "state-sync-error",
        fault: 27,
        what: "one fsync of the state fails while a snapshot is made: the node stops",
        tell: stopping::state_sync_error,
    },
    Story {
        name: "sync-hang",
        fault: 28,
        what: "fsync of the leader's log hangs for 30 s",
        tell: hanging::leader,
    },
    Story {
        name: "slow-follower",
        fault: 29,
        what: "a follower's disk 100 times slower, and a follower stopped: puts on the other two",
        tell: slow::follower,
    },
    Story {
        name: "disk-low",
        fault: 30,
        what: "a node's disk falls below its mark: puts refused, deletes possible",
        tell: full::low,
    },
    Story {
        name: "no-space",
        fault: 30,
        what: "ENOSPC on log, state and snapshots of one node, and recovery",
        tell: full::hard,
    },
    Story {
        name: "lost-write",
        fault: 36,
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
        println!("{line}");
        if let Some(path) = &args.out {
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            writeln!(file, "{line}")?;
        }
        if !account.holds {
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
    let mut account = Account {
        story: story.name.to_owned(),
        fault: story.fault,
        what: story.what.to_owned(),
        seed: args.seed,
        seconds: 0.0,
        acknowledged: 0,
        unknown: 0,
        faults: 0,
        holds: false,
        short: Vec::new(),
        figures: Map::new(),
    };
    match (story.tell)(&scene) {
        Ok(told) => {
            account.figures = told.figures;
            account.short = told.short;
            if let Some(end) = told.end {
                account.take(&end, story.name == "lying-disks");
            }
        }
        Err(error) => account.short.push(format!("{error:#}")),
    }
    account.seconds = begin.elapsed().as_secs_f64();
    account.holds = account.short.is_empty();
    for reason in &account.short {
        println!("{}: FALLS SHORT: {reason}", story.name);
    }
    Ok(account)
}

impl Account {
    /// What the checker says; `broken`: it is to find something broken.
    fn take(&mut self, end: &End, broken: bool) {
        let coverage = &end.verdict.coverage;
        self.acknowledged = coverage.acknowledged;
        self.unknown = coverage.unknown;
        self.faults = coverage.faults;
        let rate = (end.rate * 10.0).round() / 10.0;
        self.figures
            .insert("acknowledged_per_second".to_owned(), json!(rate));
        println!("{}", end.verdict);
        if end.verdict.is_sound() == broken {
            self.short.push(match broken {
                false => format!(
                    "the checker: {:?}, rejected: {:?}; the history is {:?}",
                    end.verdict.first(),
                    end.verdict.rejected,
                    end.history
                ),
                true => "the checker noticed nothing".to_owned(),
            });
        }
        if broken && let Some(path) = &end.history {
            let _ = std::fs::remove_file(path);
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
