//! `trellis-sim model …`: explore, walk, or drop rules. See `trellis_sim::model`.

use std::{process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};
use trellis_sim::model::{Rule, Violation, catch, explore, kind_of, scenarios, walk};

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
    let What::Model(model) = Arguments::parse().what;
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
