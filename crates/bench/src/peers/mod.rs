//! Every durable queue that is installed here beside a Trellis cluster, under the same loads, in one table.
//!
//! One peer at a time runs beside Trellis, both with their data on one disk and nothing left from an earlier load. They
//! are loaded in turn, peer, Trellis, peer, Trellis, so that what else the machine does strikes both alike; who is not
//! loaded stays idle, and how much CPU it takes meanwhile is told.

mod bars;
mod measured;
mod peer;
mod syncs;
mod task;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};

use self::measured::{HEAD, Measured, row};
use self::peer::Peer;
use self::task::{Shape, Task};
use crate::figures::{Figures, cpu_seconds_of};
use crate::plan::{Load, Plan, report_failures};
use crate::servers::{Launch, Server, version_of};
use crate::{disk, drive, interrupted, machine, table};

/// Loads for which a bar is set.
const LOADS: &str = "put:256 put:1 put:1:1000 cycle:256";
/// Beside the first peer only: a bar of Trellis alone.
const LOADS_ONCE: &str = "delivery:1";
/// Connections of `--full`, each with puts and with cycles.
const CONNECTIONS_FULL: &str = "1 16 64 256 1024";
/// Beside those, with `--full`.
const LOADS_FULL: &str = "put:1:1000 put:16:64 delivery:1 delivery:16";

/// `trellis-bench peers`
#[derive(Debug, Args)]
pub(crate) struct PeersArgs {
    /// The `trellis` binary.
    #[arg(long, default_value = "trellis")]
    trellis: PathBuf,
    /// Peers, with spaces or commas between them; all of them if it is empty.
    #[arg(long, default_value = "")]
    peers: String,
    /// Loads, as `put:256`, `cycle:64`, `delivery:1`, or with a depth `put:1:1000`; those with a bar if it is empty.
    #[arg(long, default_value = "")]
    loads: String,
    /// Numbers of connections: puts and cycles at each of them, instead of the loads.
    #[arg(long, default_value = "")]
    connections: String,
    /// Operations in flight per connection, with --connections.
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// All numbers of connections, pipelined puts and deliveries: an hour or so.
    #[arg(long)]
    full: bool,
    /// Where the servers write. It should be on the disk that you mean to use, not in memory.
    #[arg(long, default_value = "data/bench")]
    data_dir: PathBuf,
    /// Seconds that count, in each round.
    #[arg(long, short = 's', default_value_t = 3.0)]
    seconds: f64,
    /// Seconds before them that do not.
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// How often each of the two is measured under each load, in turn.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Bytes of a job's body.
    #[arg(long, default_value_t = 256)]
    body_bytes: usize,
    /// Nodes of the Trellis cluster.
    #[arg(long, default_value_t = 3)]
    nodes: u16,
    /// Threads that drive.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Count no fsyncs.
    #[arg(long)]
    no_syncs: bool,
    /// Write the figures of all rounds as JSON into this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl PeersArgs {
    fn peers(&self) -> anyhow::Result<Vec<Peer>> {
        let words: Vec<&str> = words(&self.peers).collect();
        if words.is_empty() {
            return Ok(Peer::value_variants().to_vec());
        }
        words
            .into_iter()
            .map(|word| {
                let known = Peer::value_variants().iter();
                let names: Vec<String> = known
                    .filter_map(|peer| Some(peer.to_possible_value()?.get_name().to_owned()))
                    .collect();
                Peer::from_str(word, true).map_err(|_| {
                    anyhow::anyhow!("--peers names '{word}'; known are {}", names.join(", "))
                })
            })
            .collect()
    }

    /// Loads of each peer, and those beside the first one only.
    fn tasks(&self) -> anyhow::Result<(Vec<Task>, Vec<Task>)> {
        let by_connections = |list: &str, depth: usize| -> anyhow::Result<Vec<Task>> {
            let each = ["put", "cycle"].iter().flat_map(|mix| {
                words(list).map(move |count| format!("{mix}:{count}:{depth}").parse())
            });
            each.collect()
        };
        if !self.connections.is_empty() {
            return Ok((by_connections(&self.connections, self.depth)?, Vec::new()));
        }
        if !self.loads.is_empty() {
            return Ok((parse(&self.loads)?, Vec::new()));
        }
        if self.full {
            let mut tasks = by_connections(CONNECTIONS_FULL, 1)?;
            tasks.extend(parse(LOADS_FULL)?);
            return Ok((tasks, Vec::new()));
        }
        Ok((parse(LOADS)?, parse(LOADS_ONCE)?))
    }
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split([' ', ',']).filter(|word| !word.is_empty())
}

fn parse(list: &str) -> anyhow::Result<Vec<Task>> {
    words(list).map(str::parse).collect()
}

