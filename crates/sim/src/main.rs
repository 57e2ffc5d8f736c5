//! `trellis-sim model …`: explore, walk, or drop rules; see `trellis_sim::model`. `trellis-sim whole …`:
//! whole nodes in simulated time; see `trellis_sim::whole`.

use std::{ops::RangeInclusive, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};
use trellis_sim::{
    model::{Rule, Violation, catch, explore, kind_of, scenarios, walk},
    whole::{Plan, Series, play, play_all},
};

#[derive(Parser)]
#[command(name = "trellis-sim", about, version)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The protocol as a small model.
    #[command(subcommand)]
    Model(Model),
    /// Whole nodes in simulated time, with faults. Exit code 1: a promise was broken; 2: a run proves
    /// nothing.
    Whole(Whole),
}

#[derive(clap::Args)]
struct Whole {
    /// One seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Seeds from the first to the last, like 1..500.
    #[arg(long, value_parser = range)]
    seeds: Option<RangeInclusive<u64>>,
    /// How many at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Simulated seconds of faults in each run.
    #[arg(long, default_value_t = 40)]
    seconds: u64,
    /// Where histories are kept: those of failures, or that of the one seed.
    #[arg(long, default_value = "target/sim")]
    histories: PathBuf,
    /// Where one seed's outcome is written, as JSON.
    #[arg(long)]
    outcome: Option<PathBuf>,
    /// Where a line is added for each of many seeds, as JSON.
    #[arg(long)]
    results: Option<PathBuf>,
    /// What the history says was tested.
    #[arg(long)]
    commit: Option<String>,
    /// Go on after a failure.
    #[arg(long)]
    all: bool,
    /// Plant a bug; only in a binary that has them (`--features trellis-types/seeded-bugs`).
    #[arg(long)]
    bug: Option<String>,
}

#[derive(Subcommand)]
enum Model {
    /// Look at every state that small worlds can come to.
    Exhaustive {
        /// Only this one.
        #[arg(long)]
        scenario: Option<String>,
        /// Most states of one scenario.
        #[arg(long, default_value_t = 4_000_000)]
        states: usize,
        /// Most time for one scenario.
        #[arg(long, default_value_t = 120)]
        seconds: u64,
        /// Drop a rule.
        #[arg(long, value_enum)]
        drop: Option<Rule>,
    },
    /// Walk at random through random worlds.
    Walk {
        /// The seed of the first walk; the next one has the next seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How long.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Most walks.
        #[arg(long, default_value_t = u64::MAX)]
        walks: u64,
        /// Drop a rule.
        #[arg(long, value_enum)]
        drop: Option<Rule>,
    },
    /// Drop each rule in turn and see that something notices.
    Mutations {
        /// The seed of the first walk.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Most time for the walks of one rule, and for each scenario after them.
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// Show how each was noticed.
        #[arg(long)]
        traces: bool,
    },
}

fn main() -> ExitCode {
    let model = match Arguments::parse().what {
        What::Model(model) => model,
        What::Whole(whole) => return wholes(whole),
    };
    let sound = match model {
        Model::Exhaustive {
            scenario,
            states,
            seconds,
            drop,
        } => exhaustive(scenario.as_deref(), states, seconds, drop),
        Model::Walk {
            seed,
            seconds,
            walks,
            drop,
        } => walks_from(seed, seconds, walks, drop),
        Model::Mutations {
            seed,
            seconds,
            traces,
        } => mutations(seed, seconds, traces),
    };
    match sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    match text.split_once("..") {
        Some((first, last)) => Ok(number(first)?..=number(last.trim_start_matches('='))?),
        None => Ok(number(text)?..=number(text)?),
    }
}

fn wholes(whole: Whole) -> ExitCode {
    let commit = whole.commit.clone().unwrap_or_else(head);
    if let Err(error) = std::fs::create_dir_all(&whole.histories) {
        eprintln!("trellis-sim: {}: {error}", whole.histories.display());
        return ExitCode::from(74);
    }
    if let Some(seeds) = whole.seeds.clone() {
        println!(
            "seeds {}..{} of commit {commit}; replay one: make sim SEED=n",
            seeds.start(),
            seeds.end()
        );
        let series = Series {
            seeds,
            jobs: whole.jobs,
            seconds: whole.seconds,
            folder: whole.histories,
            commit,
            all: whole.all,
            results: whole.results,
            bug: whole.bug,
        };
        return match play_all(&series) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        };
    }
    let seed = whole.seed.unwrap_or(1);
    if std::env::var_os("TRELLIS_SIM_CHANCE").is_none() {
        return again_with_chance(seed, whole.bug.as_deref());
    }
    one_whole(&whole, seed, commit)
}

/// What is checked out, if git knows.
fn head() -> String {
    let git = std::process::Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output();
    let head = git.ok().filter(|output| output.status.success());
    let head = head.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    head.unwrap_or_else(|| "unknown".to_owned())
}

/// The same once more, with chance that follows from the seed.
fn again_with_chance(seed: u64, bug: Option<&str>) -> ExitCode {
    let again = std::env::current_exe().and_then(|program| {
        let mut command = std::process::Command::new(program);
        command.args(std::env::args_os().skip(1));
        command.env("TRELLIS_SIM_CHANCE", seed.to_string());
        if let Some(bug) = bug {
            command.env("SEEDED_BUG", bug);
        }
        command.status()
    });
    match again {
        Ok(status) => ExitCode::from(u8::try_from(status.code().unwrap_or(70)).unwrap_or(70)),
        Err(error) => {
            eprintln!("trellis-sim: cannot start itself again: {error}");
            ExitCode::from(70)
        }
    }
}

