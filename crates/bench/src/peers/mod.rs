//! Every durable queue that is installed here beside a Trellis cluster, under the same loads, in one table.
//!
//! One peer at a time runs beside Trellis, both with their data on one disk and nothing left from an earlier load. They
//! are loaded in turn, peer, Trellis, peer, Trellis, so that what else the machine does strikes both alike; who is not
//! loaded stays idle, and how much CPU it takes meanwhile is told.

mod bars;
mod measured;
mod peer;
mod standing;
mod syncs;
mod task;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use clap::{Args, ValueEnum};

use self::measured::{HEAD, Measured, row};
use self::peer::Peer;
use self::standing::Standing;
use self::task::Task;
use crate::comparison::Comparison;
use crate::figures::{Figures, cpu_seconds_of};
use crate::plan::{Load, Plan, report_failures};
use crate::servers::{Launch, Server, Site, version_of};
use crate::{disk, drive, machine, table};

/// Loads beside every peer: those for which a bar is set, and for each peer what stands beside them.
const LOADS: &str = "put:256 cycle:256 put:1:1000";
/// Beside the first peer only: bars of Trellis alone.
const LOADS_ONCE: &str = "put:1 delivery:1";
/// Connections of `--full`, each with puts and with cycles.
const CONNECTIONS_FULL: &str = "1 16 64 256 1024";
/// Beside those, with `--full`.
const LOADS_FULL: &str = "put:1:1000 put:16:64 delivery:1 delivery:16";
/// Bytes of the bodies with which `--full` does it all once more.
const BODY_BYTES_FULL: usize = 8192;
/// Above this share of a core the client's thread may be what limits a figure.
const CLIENT_BUSY: f64 = 0.9;

/// `trellis-bench peers`
#[derive(Debug, Args)]
pub(crate) struct PeersArgs {
    #[command(flatten)]
    comparison: Comparison,
    /// Peers, with spaces or commas between them; all of them if it is empty.
    #[arg(long, default_value = "")]
    peers: String,
    /// Loads, as `put:256`, `cycle:64`, `delivery:1`, with a depth `put:1:1000`, with a body's bytes `put:64:1:8192`; those
    /// with a bar if it is empty.
    #[arg(long, default_value = "")]
    loads: String,
    /// Numbers of connections: puts and cycles at each of them, instead of the loads.
    #[arg(long, default_value = "")]
    connections: String,
    /// Operations in flight per connection, with --connections.
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// All numbers of connections, pipelined puts and deliveries, with bodies of 256 bytes and 8 KiB: some hours.
    #[arg(long)]
    full: bool,
    /// Count no fsyncs.
    #[arg(long)]
    no_syncs: bool,
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
            let larger = tasks.clone().into_iter().map(|task| Task {
                body_bytes: Some(BODY_BYTES_FULL),
                ..task
            });
            tasks.extend(larger);
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

/// Measures every peer under every load and prints the table and the bars. What fails is no result, and the rest goes on.
/// False if anything that is installed has no result.
pub(crate) fn run(args: &PeersArgs) -> anyhow::Result<bool> {
    let begun = Instant::now();
    let comparison = &args.comparison;
    let (tasks, tasks_once) = args.tasks()?;
    let peers = args.peers()?;
    let hindrance = if args.no_syncs {
        Some("not asked for".to_owned())
    } else {
        syncs::hindrance()
    };
    let site = Site::new(&comparison.data_dir)?;

    println!("{}", machine::described(&comparison.data_dir));
    println!(
        "{}-byte bodies; {} rounds of {} s after {} s of warm-up, in turn; the client has {} thread(s)",
        comparison.body_bytes,
        comparison.rounds,
        comparison.seconds,
        comparison.warm_up,
        comparison.threads
    );
    if let Some(why) = &hindrance {
        println!("fsyncs are not counted: {why}");
    }
    println!(
        "- Trellis: {} nodes, defaults: a majority has synced; {}",
        comparison.nodes,
        version_of(&comparison.trellis, "--version")
            .unwrap_or_else(|| "of unknown version".to_owned())
    );

    let mut bench = Bench {
        comparison,
        site: &site,
        count_syncs: hindrance.is_none(),
        syncs_of_trellis: BTreeMap::new(),
        all: Vec::new(),
        missing: Vec::new(),
    };
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
        let all = tasks.iter().chain(once).copied();
        let suited: Vec<Task> = all.filter(|task| task.suits(peer)).collect();
        bench.measure(peer, &suited);
    }

