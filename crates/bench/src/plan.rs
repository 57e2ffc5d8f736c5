//! What to do, how hard, and for how long.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};

use crate::drive::Tongue;
use crate::figures::Figures;
use crate::{drive, table};

/// What one operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mix {
    /// A put, from sending it to `INSERTED`. The jobs stay in the server.
    Put,
    /// A put, a reserve and a delete, one after the other on one connection.
    Cycle,
    /// A put on one address to a worker that waits on the next one, until the worker has the job.
    Delivery,
}

/// How a server is loaded.
#[derive(Clone, Debug, Args)]
pub(crate) struct Load {
    /// What the server speaks.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) dialect: Tongue,
    /// What one operation is.
    #[arg(long, value_enum, default_value_t = Mix::Put)]
    pub(crate) mix: Mix,
    /// Connections, spread over the addresses in turn. With `delivery`: pairs of a producer and a worker.
    #[arg(long, short = 'c', default_value_t = 64)]
    pub(crate) connections: usize,
    /// Operations in flight per connection. With `delivery` always 1.
    #[arg(long, default_value_t = 1)]
    pub(crate) depth: usize,
    /// Bytes of a job's body; incompressible.
    #[arg(long, default_value_t = 256)]
    pub(crate) body_bytes: usize,
    /// Tubes, used by the connections in turn. With `delivery` each pair has its own.
    #[arg(long, default_value_t = 1)]
    pub(crate) tubes: usize,
    /// Before each put, go to the next of so many tubes, named roam-0, roam-1, ...; 0: stay. With `put` only.
    #[arg(long, default_value_t = 0)]
    pub(crate) roam: usize,
    /// Operations per second in all (open loop): each is sent when it is due whatever became of the earlier ones, and
    /// its latency counts from when it was due. Without it the loop is closed: a connection sends when it has an answer.
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// Seconds before anything counts.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) warm_up: f64,
    /// Seconds that count.
    #[arg(long, short = 's', default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// Threads that drive. Look at their CPU in the report before raising this.
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// Seconds without a reply after which an operation has failed.
    #[arg(long, default_value_t = 30.0)]
    pub(crate) patience: f64,
}

/// `trellis-bench run`
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// host:port of a server; give it again for each node of a cluster.
    #[arg(long = "target", required = true)]
    targets: Vec<String>,
    #[command(flatten)]
    load: Load,
    /// Write the figures as JSON into this file, or `-` for standard output instead of the table.
    #[arg(long)]
    json: Option<PathBuf>,
    /// A process whose CPU is reported too; give it again for each.
    #[arg(long = "watch-pid")]
    watch_pids: Vec<u32>,
}

/// A load that was checked, and whom to load.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) targets: Vec<SocketAddr>,
    pub(crate) load: Load,
    /// Processes of the server, whose CPU is reported.
    pub(crate) watched: Vec<u32>,
}

impl Plan {
    /// Checks the load and resolves the addresses.
    pub(crate) fn new(targets: &[String], load: &Load, watched: &[u32]) -> anyhow::Result<Self> {
        ensure!(load.connections >= 1, "--connections is 0; at least 1");
        ensure!(load.depth >= 1, "--depth is 0; at least 1");
        ensure!(load.tubes >= 1, "--tubes is 0; at least 1");
        ensure!(load.threads >= 1, "--threads is 0; at least 1");
        ensure!(
            load.body_bytes <= 64 << 20,
            "--body-bytes is {}; at most {}",
            load.body_bytes,
            64 << 20
        );
        ensure!(
            load.seconds > 0.0,
            "--seconds is {}; more than 0",
            load.seconds
        );
        ensure!(
            load.warm_up >= 0.0,
            "--warm-up is {}; at least 0",
            load.warm_up
        );
        ensure!(
            load.rate.is_none_or(|rate| rate > 0.0),
            "--rate is not above 0"
        );
        let targets = targets
            .iter()
            .flat_map(|list| list.split(','))
            .map(|target| {
                let mut found = target
                    .to_socket_addrs()
                    .with_context(|| format!("--target {target}"))?;
                found
                    .next()
                    .with_context(|| format!("--target {target}: no address"))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(
            load.roam == 0 || (load.mix == Mix::Put && load.dialect == Tongue::Beanstalk),
            "--roam goes with --mix put and beanstalkd's protocol"
        );
        if load.dialect == Tongue::Etcd {
            ensure!(
                load.mix != Mix::Delivery && load.rate.is_none(),
                "etcd has no --mix delivery and no --rate here"
            );
        }
        let mut load = load.clone();
        load.threads = load.threads.min(load.connections);
        if load.mix == Mix::Delivery {
            load.depth = 1;
        }
        Ok(Self {
            targets,
            load,
            watched: watched.to_vec(),
        })
    }

    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.load.warm_up)
    }

    pub(crate) fn measured(&self) -> Duration {
        Duration::from_secs_f64(self.load.seconds)
    }
}

/// Measures once and reports. False if an operation failed.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<bool> {
    let plan = Plan::new(&args.targets, &args.load, &args.watch_pids)?;
    let figures = drive::run(&plan)?;
    match &args.json {
        Some(path) if path.as_os_str() == "-" => {
            println!("{}", serde_json::to_string_pretty(&figures)?)
        }
        path => {
            print!("{}", table::of_run(&figures));
            if let Some(path) = path {
                std::fs::write(path, serde_json::to_vec_pretty(&figures)?)
                    .with_context(|| format!("can't write {}", path.display()))?;
            }
        }
    }
    Ok(report_failures(&figures))
}

/// Says what failed, if anything did. True if nothing did.
pub(crate) fn report_failures(figures: &Figures) -> bool {
    if figures.failed > 0 {
        eprintln!(
            "{} operations FAILED, so the figures do not count. The first ones:",
            figures.failed
        );
        for failure in &figures.failures {
            eprintln!("  {failure}");
        }
    }
    figures.failed == 0
}
