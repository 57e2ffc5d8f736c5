//! Random faults under load, then a calm in which everything must drain. Every promise that a
//! client was given is checked at the end.
//!
//! The faults are drawn from a seed that is printed first; `TRELLIS_SEED=… sh tests/cargo.sh test -p
//! trellis-node --test storms` draws the same again (scheduling is the machine's own).

#[path = "support/cluster.rs"]
mod cluster;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use cluster::{Client, Cluster, PATIENCE, delete, eventually, put_for};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};
use trellis_node::{Call, Core, DoorState, NodeSettings};
use trellis_types::{NodeId, Seconds};

/// What the clients know.
#[derive(Default)]
struct Ledger {
    /// Bodies of puts that were acknowledged, with the id that they were given.
    promised: Mutex<BTreeMap<String, u64>>,
    /// Bodies of puts that surely did not happen.
    refused: Mutex<BTreeSet<String>>,
    /// Jobs whose end was acknowledged, and how many were before it.
    deleted: Mutex<BTreeMap<u64, usize>>,
    /// Jobs whose end was asked for and never answered.
    perhaps_deleted: Mutex<BTreeSet<u64>>,
    /// Deliveries of jobs to who asked after their end was acknowledged, and of one job under two bodies.
    wrong: Mutex<Vec<String>>,
    bodies: Mutex<BTreeMap<u64, String>>,
    next: AtomicU64,
}

impl Ledger {
    /// Whoever reserved the job asked when `ends` jobs had ended. One that ended meanwhile may still come:
    /// an answer says that the job was given, not that the hold lasts; it may be on its way for longer
    /// than the TTR, when the node lags behind.
    fn delivered(&self, job: u64, body: &str, ends: usize) {
        if let Some(end) = self.deleted.lock().get(&job)
            && *end < ends
        {
            self.wrong.lock().push(format!(
                "job {job} was the end number {end} and came to one who asked after {ends} ends"
            ));
        }
        let mut bodies = self.bodies.lock();
        let known = bodies.entry(job).or_insert_with(|| body.to_owned());
        if known != body {
            self.wrong
                .lock()
                .push(format!("job {job} has two bodies, {known} and {body}"));
        }
        drop(bodies);
        if self.refused.lock().contains(body) {
            self.wrong
                .lock()
                .push(format!("{body} was refused and came all the same"));
        }
    }
}

/// Where the clients of a node find it: its process' number, and its core while it lives.
#[derive(Clone)]
struct Address(Arc<Mutex<(u64, Option<Core>)>>);

impl Address {
    fn of(core: Core) -> Self {
        Self(Arc::new(Mutex::new((0, Some(core)))))
    }

    fn set(&self, core: Option<Core>) {
        let mut address = self.0.lock();
        *address = (address.0 + 1, core);
    }

    /// A client, and the number of the process that serves it.
    fn connect(&self) -> Option<(Client, u64)> {
        let address = self.0.lock();
        Some((Client::of(address.1.as_ref()?)?, address.0))
    }

    fn is_gone(&self, process: u64) -> bool {
        self.0.lock().0 != process
    }
}