    let (all, missing) = (bench.all, bench.missing);
    print_table(&tasks, &tasks_once, &all);
    // The bars are set for one size.
    if comparison.body_bytes == 256 {
        for line in bars::verdicts(&all) {
            println!("{line}");
        }
    }
    for line in busy_clients(&all).iter().chain(&missing) {
        println!("{line}");
    }
    println!(
        "{} loads measured, {} of them without a failed operation; {} not measured; {:.0} min",
        all.len(),
        all.iter().filter(|it| it.sound()).count(),
        missing.len(),
        begun.elapsed().as_secs_f64() / 60.0
    );
    comparison.write(&all)?;
    Ok(missing.is_empty() && all.iter().all(Measured::sound))
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

/// Where the client may be what was measured.
fn busy_clients(all: &[Measured]) -> Vec<String> {
    let sides = all.iter().flat_map(|it| {
        let of_peer = (it.peer.title(), &it.of_peer);
        [of_peer, ("trellis", &it.of_trellis)].map(|(name, figures)| (it, name, figures))
    });
    sides
        .map(|(it, name, figures)| (it, name, measured::client_share(figures)))
        .filter(|(.., share)| *share >= CLIENT_BUSY)
        .map(|(it, name, share)| {
            format!(
                "client thread busy for {:.0} % of {}, {name} beside {}: it could be faster than this client",
                100.0 * share,
                it.task,
                it.peer.title()
            )
        })
        .collect()
}

struct Bench<'a> {
    comparison: &'a Comparison,
    site: &'a Site,
    count_syncs: bool,
    /// By load.
    syncs_of_trellis: BTreeMap<String, f64>,
    all: Vec<Measured>,
    /// What has no result, and why.
    missing: Vec<String>,
}

impl Bench<'_> {
    /// Measures a peer under some loads, each beside a new Trellis.
    fn measure(&mut self, peer: Peer, tasks: &[Task]) {
        let first = self.all.len();
        let mut standing = Standing::new(peer, self.site, false);
        for task in tasks {
            let sound = match self.timed(&mut standing, *task) {
                Ok(measured) => {
                    say(&measured);
                    let sound = measured.sound();
                    self.all.push(measured);
                    sound
                }
                Err(error) => {
                    self.lacks(format!("{task} of {}: {error:#}", peer.title()));
                    false
                }
            };
            standing.rest(sound);
        }
        drop(standing);
        if !self.count_syncs {
            return;
        }

        let mut standing = Standing::new(peer, self.site, true);
        for index in first..self.all.len() {
            let task = self.all[index].task;
            let load = task.load(Some(peer), self.comparison);
            let of_peer = standing
                .get()
                .and_then(|(server, launch)| syncs(server, load, launch));
            standing.rest(of_peer.is_ok());
            let of_trellis = self.syncs_of_trellis(task);
            for (name, counted) in [(peer.title(), &of_peer), ("trellis", &of_trellis)] {
                if let Err(error) = counted {
                    self.lacks(format!("fsyncs of {name}, {task}: {error:#}"));
                }
            }
            let measured = &mut self.all[index];
            measured.syncs_of_peer = of_peer.ok();
            measured.syncs_of_trellis = of_trellis.ok();
        }
    }

    fn lacks(&mut self, what: String) {
        println!("  NOT MEASURED: {what}");
        self.missing.push(format!("not measured: {what}"));
    }

    fn trellis(&self, launch: &Launch) -> anyhow::Result<Server> {
        Server::trellis(&self.comparison.trellis, self.comparison.nodes, launch)
    }

    /// A peer and Trellis in turn under one load.
    fn timed(&self, standing: &mut Standing<'_>, task: Task) -> anyhow::Result<Measured> {
        let peer = standing.peer();
        let trellis = self.trellis(&self.site.launch("trellis")?)?;
        let (other, _) = standing.get()?;
        let disk = disk::probe(&self.comparison.data_dir)?;
        let plan = |server: &Server, peer: Option<Peer>| {
            let load = task.load(peer, self.comparison);
            Plan::new(&server.targets, &load, &server.pids())
        };
        let (plan_of_peer, plan_of_trellis) = (plan(other, Some(peer))?, plan(&trellis, None)?);
        let mut measured = Measured::new(task, peer, disk, self.comparison.nodes);
        let (mut idle_peer, mut idle_trellis) = (Vec::new(), Vec::new());
        for _ in 0..self.comparison.rounds.max(1) {
            let of_peer = beside(&plan_of_peer, &trellis, &mut idle_trellis)?;
            measured.of_peer.push(of_peer);
            let of_trellis = beside(&plan_of_trellis, other, &mut idle_peer)?;
            measured.of_trellis.push(of_trellis);
            if !measured.sound() {
                break;
            }
        }
        let mean = |cores: &[f64]| cores.iter().sum::<f64>() / cores.len() as f64;
        measured.idle_peer_cores = mean(&idle_peer);
        measured.idle_trellis_cores = mean(&idle_trellis);
        Ok(measured)
    }

    /// Once per load is enough: whoever is beside it does nothing then.
    fn syncs_of_trellis(&mut self, task: Task) -> anyhow::Result<f64> {
        let name = task.to_string();
        if let Some(known) = self.syncs_of_trellis.get(&name) {
            return Ok(*known);
        }
        let launch = self.site.launch("trellis-traced")?.traced();
        let trellis = self.trellis(&launch)?;
        let found = syncs(&trellis, task.load(None, self.comparison), &launch)?;
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
    let (before, begun) = (used(), Instant::now());
    let figures = drive::run(plan)?;
    cores.push((used() - before) / begun.elapsed().as_secs_f64());
    report_failures(&figures);
    Ok(figures)
}
