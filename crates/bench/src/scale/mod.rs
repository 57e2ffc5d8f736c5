//! How a Trellis cluster behaves when there is much of something: each figure with its bar, held or not.

mod backlog;
mod client;
mod cluster;
mod crowds;
mod progress;
mod storms;
mod traffic;
mod verdict;

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::cluster::Cluster;
use self::verdict::Verdict;
use crate::servers::Site;
use crate::{disk, machine, table};

/// `trellis-bench scale`
#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// The `trellis` binary.
    #[arg(long, default_value = "trellis")]
    trellis: PathBuf,
    /// Only these, with spaces or commas between them; all if it is empty. `list` names them.
    #[arg(long, default_value = "")]
    only: String,
    /// Tubes.
    #[arg(long, default_value_t = 30_000)]
    tubes: usize,
    /// Connections that wait.
    #[arg(long, default_value_t = 10_000)]
    waiting: usize,
    /// Jobs that are ready; if it is more than 1,000,000, both that many and this many.
    #[arg(long, default_value_t = 1_000_000)]
    jobs: u64,
    /// Jobs that fall due and are kicked.
    #[arg(long, default_value_t = 1_000_000)]
    storm: u64,
    /// Jobs that are put and deleted; the bar is set for 5,000,000.
    #[arg(long, default_value_t = 5_000_000)]
    gone: u64,
    /// Minutes of short jobs beside one that stays; the bar is set for 10.
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// Where the servers write. It should be on the disk that you mean to use, not in memory.
    #[arg(long, default_value = "data/bench")]
    data_dir: PathBuf,
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 3)]
    nodes: u16,
    /// Write the figures as JSON into this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

type Experiment = fn(&Ground) -> anyhow::Result<Vec<Verdict>>;
/// What it takes on two cores with nothing else to do, roughly.
type Seconds = fn(&ScaleArgs) -> f64;

/// By name, in the order in which they are made: each with a cluster of its own.
const EXPERIMENTS: &[(&str, Experiment, Seconds)] = &[
    ("tubes", crowds::tubes, |args| {
        30.0 + args.tubes as f64 / 2e3
    }),
    ("waiting", crowds::waiting, |_| 35.0),
    ("ready", backlog::ready, |args| {
        let more = if args.jobs > backlog::MILLION {
            50.0
        } else {
            0.0
        };
        more + 20.0 + args.jobs as f64 / 35e3
    }),
    ("storms", storms::storms, |args| {
        140.0 + args.storm as f64 / 6e3
    }),
    ("bodies", traffic::bodies, |_| 25.0),
    ("churn", traffic::churn, |args| 10.0 + 60.0 * args.minutes),
    ("gone", backlog::gone, |args| 15.0 + args.gone as f64 / 20e3),
    ("transfer", storms::transfer, |_| 45.0),
];
/// Bytes of disk that a job takes on all nodes together while there are many: log, state, and a snapshot that keeps what
/// compaction has replaced.
const DISK_BYTES_PER_JOB: f64 = 1_600.0;

/// What an experiment stands on.
struct Ground<'a> {
    args: &'a ScaleArgs,
    site: &'a Site,
}

impl Ground<'_> {
    /// A new cluster, its settings at their defaults but for those named.
    fn cluster(&self, name: &str, settings: &[&str]) -> anyhow::Result<Cluster> {
        let launch = self.site.launch(name)?;
        Cluster::start(&self.args.trellis, self.args.nodes, launch, settings)
    }
}

/// Makes the experiments and prints what they found. False if one could not be made; a bar that is not held is told.
pub(crate) fn run(args: &ScaleArgs) -> anyhow::Result<bool> {
    let wanted: Vec<&str> = args
        .only
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .collect();
    let known = |word: &&str| EXPERIMENTS.iter().any(|(name, ..)| name == word);
    if let Some(unknown) = wanted.iter().find(|word| !known(word)) {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|(name, ..)| *name).collect();
        anyhow::bail!("--only names '{unknown}'; known are {}", names.join(", "));
    }
    raise_open_files()?;
    let site = Site::new(&args.data_dir)?;
    println!("{}", machine::described(&args.data_dir));

    let chosen: Vec<_> = EXPERIMENTS
        .iter()
        .filter(|(name, ..)| wanted.is_empty() || wanted.contains(name))
        .collect();
    let seconds: f64 = chosen.iter().map(|(_, _, seconds)| seconds(args)).sum();
    eprintln!(
        "about {:.0} minutes on two idle cores; up to {:.0} GB of disk",
        (seconds / 60.0).ceil(),
        (1.0 + args.jobs.max(2 * args.storm) as f64 * DISK_BYTES_PER_JOB / 1e9).ceil()
    );

    let mut sound = true;
    let mut all: Vec<Verdict> = Vec::new();
    for (name, experiment, _) in chosen {
        let ground = Ground { args, site: &site };
        let sync = disk::probe(&args.data_dir)?;
        eprintln!(
            "{name}; fdatasync p50 {}, p99 {}; load average {:.1}",
            table::duration(sync.p50_us),
            table::duration(sync.p99_us),
            crate::figures::load_average()
        );
        match experiment(&ground) {
            Ok(verdicts) => {
                for verdict in &verdicts {
                    eprintln!("  {}", verdict.row().join(" | "));
                }
                all.extend(verdicts);
            }
            Err(error) => {
                sound = false;
                eprintln!("  NOT MEASURED: {error:#}");
                all.push(Verdict::told(*name, format!("NOT MEASURED: {error:#}")));
            }
        }
        site.clear()?;
    }
    let rows = all.iter().map(Verdict::row);
    println!("\n{}", table::grid(&["what", "figure", "bar", ""], rows));
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&all)?)
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(sound)
}

/// Ten thousand sockets are more than a shell allows by default; the servers inherit it.
fn raise_open_files() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )
    .context("can't raise the number of open files")
}
