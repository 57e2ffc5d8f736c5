//! `trellis-bench`: drives any server that speaks beanstalkd's protocol, and says how fast it was.
//!
//! It knows nothing of Trellis but addresses, so beanstalkd and a Trellis cluster are measured by the same code. It
//! reports the CPU that it used itself, so that it is seen not to be the bottleneck, and a run in which any operation
//! failed says so and ends with exit code 1.

mod comparison;
mod disk;
mod drive;
mod figures;
mod machine;
mod pair;
mod peers;
mod plan;
mod scale;
mod servers;
mod side_by_side;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Benchmarks servers that speak beanstalkd's protocol.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure one server or cluster.
    Run(plan::RunArgs),
    /// Measure two, in rounds A B A B, and print the ratio of their medians.
    Pair(pair::PairArgs),
    /// Start beanstalkd (no log, default log, log synced at every write) and a Trellis cluster here, and print one table.
    SideBySide(side_by_side::SideBySideArgs),
    /// Start each durable queue that is installed here beside a Trellis cluster, load them in turn, and print one table.
    Peers(peers::PeersArgs),
    /// Start a Trellis cluster here, give it much of everything, and say what that took.
    Scale(scale::ScaleArgs),
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Run(args) => plan::run(&args),
        Command::Pair(args) => pair::run(&args),
        Command::SideBySide(args) => side_by_side::run(&args),
        Command::Peers(args) => peers::run(&args),
        Command::Scale(args) => scale::run(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("trellis-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}
