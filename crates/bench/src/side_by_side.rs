//! beanstalkd and a Trellis cluster under the same loads on this machine, in one table.

use std::path::PathBuf;

use clap::Args;

use crate::comparison::Comparison;
use crate::figures::Figures;
use crate::pair::{median, median_cells};
use crate::plan::{Load, Mix, Plan, report_failures};
use crate::servers::{Server, Site};
use crate::{disk, drive, table};

/// `trellis-bench side-by-side`
#[derive(Debug, Args)]
pub(crate) struct SideBySideArgs {
    #[command(flatten)]
    comparison: Comparison,
    /// The `beanstalkd` binary.
    #[arg(long, default_value = "beanstalkd")]
    beanstalkd: PathBuf,
    /// Only loads whose name holds this word.
    #[arg(long)]
    only: Option<String>,
}

/// A load, with the name under which it is reported.
struct Scenario {
    name: &'static str,
    mix: Mix,
    connections: usize,
    depth: usize,
    /// Operations per second; `None` for as many as go.
    rate: Option<f64>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "puts, 256 connections",
        mix: Mix::Put,
        connections: 256,
        depth: 1,
        rate: None,
    },
    Scenario {
        name: "puts, 1 connection",
        mix: Mix::Put,
        connections: 1,
        depth: 1,
        rate: None,
    },
    Scenario {
        name: "puts, 4 connections, 64 in flight each",
        mix: Mix::Put,
        connections: 4,
        depth: 64,
        rate: None,
    },
    Scenario {
        name: "puts, 64 connections, 1,000/s",
        mix: Mix::Put,
        connections: 64,
        depth: 16,
        rate: Some(1000.0),
    },
    Scenario {
        name: "cycles, 64 connections",
        mix: Mix::Cycle,
        connections: 64,
        depth: 1,
        rate: None,
    },
    Scenario {
        name: "delivery to a waiting worker, 16 pairs",
        mix: Mix::Delivery,
        connections: 16,
        depth: 1,
        rate: None,
    },
    Scenario {
        name: "delivery to a waiting worker, 1 pair",
        mix: Mix::Delivery,
        connections: 1,
        depth: 1,
        rate: None,
    },
];

/// The servers that are compared.
const SUBJECTS: &[&str] = &[
    "beanstalkd, no log",
    "beanstalkd -b",
    "beanstalkd -b -f0",
    "trellis",
];
/// Places among [`SUBJECTS`] of those that the others are measured against.
const NO_LOG: usize = 0;
const SYNCED: usize = 2;

/// Measures every server under every load and prints one table for each load. False if an operation failed.
pub(crate) fn run(args: &SideBySideArgs) -> anyhow::Result<bool> {
    let comparison = &args.comparison;
    let site = Site::new(&comparison.data_dir)?;
    println!(
        "data in {}, where writing and syncing 4 KiB takes {} (median); {} cores; {}-byte bodies; \
         {} rounds of {} s, each server in turn",
        comparison.data_dir.display(),
        table::duration(disk::probe(&comparison.data_dir)?.p50_us),
        std::thread::available_parallelism()?,
        comparison.body_bytes,
        comparison.rounds,
        comparison.seconds,
    );
    println!(
        "sync: beanstalkd without a log keeps jobs in memory; -b syncs every 50 ms; -b -f0 before it answers; \
         trellis has {} nodes and answers when a majority has synced\n",
        comparison.nodes
    );

    let mut sound = true;
    let mut everything = serde_json::Map::new();
    for scenario in SCENARIOS
        .iter()
        .filter(|it| args.only.as_ref().is_none_or(|word| it.name.contains(word)))
    {
        let rounds = measure(args, scenario, &site, &mut sound)?;
        print_scenario(scenario, &rounds);
        let named = SUBJECTS
            .iter()
            .map(|name| (*name).to_owned())
            .zip(rounds.iter().map(serde_json::to_value));
        let named: Result<serde_json::Map<_, _>, _> = named
            .map(|(name, value)| value.map(|it| (name, it)))
            .collect();
        everything.insert(scenario.name.to_owned(), named?.into());
    }
    comparison.write(&everything)?;
    Ok(sound)
}

/// All rounds of one load, by subject. The servers are new, so that no load meets what another left behind.
fn measure(
    args: &SideBySideArgs,
    scenario: &Scenario,
    site: &Site,
    sound: &mut bool,
) -> anyhow::Result<Vec<Vec<Figures>>> {
    let comparison = &args.comparison;
    let beanstalkd = |name: &str, flags: &[&str]| {
        Server::beanstalkd(&args.beanstalkd, flags, &site.launch(name)?)
    };
    let servers = [
        beanstalkd("beanstalkd", &[])?,
        beanstalkd("beanstalkd-b", &["-b"])?,
        beanstalkd("beanstalkd-f0", &["-b", "-f0"])?,
        Server::trellis(
            &comparison.trellis,
            comparison.nodes,
            &site.launch("trellis")?,
        )?,
    ];

    let load = Load {
        rate: scenario.rate,
        ..comparison.load(scenario.mix, scenario.connections, scenario.depth)
    };
    let mut rounds = vec![Vec::new(); servers.len()];
    for _ in 0..comparison.rounds.max(1) {
        for (server, figures) in servers.iter().zip(&mut rounds) {
            let found = drive::run(&Plan::new(&server.targets, &load, &server.pids())?)?;
            *sound &= report_failures(&found);
            figures.push(found);
        }
    }
    Ok(rounds)
}

fn print_scenario(scenario: &Scenario, rounds: &[Vec<Figures>]) {
    let per_second = |subject: usize| median(&rounds[subject], |it| it.per_second);
    let rows = SUBJECTS.iter().enumerate().map(|(subject, name)| {
        let figures = &rounds[subject];
        let mut row = vec![(*name).to_owned()];
        row.extend(median_cells(figures));
        for base in [NO_LOG, SYNCED] {
            // In an open loop all do as much as they are asked to; their latency tells them apart.
            row.push(match scenario.rate {
                None => format!("{:.2}", per_second(subject) / per_second(base)),
                Some(_) => String::new(),
            });
        }
        let put = |it: &Figures| it.latency.get("put").map_or(f64::NAN, |put| put.p50_us);
        row.push(table::duration(median(figures, put)));
        let server = median(figures, |it| it.server_cpu_cores.unwrap_or(f64::NAN));
        row.push(format!("{server:.2}"));
        let busiest = |it: &Figures| it.own_cpu_by_thread.iter().copied().fold(0.0, f64::max);
        row.push(format!("{:.0} %", 100.0 * median(figures, busiest)));
        row.push(format!("{:.1}", median(figures, |it| it.load_average)));
        row
    });
    println!("{}", scenario.name);
    let head = [
        "",
        "per second",
        "p50",
        "p99",
        "p99.9",
        "× no log",
        "× -f0",
        "put p50",
        "server cores",
        "bench thread",
        "load",
    ];
    println!("{}", table::grid(&head, rows));
}