/// Measures every peer under every load and prints the table and the bars. False if anything that is installed could
/// not be measured.
pub(crate) fn run(args: &PeersArgs) -> anyhow::Result<bool> {
    let (tasks, tasks_once) = args.tasks()?;
    let peers = args.peers()?;
    let hindrance = if args.no_syncs {
        Some("not asked for".to_owned())
    } else {
        syncs::hindrance()
    };
    std::fs::create_dir_all(&args.data_dir)
        .with_context(|| format!("can't create {}", args.data_dir.display()))?;
    let dir = tempfile::TempDir::with_prefix_in("peers-", &args.data_dir)?;
    interrupted::removes(dir.path())?;
    let mut bench = Bench {
        args,
        shape: Shape {
            body_bytes: args.body_bytes,
            warm_up: args.warm_up,
            seconds: args.seconds,
            threads: args.threads,
        },
        dir: dir.path(),
        count_syncs: hindrance.is_none(),
        syncs_of_trellis: BTreeMap::new(),
        launches: 0,
    };

    println!("{}", machine::described(&args.data_dir));
    println!(
        "{}-byte bodies; {} rounds of {} s after {} s of warm-up, in turn; the client has {} thread(s)",
        args.body_bytes, args.rounds, args.seconds, args.warm_up, args.threads
    );
    if let Some(why) = &hindrance {
        println!("fsyncs are not counted: {why}");
    }
    println!(
        "- Trellis: {} nodes, defaults: a majority has synced; {}",
        args.nodes,
        version_of(&args.trellis, "--version").unwrap_or_else(|| "of unknown version".to_owned())
    );

    let mut sound = true;
    let mut all: Vec<Measured> = Vec::new();
    let mut first = true;
    for peer in peers {
        if peer.program().is_none() {
            println!("- {}: left out, it is not installed here", peer.title());
            continue;
        }
        println!(
            "- {}: {}; {}",
            peer.title(),
            peer.version(),
            peer.settings()
        );
        let once = if first { tasks_once.as_slice() } else { &[] };
        first = false;
        let suited: Vec<Task> = tasks
            .iter()
            .chain(once)
            .copied()
            .filter(|task| task.suits(peer))
            .collect();
        let at_once = if peer.starts_slowly() {
            suited.len()
        } else {
            1
        };
        for group in suited.chunks(at_once.max(1)) {
            let before = all.len();
            if let Err(error) = bench.measure(peer, group, &mut all) {
                sound = false;
                let tasks: Vec<String> = group.iter().map(Task::to_string).collect();
                println!("  {}: NOT MEASURED whole: {error:#}", tasks.join(" "));
            }
            for measured in all.iter().skip(before) {
                sound &= measured.sound();
                say(measured);
            }
        }
    }

    print_table(&tasks, &tasks_once, &all);
    for line in bars::verdicts(&all) {
        println!("{line}");
    }
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&all)?)
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(sound)
}

/// A line at once, so that who waits sees it going.
fn say(measured: &Measured) {
    let ratio = measured
        .ratio()
        .map_or_else(|| "no ratio".to_owned(), |it| format!("{it:.2}"));
    println!(
        "  {}: Trellis is {ratio} × {}; idle beside the other they took {:.2} and {:.2} cores",
        measured.task,
        measured.peer.title(),
        measured.idle_trellis_cores,
        measured.idle_peer_cores
    );
}

fn print_table(tasks: &[Task], tasks_once: &[Task], all: &[Measured]) {
    let rows = tasks.iter().chain(tasks_once).flat_map(|task| {
        let of_task = all.iter().filter(move |it| it.task == *task);
        of_task.flat_map(|it| {
            let ratio =
                it.ratio()
                    .map_or_else(String::new, |ratio| match bars::rate(it.task, it.peer) {
                        Some(bar) => format!("{ratio:.2} × (bar {bar:.1})"),
                        None => format!("{ratio:.2} ×"),
                    });
            [
                row(
                    it,
                    it.peer.title(),
                    &it.of_peer,
                    it.syncs_of_peer,
                    String::new(),
                ),
                row(it, "trellis", &it.of_trellis, it.syncs_of_trellis, ratio),
            ]
        })
    });
    println!("\n{}", table::grid(HEAD, rows));
}

struct Bench<'a> {
    args: &'a PeersArgs,
    shape: Shape,
    dir: &'a Path,
    count_syncs: bool,
    /// By load.
    syncs_of_trellis: BTreeMap<String, f64>,
    launches: usize,
}

