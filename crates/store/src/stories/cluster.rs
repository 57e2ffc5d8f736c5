//! Three nodes of one process, each with a data folder of its own.

use std::collections::{BTreeMap, BTreeSet};

use trellis_consensus::memory::LocalNetwork;
use trellis_consensus::{Consensus, ConsensusSettings, Member, ProposeError, StateStore};
use trellis_queue::{Batch, Item, LeaderCommand, Machine};
use trellis_rpc::queue::{encode_batch, encode_leader};
use trellis_types::ConnectionId;

use super::replica::{ORIGIN, put};
use super::*;

struct Node {
    folder: Folder,
    opened: Opened,
    disk: Disk,
    consensus: Consensus,
}

#[derive(Default)]
struct Cluster {
    network: LocalNetwork,
    nodes: BTreeMap<u64, Node>,
    puts: u64,
}

const PATIENCE: Duration = Duration::from_secs(60);

async fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) if began.elapsed() > PATIENCE => panic!("no {what}; last seen: {seen}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

impl Cluster {
    async fn of_three() -> Self {
        Self::of_three_with(|_| {}).await
    }

    async fn of_three_with(change: impl Fn(&mut StoreOptions)) -> Self {
        let mut cluster = Self::default();
        for id in 1..=3 {
            let folder = Folder::with(|options| {
                options.state.window = Duration::from_millis(20);
                change(options);
            });
            cluster.start(id, folder).await;
        }
        let members = (1..=3).map(|id| Member {
            id: NodeId(id),
            name: format!("trellis-{id}"),
            address: format!("node-{id}:11301"),
        });
        let first = &cluster.nodes[&1].consensus;
        first.initialize(members.collect()).await.unwrap();
        let open = encode_leader(&LeaderCommand::OpenOrigin(ORIGIN));
        cluster
            .propose(Payload {
                at: Timestamp(1),
                leader: vec![open],
                batches: Vec::new(),
            })
            .await;
        cluster
    }

    async fn start(&mut self, id: u64, folder: Folder) {
        let (opened, disk) = folder.open_faulty();
        let consensus = Consensus::build(
            ConsensusSettings::default(),
            NodeId(id),
            opened.log.clone(),
            opened.state.clone(),
            self.network.transport(NodeId(id)),
            Box::new(()),
        )
        .await
        .unwrap();
        consensus.run();
        self.network.attach(NodeId(id), consensus.front());
        let node = Node {
            folder,
            opened,
            disk,
            consensus,
        };
        self.nodes.insert(id, node);
    }

    async fn stop(&mut self, id: u64) -> Folder {
        self.network.detach(NodeId(id));
        let node = self.nodes.remove(&id).unwrap();
        node.consensus.shutdown().await;
        node.folder
    }

    async fn leader(&self) -> u64 {
        eventually("leader", || {
            let led = self.nodes.iter().filter_map(|(id, node)| {
                node.consensus.quorum_ack_age()?;
                Some((node.consensus.role().borrow().leads()?, *id))
            });
            led.max()
                .map(|(_, id)| id)
                .ok_or_else(|| "nobody leads".into())
        })
        .await
    }

    async fn propose(&self, payload: Payload) {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE, "nobody takes it");
            let leader = &self.nodes[&self.leader().await].consensus;
            let Some(term) = leader.role().borrow().leads() else {
                continue;
            };
            let taken = leader.propose(term, payload.clone()).await.unwrap();
            match taken.await {
                Ok(_) => return,
                Err(ProposeError::NotLeader { .. } | ProposeError::Unknown) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    async fn put(&mut self, count: u64) {
        for _ in 0..count {
            self.puts += 1;
            let batch = Batch {
                origin: ORIGIN,
                seq: self.puts,
                items: vec![Item {
                    connection: ConnectionId(1),
                    command: put(format!("letter {}", self.puts)),
                }],
            };
            self.propose(Payload {
                at: Timestamp(self.puts),
                batches: vec![encode_batch(&batch)],
                leader: Vec::new(),
            })
            .await;
        }
    }

    async fn agree(&self) {
        eventually("agreement", || {
            let seen: Vec<_> = self
                .nodes
                .values()
                .map(|node| {
                    let jobs = node
                        .consensus
                        .with_machine(|machine| machine.server().ready);
                    (jobs, node.consensus.with_machine(Machine::digest))
                })
                .collect();
            let digests: BTreeSet<_> = seen.iter().map(|(_, digest)| *digest).collect();
            let all = seen.iter().all(|(jobs, _)| *jobs == self.puts);
            if all && digests.len() == 1 {
                return Ok(());
            }
            Err(format!("of {} jobs (jobs, digest): {seen:?}", self.puts))
        })
        .await;
    }

    fn check_failures(&self) {
        for node in self.nodes.values() {
            assert_eq!(node.folder.failures(), [""; 0]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_power_of_all_goes_nothing_acknowledged_is_lost() {
    let mut cluster = Cluster::of_three().await;
    for round in 0..2 {
        cluster.put(20).await;
        cluster.check_failures();
        let images: Vec<_> = cluster
            .nodes
            .iter()
            .map(|(id, node)| (*id, node.folder.crash_image()))
            .collect();
        for id in 1..=3 {
            cluster.stop(id).await;
        }
        for (id, image) in images {
            cluster.start(id, image).await;
        }
        cluster.put(1).await;
        cluster.agree().await;
        assert_eq!(cluster.puts, 21 * (round + 1));
    }
    for id in 1..=3 {
        cluster.stop(id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_too_long_gets_a_snapshot_and_keeps_it() {
    let mut cluster = Cluster::of_three().await;
    cluster.put(5).await;
    cluster.agree().await;
    let away = eventually("a follower", || {
        let follower = |node: &Node| node.consensus.role().borrow().leads().is_none();
        let mut nodes = cluster.nodes.iter();
        nodes
            .find(|(_, node)| follower(node))
            .map(|(id, _)| *id)
            .ok_or_else(String::new)
    })
    .await;
    let image = cluster.nodes[&away].folder.crash_image();
    cluster.stop(away).await;
    cluster.put(30).await;
    cluster.agree().await;
    for node in cluster.nodes.values() {
        node.consensus.snapshot().await;
        let snapshot = eventually("snapshot", || {
            let current = node.opened.state.current_snapshot().unwrap();
            current
                .map(|snapshot| snapshot.position())
                .ok_or_else(|| "none".into())
        })
        .await;
        eventually("purge", || {
            futures::FutureExt::now_or_never(node.consensus.purge(snapshot.index));
            let purged = node.opened.log.purged_index();
            (purged == Some(snapshot.index))
                .then_some(())
                .ok_or(format!("{purged:?}"))
        })
        .await;
    }
    cluster.start(away, image).await;
    cluster.agree().await;
    let back = &cluster.nodes[&away];
    assert!(back.opened.state.current_snapshot().unwrap().is_some());
    cluster.put(5).await;
    cluster.agree().await;

    let image = cluster.nodes[&away].folder.crash_image();
    cluster.stop(away).await;
    cluster.start(away, image).await;
    cluster.put(1).await;
    cluster.agree().await;
    cluster.check_failures();
    for id in 1..=3 {
        cluster.stop(id).await;
    }
}

/// Faults D39: entries that memory has no more can't be read back for a follower that lags. It gets
/// them from another node, and never the ones behind them without them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_cannot_read_its_log_stops_and_another_feeds_the_laggard() {
    // Of the process the story needs more than of its one failed node.
    trellis_consensus::on_fail_stop(|_| {});
    let mut cluster = Cluster::of_three_with(|options| options.log.tail_bytes = 1_000).await;
    cluster.put(5).await;
    cluster.agree().await;
    let leader = cluster.leader().await;
    let laggard = (1..=3).find(|id| *id != leader).unwrap();
    let image = cluster.nodes[&laggard].folder.crash_image();
    cluster.stop(laggard).await;
    cluster.put(60).await;
    cluster.agree().await;

    assert_eq!(cluster.leader().await, leader, "nobody else had a reason");
    let unreadable = &cluster.nodes[&leader].disk.unreadable;
    unreadable.store(true, Ordering::SeqCst);
    cluster.start(laggard, image).await;
    eventually("stop of the leader", || {
        let failures = cluster.nodes[&leader].folder.failures();
        match &failures[..] {
            [one] if one.contains("can't be read") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    cluster.stop(leader).await;
    cluster.put(5).await;
    cluster.agree().await;
    cluster.check_failures();
    for id in (1..=3).filter(|id| *id != leader) {
        cluster.stop(id).await;
    }
}