/// Puts until it is told to stop; a new client whenever the last one is over.
async fn producer(node: Address, ledger: Arc<Ledger>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let Some((client, process)) = node.connect() else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        while !stop.load(Ordering::Relaxed) {
            let bodies: Vec<String> = (0..5)
                .map(|_| format!("b{}", ledger.next.fetch_add(1, Ordering::Relaxed)))
                .collect();
            client.say(bodies.iter().map(|body| put_for(body.clone(), 0, 2)));
            let mut over = false;
            for body in bodies {
                let Some(word) = client.next_word(|| node.is_gone(process)).await else {
                    over = true;
                    break;
                };
                if let Some(id) = word.strip_prefix("inserted ") {
                    let id = id.parse().expect("an id");
                    ledger.promised.lock().insert(body, id);
                } else if word == "Draining" {
                    ledger.refused.lock().insert(body);
                } else if word.starts_with("closed") {
                    over = true;
                    break;
                } else {
                    assert_eq!(word, "InternalError", "the answer to a put");
                }
            }
            if over {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Reserves and deletes until it is told to stop.
async fn worker(node: Address, ledger: Arc<Ledger>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let Some((client, process)) = node.connect() else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        while !stop.load(Ordering::Relaxed) {
            let ends = ledger.deleted.lock().len();
            client.say([Call::Reserve {
                timeout: Some(Seconds(1)),
            }]);
            let Some(word) = client.next_word(|| node.is_gone(process)).await else {
                break;
            };
            if word.starts_with("closed") {
                break;
            }
            let Some(reserved) = word.strip_prefix("reserved ") else {
                continue;
            };
            let (job, body) = reserved.split_once(' ').expect("a body");
            let job: u64 = job.parse().expect("an id");
            ledger.delivered(job, body, ends);
            ledger.perhaps_deleted.lock().insert(job);
            client.say([delete(job)]);
            match client.next_word(|| node.is_gone(process)).await.as_deref() {
                Some("Deleted") => {
                    let mut deleted = ledger.deleted.lock();
                    let ends = deleted.len();
                    if deleted.insert(job, ends).is_some() {
                        ledger.wrong.lock().push(format!("job {job} ended twice"));
                    }
                }
                Some(word) if word.starts_with("closed") => break,
                None => break,
                Some(_) => {}
            }
        }
    }
}

struct Storm {
    cluster: Cluster,
    /// The cores that clients of each node find; `None` while its process is gone.
    cores: BTreeMap<u64, Address>,
}

impl Storm {
    async fn gust(&mut self, chance: &mut StdRng) {
        let node = chance.random_range(1..=3);
        let pause = Duration::from_millis(chance.random_range(100..2_500));
        match chance.random_range(0..6) {
            0 => {
                eprintln!("isolates {node} for {pause:?}");
                self.cluster.isolate(node);
                tokio::time::sleep(pause).await;
            }
            1 => {
                eprintln!("kills {node} for {pause:?}");
                self.cores[&node].set(None);
                let dead = self.cluster.kill(node).await;
                tokio::time::sleep(pause).await;
                self.cluster.revive(node, dead).await;
                self.cores[&node].set(Some(self.cluster.node(node).core.clone()));
            }
            2 => {
                eprintln!("freezes all for {pause:?}");
                self.cluster.freeze();
                tokio::time::sleep(pause).await;
            }
            3 => {
                let other = node % 3 + 1;
                eprintln!("cuts {node} -> {other} for {pause:?}");
                self.cluster.cut(node, other);
                tokio::time::sleep(pause).await;
            }
            4 => {
                let leader = self.cluster.leader().await;
                eprintln!("transfers {leader} -> {node}");
                let consensus = &self.cluster.node(leader).consensus;
                // It may be refused: the node may lag, or lead already.
                let _ = consensus.transfer_leader(NodeId(node)).await;
            }
            _ => {
                eprintln!("is still for {pause:?}");
                tokio::time::sleep(pause).await;
            }
        }
        self.cluster.mend();
        tokio::time::sleep(Duration::from_millis(chance.random_range(0..800))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_or_comes_back_whatever_happens() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("TRELLIS_SEED").unwrap_or_else(|| rand::rng().random());
    let gusts = number("TRELLIS_GUSTS").unwrap_or(8);
    eprintln!("TRELLIS_SEED={seed} TRELLIS_GUSTS={gusts}");
    let mut chance = StdRng::seed_from_u64(seed);

    let settings = NodeSettings {
        node_lease: Duration::from_secs(3),
        commit_timeout: Duration::from_millis(1_500),
        ..NodeSettings::default()
    };
    let cluster = Cluster::with(3, settings).await;
    let cores: BTreeMap<u64, _> = cluster
        .nodes
        .iter()
        .map(|(id, node)| (*id, Address::of(node.core.clone())))
        .collect();
    let ledger = Arc::new(Ledger::default());
    let stop_putting = Arc::new(AtomicBool::new(false));
    let stop = Arc::new(AtomicBool::new(false));
    let mut producers = Vec::new();
    let mut workers = Vec::new();
    for node in cores.values() {
        for _ in 0..2 {
            let (node, ledger) = (node.clone(), ledger.clone());
            producers.push(tokio::spawn(producer(node, ledger, stop_putting.clone())));
        }
        for _ in 0..2 {
            let (node, ledger) = (node.clone(), ledger.clone());
            workers.push(tokio::spawn(worker(node, ledger, stop.clone())));
        }
    }
    let mut storm = Storm { cluster, cores };
    for _ in 0..gusts {
        storm.gust(&mut chance).await;
    }

    // The calm: everything opens again, producers come to their end, workers drain the tube.
    for id in 1..=3 {
        storm.cluster.opens(id).await;
    }
    stop_putting.store(true, Ordering::Relaxed);
    for producer in producers {
        tokio::time::timeout(PATIENCE, producer)
            .await
            .expect("an end")
            .expect("no panic");
    }
    // One node alone may lag behind what another one has acknowledged.
    eventually("drained tube", || {
        let views = [1, 2, 3].map(|id| storm.cluster.look(id, trellis_queue::Machine::server));
        let is_empty = views
            .iter()
            .all(|view| view.ready + view.reserved + view.delayed + view.buried == 0);
        match is_empty {
            true => Ok(()),
            false => Err(format!("{views:?}")),
        }
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        tokio::time::timeout(PATIENCE, worker)
            .await
            .expect("an end")
            .expect("no panic");
    }
    storm.cluster.agree().await;

    let promised = ledger.promised.lock().clone();
    let bodies = ledger.bodies.lock().clone();
    let perhaps = ledger.perhaps_deleted.lock().clone();
    eprintln!(
        "{} puts acknowledged, {} refused, {} delivered, {} ended",
        promised.len(),
        ledger.refused.lock().len(),
        bodies.len(),
        ledger.deleted.lock().len()
    );
    assert!(promised.len() > 100, "the storm let nothing through");
    assert_eq!(*ledger.wrong.lock(), [""; 0]);
    for (body, job) in &promised {
        match bodies.get(job) {
            Some(delivered) => assert_eq!(delivered, body, "job {job}"),
            None => panic!("{body}, acknowledged as job {job}, was lost"),
        }
        assert!(
            perhaps.contains(job),
            "job {job} is gone and nobody ended it"
        );
    }
    // No put took effect twice: every body has one job.
    let distinct: BTreeSet<&String> = bodies.values().collect();
    assert_eq!(distinct.len(), bodies.len(), "a put took effect twice");
    for id in 1..=3 {
        let view = storm.cluster.look(id, trellis_queue::Machine::server);
        assert_eq!(view.total_jobs, bodies.len() as u64, "jobs that nobody got");
        let doors = storm.cluster.node(id).core.doors();
        assert!(matches!(*doors.borrow(), DoorState::Open { .. }));
    }
    storm.cluster.end().await;
}
