//! What a slow follower costs the clients of the others, side by side with calm.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use rustix::process::Signal;
use trellis_checker::history::SECOND;
use trellis_tests::Client;
use trellis_types::{Priority, Seconds, TubeName};
use trellis_wire::beanstalk::{Reply, Request};

use super::{
    Scene, Told,
    account::Fault,
    cluster::{Cluster, NODES},
};

/// Clients on each of the two nodes.
const CLIENTS: usize = 16;

/// Bytes of a job.
const BODY: &[u8] = &[b'x'; 100];

/// The most that a slow follower may cost.
const RATIO_MAX: f64 = 1.5;

/// A put: in which window, and how long it took.
type Took = (u32, Duration);

/// Clients that put, and delete what they put.
struct Load {
    over: Arc<AtomicBool>,
    window: Arc<AtomicU32>,
    clients: Vec<JoinHandle<Result<Vec<Took>>>>,
}

impl Load {
    fn start(addresses: &[SocketAddr]) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let window = Arc::new(AtomicU32::new(0));
        let mut clients = Vec::new();
        for address in addresses {
            for _ in 0..CLIENTS {
                let mut client = Client::at_tube(*address, &TubeName::parse(b"slow")?)?;
                let (over, window) = (over.clone(), window.clone());
                clients.push(thread::spawn(move || {
                    let mut took = Vec::new();
                    while !over.load(Ordering::Relaxed) {
                        let now = window.load(Ordering::Relaxed);
                        let begin = Instant::now();
                        let put = Request::Put {
                            priority: Priority(0),
                            delay: Seconds(0),
                            ttr: Seconds(60),
                            body: Bytes::from_static(BODY),
                        };
                        let job = match client.ask(&put)? {
                            Reply::Inserted(job) => job,
                            other => anyhow::bail!("a put was answered {other:?}"),
                        };
                        took.push((now, begin.elapsed()));
                        client.demand(&Request::Delete(job), &Reply::Deleted)?;
                    }
                    Ok(took)
                }));
            }
        }
        Ok(Self {
            over,
            window,
            clients,
        })
    }

    /// What follows counts for this window.
    fn window(&self, number: u32) {
        self.window.store(number, Ordering::Relaxed);
    }

    fn end(self) -> Result<Vec<Took>> {
        self.over.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for client in self.clients {
            let took = client.join().ok().context("a client panicked")?;
            all.extend(took?);
        }
        Ok(all)
    }
}

fn fault(scene: &Scene, number: u32, what: &str, node: usize) -> Fault {
    Fault {
        fault: number,
        kind: scene.name.to_owned(),
        with: None,
        seen: what.to_owned(),
        nodes: vec![Cluster::name(node)],
        from: 0,
        to: scene.args.seconds * SECOND,
        gap_ms: 0,
    }
}

/// Two quantiles of some windows.
struct Figures {
    puts: usize,
    p50: Duration,
    p99: Duration,
}

fn figures(all: &[Took], windows: &[u32]) -> Figures {
    let of = all.iter().filter(|(window, _)| windows.contains(window));
    let mut took: Vec<Duration> = of.map(|(_, took)| *took).collect();
    took.sort();
    let at = |permille: usize| {
        took.get(took.len() * permille / 1_000)
            .copied()
            .unwrap_or_default()
    };
    Figures {
        puts: took.len(),
        p50: at(500),
        p99: at(990),
    }
}

/// A follower's disk becomes 100 times slower; then a follower is stopped; between them it is calm.
pub(super) fn follower(scene: &Scene) -> Result<Told> {
    let mut plan = scene.plan.clone();
    plan.syncs_beneath = true;
    let mut cluster = Cluster::start(plan)?;
    let leader = cluster.leader(&[0, 1, 2])?;
    let slow = (leader + 1) % NODES;
    let others: Vec<SocketAddr> = (0..NODES)
        .filter(|node| *node != slow)
        .map(|node| cluster.clients(node))
        .collect();
    let time = Duration::from_secs(scene.args.seconds);
    let load = Load::start(&others)?;
    // Until all have warmed up.
    thread::sleep(Duration::from_secs(3));
    let mut struck = 0;
    let rounds = 2;
    for round in 0..rounds {
        load.window(4 * round + 1);
        thread::sleep(time / (2 * rounds));
        load.window(4 * round + 2);
        for operation in ["sync", "write"] {
            let rule = format!("on {operation} slow 100");
            cluster.disk(slow).tell(&rule)?;
        }
        thread::sleep(time / rounds);
        struck += cluster.disk(slow).strikes()?;
        cluster.disk(slow).tell("off all")?;
        // While it catches up nothing is compared.
        load.window(0);
        cluster.wait_until_ready(&[slow])?;
        thread::sleep(Duration::from_secs(2));
        load.window(4 * round + 3);
        thread::sleep(time / (2 * rounds));
        load.window(4 * round + 4);
        cluster.signal(slow, Signal::STOP);
        thread::sleep(time / rounds);
        load.window(0);
        cluster.signal(slow, Signal::CONT);
        cluster.wait_until_ready(&[slow])?;
        thread::sleep(Duration::from_secs(2));
    }
    let still = cluster.leader(&[0, 1, 2])?;
    let all = load.end()?;
    let calm = figures(&all, &[1, 3, 5, 7]);
    let dragged = figures(&all, &[2, 6]);
    let stopped = figures(&all, &[4, 8]);
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    let ratio = |one: &Figures| ms(one.p99) / ms(calm.p99).max(0.001);
    let (slow_ratio, stop_ratio) = (ratio(&dragged), ratio(&stopped));
    println!("puts of {CLIENTS} clients on each of the other two nodes");
    println!("                      puts    p50 ms    p99 ms  p99 to calm");
    for (name, it) in [
        ("calm", &calm),
        ("follower's disk x100", &dragged),
        ("follower stopped", &stopped),
    ] {
        println!(
            "{name:20} {:6} {:9.2} {:9.2} {:12.2}",
            it.puts,
            ms(it.p50),
            ms(it.p99),
            ratio(it)
        );
    }
    let mut told = Told {
        end: None,
        seen: vec![
            fault(scene, 29, "a follower's disk 100 times slower", slow),
            fault(scene, 6, "a follower stopped", slow),
        ],
        figures: serde_json::Map::new(),
        short: Vec::new(),
    };
    for (name, it) in [("calm", &calm), ("slow", &dragged), ("stopped", &stopped)] {
        told = told
            .figure(&format!("{name}_puts"), it.puts)
            .figure(&format!("{name}_p50_ms"), ms(it.p50))
            .figure(&format!("{name}_p99_ms"), ms(it.p99));
    }
    Ok(told
        .figure("slow_to_calm", slow_ratio)
        .figure("stopped_to_calm", stop_ratio)
        .figure("slowed_operations", struck)
        .figure("leader_stayed", still == leader)
        .shows(struck > 0, "nothing was slowed down")
        .shows(
            slow_ratio <= RATIO_MAX,
            format!("a slow follower's p99 is {slow_ratio:.2} times the calm one"),
        )
        .shows(
            stop_ratio <= RATIO_MAX,
            format!("a stopped follower's p99 is {stop_ratio:.2} times the calm one"),
        ))
}