fn one_whole(whole: &Whole, seed: u64, commit: String) -> ExitCode {
    let seconds = whole.seconds;
    println!("seed {seed} of commit {commit}; replay: make sim SEED={seed} SECONDS={seconds}");
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .without_time()
        .init();
    let history = whole.histories.join(format!("seed-{seed}.jsonl"));
    let plan = Plan {
        seed,
        seconds,
        commit,
    };
    let begun = std::time::Instant::now();
    let outcome = match play(&plan, &history) {
        Ok(outcome) => outcome,
        Err(words) => {
            println!("{words}");
            return ExitCode::from(2);
        }
    };
    print!("{outcome}");
    println!(
        "{:.1} simulated seconds of {} nodes in {:.1} s",
        outcome.simulated_ms as f64 / 1e3,
        outcome.nodes,
        begun.elapsed().as_secs_f64()
    );
    if let Some(file) = &whole.outcome {
        let written = serde_json::to_vec(&outcome)
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(file, text));
        if let Err(error) = written {
            println!("{}: {error}", file.display());
            return ExitCode::from(2);
        }
        // Only failures are worth the room.
        if outcome.is_sound() && std::fs::remove_file(&history).is_ok() {
            return ExitCode::SUCCESS;
        }
    }
    println!("history: {}", history.display());
    match (outcome.is_sound(), outcome.is_rejected()) {
        (true, _) => ExitCode::SUCCESS,
        (_, true) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

fn exhaustive(only: Option<&str>, states: usize, seconds: u64, drop: Option<Rule>) -> bool {
    let mut sound = true;
    let mut any = false;
    for mut scenario in scenarios() {
        if only.is_some_and(|only| only != scenario.name) {
            continue;
        }
        any = true;
        scenario.setup.dropped = drop;
        let explored = explore(&scenario.setup, states, Duration::from_secs(seconds));
        println!(
            "{:<30} {:>9} states {:>10} steps {:>7} at rest, depth {:>3}, {}",
            scenario.name,
            explored.states,
            explored.steps,
            explored.rests,
            explored.depth,
            match (&explored.violation, explored.complete) {
                (Some(_), _) => "BROKEN",
                (None, true) => "all of them",
                (None, false) => "not all of them",
            }
        );
        if let Some(violation) = explored.violation {
            println!("replay: {}", exhaustive_line(scenario.name, drop));
            show(&violation);
            sound = false;
        }
    }
    if !any {
        let names: Vec<_> = scenarios().iter().map(|scenario| scenario.name).collect();
        eprintln!("no such scenario; there are {}", names.join(", "));
    }
    sound && any
}

fn walks_from(seed: u64, seconds: u64, walks: u64, drop: Option<Rule>) -> bool {
    println!("seed {seed}; replay: {}", walk_line(seed, None, drop));
    let walked = walk(seed, drop, walks, Duration::from_secs(seconds));
    println!("{} walks, {} steps", walked.walks, walked.steps);
    match walked.violation {
        None => true,
        Some((seed, violation)) => {
            println!("replay: {}", walk_line(seed, Some(1), drop));
            show(&violation);
            false
        }
    }
}

fn mutations(seed: u64, seconds: u64, traces: bool) -> bool {
    println!("seed {seed}; replay: {LINE} model mutations --seed {seed} --seconds {seconds}");
    println!(
        "{:<20} {:<28} {:>9} {:>10} {:>9} {:>7}  breach",
        "rule dropped", "caught by", "tries", "steps", "seed", "took"
    );
    let mut all = true;
    for rule in Rule::all() {
        let caught = catch(*rule, seed, Duration::from_secs(seconds));
        all &= caught.violation.is_some();
        println!(
            "{:<20} {:<28} {:>9} {:>10} {:>9} {:>6.1}s  {}",
            rule.name(),
            caught.by.as_deref().unwrap_or("NOT CAUGHT"),
            caught.tries,
            caught.steps,
            caught.seed.map_or("-".to_owned(), |seed| seed.to_string()),
            caught.took.as_secs_f64(),
            caught
                .violation
                .as_ref()
                .map_or("", |violation| kind_of(&violation.breach)),
        );
        if traces && let Some(violation) = caught.violation {
            show(&violation);
        }
    }
    all
}

const LINE: &str = "cargo run -p trellis-sim --release --";

fn walk_line(seed: u64, walks: Option<u64>, drop: Option<Rule>) -> String {
    let walks = walks.map_or(String::new(), |walks| format!(" --walks {walks}"));
    format!("{LINE} model walk --seed {seed}{walks}{}", drop_line(drop))
}

fn exhaustive_line(scenario: &str, drop: Option<Rule>) -> String {
    format!(
        "{LINE} model exhaustive --scenario {scenario}{}",
        drop_line(drop)
    )
}

fn drop_line(drop: Option<Rule>) -> String {
    drop.map_or(String::new(), |rule| format!(" --drop {}", rule.name()))
}

fn show(violation: &Violation) {
    print!("{violation}");
}
