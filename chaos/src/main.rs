//! `trellis-chaos`: tells stories of broken clusters, and writes the fault report.

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use trellis_chaos::{Account, KINDS, Settings, Story, account::Word, report, tell};
use trellis_testkit::network::Network;

/// How long all stories and some pairs take together.
const MINUTES: u64 = 20;

/// Pairs of nemeses in one drawn story.
const PAIRS: usize = 3;

/// Real clusters, broken in every way that this machine allows.
#[derive(Debug, Parser)]
#[command(name = "trellis-chaos")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Tell stories: all of them and then pairs drawn by the seed; with --minutes only pairs.
    Run {
        /// Draw pairs of nemeses for so long.
        #[arg(long)]
        minutes: Option<u64>,
        /// What replays a run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only this one: a story, a nemesis, two nemeses as A+B, or several such as A+B,C+D;
        /// with * at the end also through HAProxy.
        #[arg(long)]
        story: Option<String>,
        /// The program of the nodes.
        #[arg(long)]
        binary: PathBuf,
        /// Operations that must be acknowledged in a second.
        #[arg(long, default_value_t = 500.0)]
        rate: f64,
        /// The workload's profile.
        #[arg(long, default_value = "busy")]
        profile: String,
        /// A file to which each story adds a line.
        #[arg(long)]
        results: Option<PathBuf>,
        /// Where histories and logs go of what is not sound.
        #[arg(long, default_value = "chaos-kept")]
        keep: PathBuf,
    },
    /// Write the fault report from the results of all instruments.
    Report {
        /// The folder with their files, `*.jsonl`.
        #[arg(long)]
        results: PathBuf,
        /// The report.
        #[arg(long)]
        out: PathBuf,
    },
    /// List stories and nemeses.
    List,
}

fn main() -> ExitCode {
    match run(Cli::parse().what) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("trellis-chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(what: What) -> Result<bool> {
    match what {
        What::Report { results, out } => {
            report::write(&results, &out)?;
            println!("{}", out.display());
            Ok(true)
        }
        What::List => {
            for story in Story::fixed() {
                let acts: Vec<_> = story.acts.iter().map(|act| act.outer.name).collect();
                println!("{:<12} {}", story.name, acts.join(", "));
            }
            println!();
            for kind in KINDS {
                println!("{:<20} fault {:>2}: {}", kind.name, kind.fault, kind.what);
            }
            Ok(true)
        }
        What::Run {
            minutes,
            seed,
            story,
            binary,
            rate,
            profile,
            results,
            keep,
        } => {
            if !Network::is_possible() {
                bail!("network namespaces need root");
            }
            let settings = Settings {
                binary: binary.canonicalize().context("--binary")?,
                profile,
                rate,
                commit: commit(),
                keep,
            };
            let story = story.map(|name| Story::named(&name)).transpose()?;
            let replay = match (&story, minutes) {
                (Some(story), _) => format!(" STORY='{}'", story.name),
                (None, Some(minutes)) => format!(" MINUTES={minutes}"),
                (None, None) => String::new(),
            };
            println!("seed {seed}, commit {}", settings.commit);
            println!("replay: make chaos SEED={seed}{replay}");
            let mut chaos = Chaos {
                settings,
                results,
                told: Vec::new(),
                begin: Instant::now(),
            };
            match (story, minutes) {
                (Some(story), _) => chaos.tell(&story, seed)?,
                (None, Some(minutes)) => chaos.draw(seed, Duration::from_secs(60 * minutes))?,
                (None, None) => {
                    for story in Story::fixed() {
                        chaos.tell(&story, seed)?;
                    }
                    chaos.draw(seed, Duration::from_secs(60 * MINUTES))?;
                }
            }
            Ok(chaos.sum_up())
        }
    }
}

/// A run of several stories.
struct Chaos {
    settings: Settings,
    results: Option<PathBuf>,
    told: Vec<Account>,
    begin: Instant,
}

impl Chaos {
    fn tell(&mut self, story: &Story, seed: u64) -> Result<()> {
        let at = self.begin.elapsed().as_secs();
        println!(
            "[{:>2}:{:02}] {} (seed {seed})",
            at / 60,
            at % 60,
            story.name
        );
        let told = tell(story, seed, &self.settings, &mut |line| println!("{line}"))?;
        println!(
            "  {:?}: {} acknowledged ({:.0} a second), {} unknown",
            told.verdict,
            told.acknowledged,
            told.rate(),
            told.unknown
        );
        for why in &told.why {
            println!("  {why}");
        }
        if told.verdict != Word::Sound {
            println!("  replay: {}", told.replay());
        }
        if let Some(kept) = &told.kept {
            println!("  history and logs: {}", kept.display());
        }
        if let Some(results) = &self.results {
            told.append(results)?;
        }
        self.told.push(told);
        Ok(())
    }

    /// Pairs by the seed until the time is over.
    fn draw(&mut self, seed: u64, bound: Duration) -> Result<()> {
        let mut random = StdRng::seed_from_u64(seed);
        while self.begin.elapsed() <= bound {
            let story = Story::drawn(PAIRS, &mut random);
            let seed = random.random_range(1..1_000_000);
            self.tell(&story, seed)?;
        }
        Ok(())
    }

    fn sum_up(&self) -> bool {
        let count = |word| self.told.iter().filter(|it| it.verdict == word).count();
        let faults: usize = self.told.iter().map(|it| it.faults.len()).sum();
        let acknowledged: u64 = self.told.iter().map(|it| it.acknowledged).sum();
        println!(
            "{} stories, {faults} faults, {acknowledged} acknowledged operations: {} sound, {} broken, {} rejected",
            self.told.len(),
            count(Word::Sound),
            count(Word::Broken),
            count(Word::Rejected)
        );
        let seconds: f64 = self.told.iter().map(|it| it.seconds).sum();
        let outage: f64 = self.told.iter().map(|it| it.outage_seconds).sum();
        let answers: u64 = self.told.iter().map(|it| it.outage_answers).sum();
        let least = self.told.iter().map(Account::rate).reduce(f64::min);
        println!(
            "{:.0} minutes of load, {:.0} operations acknowledged a second; while somebody could {:.0}, in the slowest story {:.0} \
             ({:.0} are demanded)",
            seconds / 60.0,
            acknowledged as f64 / seconds.max(1.0),
            acknowledged.saturating_sub(answers) as f64 / (seconds - outage).max(1.0),
            least.unwrap_or(0.0),
            self.settings.rate
        );
        count(Word::Sound) == self.told.len()
    }
}

/// The commit of the source, with a mark if it was changed since.
fn commit() -> String {
    let git = |words: &[&str]| {
        let done = Command::new("git").args(words).output().ok()?;
        let text = String::from_utf8_lossy(&done.stdout).trim().to_owned();
        done.status.success().then_some(text)
    };
    let head = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changed.is_some_and(|text| !text.is_empty()) {
        format!("{head}, changed")
    } else {
        head
    }
}
