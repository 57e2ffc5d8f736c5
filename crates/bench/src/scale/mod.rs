//! How a Trellis cluster behaves when there is much of something: each figure with its bar, held or not.

mod backlog;
mod client;
mod cluster;
mod crowds;
mod storms;
mod traffic;
mod verdict;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::cluster::Cluster;
use self::verdict::Verdict;
use crate::{disk, interrupted, machine, table};

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
    /// Jobs that are ready, fall due and are kicked.
    #[arg(long, default_value_t = 1_000_000)]
    jobs: u64,
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

/// By name, in the order in which they are made: each with a cluster of its own.
const EXPERIMENTS: &[(&str, Experiment)] = &[
    ("tubes", crowds::tubes),
    ("waiting", crowds::waiting),
    ("ready", backlog::ready),
    ("storms", storms::storms),
    ("bodies", traffic::bodies),
    ("churn", traffic::churn),
    ("gone", backlog::gone),
    ("transfer", storms::transfer),
];

/// What an experiment stands on.
struct Ground<'a> {
    args: &'a ScaleArgs,
    dir: &'a Path,
}

impl Ground<'_> {
    /// A new cluster, its settings at their defaults but for those named.
    fn cluster(&self, name: &str, settings: &[&str]) -> anyhow::Result<Cluster> {
        let dir = self.dir.join(name);
        Cluster::start(&self.args.trellis, self.args.nodes, &dir, settings)
    }
}

/// Makes the experiments and prints what they found. False if one could not be made; a bar that is not held is told.
pub(crate) fn run(args: &ScaleArgs) -> anyhow::Result<bool> {
    let wanted: Vec<&str> = args
        .only
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .collect();
    let known = |word: &&str| EXPERIMENTS.iter().any(|(name, _)| name == word);
    if let Some(unknown) = wanted.iter().find(|word| !known(word)) {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|(name, _)| *name).collect();
        anyhow::bail!("--only names '{unknown}'; known are {}", names.join(", "));
    }
    raise_open_files()?;
    std::fs::create_dir_all(&args.data_dir)
        .with_context(|| format!("can't create {}", args.data_dir.display()))?;
    let dir = tempfile::TempDir::with_prefix_in("scale-", &args.data_dir)?;
    interrupted::removes(dir.path())?;
    println!("{}", machine::described(&args.data_dir));

    let mut sound = true;
    let mut all: Vec<Verdict> = Vec::new();
    for (name, experiment) in EXPERIMENTS
        .iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.contains(name))
    {
        let ground = Ground {
            args,
            dir: dir.path(),
        };
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
        for entry in std::fs::read_dir(dir.path())?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                std::fs::remove_dir_all(&path)
                    .with_context(|| format!("can't clear {}", path.display()))?;
            }
        }
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