impl Bench<'_> {
    /// An empty folder for a server, and where it says what it says. With `trace`, its calls are written down.
    fn launch(&mut self, name: &str, trace: bool) -> anyhow::Result<Launch> {
        self.launches += 1;
        let dir = self.dir.join(format!("{}-{name}", self.launches));
        std::fs::create_dir_all(&dir)?;
        // What it says outlasts the run, for whoever looks why one did not start.
        let log = self.args.data_dir.join(format!("{name}.out"));
        let trace = trace.then(|| dir.join("trace"));
        Ok(Launch { dir, log, trace })
    }

    /// Measures a peer, started once, under some loads, each with a new Trellis.
    fn measure(
        &mut self,
        peer: Peer,
        tasks: &[Task],
        all: &mut Vec<Measured>,
    ) -> anyhow::Result<()> {
        let first = all.len();
        let for_peer = self.launch("peer", false)?;
        {
            let other = peer.start(&for_peer)?;
            for task in tasks {
                let for_trellis = self.launch("trellis", false)?;
                {
                    let trellis = self.trellis(&for_trellis)?;
                    all.push(self.in_turn(peer, *task, &other, &trellis)?);
                }
                std::fs::remove_dir_all(&for_trellis.dir)?;
            }
        }
        std::fs::remove_dir_all(&for_peer.dir)?;
        if !self.count_syncs {
            return Ok(());
        }

        let traced = self.launch("traced", true)?;
        {
            let other = peer.start(&traced)?;
            for measured in all.iter_mut().skip(first) {
                let load = measured.task.load(Some(peer), &self.shape);
                measured.syncs_of_peer = Some(syncs(&other, load, &traced)?);
            }
        }
        std::fs::remove_dir_all(&traced.dir)?;
        for measured in all.iter_mut().skip(first) {
            measured.syncs_of_trellis = Some(self.syncs_of_trellis(measured.task)?);
        }
        Ok(())
    }

    fn trellis(&self, launch: &Launch) -> anyhow::Result<Server> {
        Server::trellis(&self.args.trellis, self.args.nodes, launch)
    }

    fn in_turn(
        &self,
        peer: Peer,
        task: Task,
        other: &Server,
        trellis: &Server,
    ) -> anyhow::Result<Measured> {
        let disk = disk::probe(&self.args.data_dir)?;
        let plan = |server: &Server, peer: Option<Peer>| {
            let load = task.load(peer, &self.shape);
            Plan::new(&server.targets, &load, &server.pids())
        };
        let (plan_of_peer, plan_of_trellis) = (plan(other, Some(peer))?, plan(trellis, None)?);
        let (mut of_peer, mut of_trellis) = (Vec::new(), Vec::new());
        let (mut idle_peer, mut idle_trellis) = (Vec::new(), Vec::new());
        for _ in 0..self.args.rounds.max(1) {
            of_peer.push(beside(&plan_of_peer, trellis, &mut idle_trellis)?);
            of_trellis.push(beside(&plan_of_trellis, other, &mut idle_peer)?);
        }
        let mean = |cores: &[f64]| cores.iter().sum::<f64>() / cores.len() as f64;
        Ok(Measured {
            task,
            peer,
            disk,
            of_peer,
            of_trellis,
            idle_peer_cores: mean(&idle_peer),
            idle_trellis_cores: mean(&idle_trellis),
            syncs_of_peer: None,
            syncs_of_trellis: None,
            trellis_nodes: self.args.nodes,
        })
    }

    /// Once per load is enough: whoever is beside it does nothing then.
    fn syncs_of_trellis(&mut self, task: Task) -> anyhow::Result<f64> {
        let name = task.to_string();
        if let Some(known) = self.syncs_of_trellis.get(&name) {
            return Ok(*known);
        }
        let traced = self.launch("traced", true)?;
        let found = syncs(
            &self.trellis(&traced)?,
            task.load(None, &self.shape),
            &traced,
        )?;
        std::fs::remove_dir_all(&traced.dir)?;
        self.syncs_of_trellis.insert(name, found);
        Ok(found)
    }
}

/// Calls that make data durable, per 1,000 operations, of all processes of a server that is traced.
fn syncs(server: &Server, load: Load, launch: &Launch) -> anyhow::Result<f64> {
    let plan = Plan::new(&server.targets, &load, &[])?;
    let figures = drive::run(&plan)?;
    // The driver ends when all is answered; the measured time is what lies at its end.
    let until = syncs::moment();
    anyhow::ensure!(
        report_failures(&figures),
        "an operation failed while fsyncs were counted"
    );
    let trace = launch.trace.as_deref().unwrap_or(Path::new(""));
    let calls = syncs::count(trace, until - load.seconds, until)?;
    Ok(calls as f64 / figures.operations.max(1) as f64 * 1000.0)
}

/// Measures one while `idle` does nothing, and notes what that took.
fn beside(plan: &Plan, idle: &Server, cores: &mut Vec<f64>) -> anyhow::Result<Figures> {
    let used = || {
        idle.pids()
            .into_iter()
            .filter_map(cpu_seconds_of)
            .sum::<f64>()
    };
    let (before, begun) = (used(), std::time::Instant::now());
    let figures = drive::run(plan)?;
    cores.push((used() - before) / begun.elapsed().as_secs_f64());
    report_failures(&figures);
    Ok(figures)
}
