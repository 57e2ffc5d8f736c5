//! Random faults, one node at a time, while jobs are put: whatever happens, what was acknowledged
//! is there exactly once, and all nodes agree.

mod support;

use std::time::{Duration, SystemTime};

use support::{Cluster, origin, puts};
use tokio::time::{Instant, sleep, timeout};
use trellis_consensus::Payload;
use trellis_queue::{LeaderCommand, Machine};
use trellis_rpc::queue::encode_leader;
use trellis_types::{NodeId, Timestamp};

const ROUNDS: u64 = 25;
const NODES: u64 = 3;

/// A small generator, so that a seed is all there is to a run's choices.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

/// Proposes until it is surely applied; a doubt is proposed again, to whoever leads then.
async fn acknowledged(cluster: &Cluster, payload: Payload) -> u64 {
    let end = Instant::now() + 2 * support::PATIENCE;
    loop {
        assert!(
            Instant::now() < end,
            "nobody takes it; roles: {:?}",
            cluster.roles()
        );
        let leading = cluster
            .roles()
            .into_iter()
            .filter_map(|(id, role)| Some((role.leads()?, id)));
        if let Some((term, leader)) = leading.max() {
            let consensus = &cluster.node(leader).consensus;
            if let Ok(receipt) = consensus.propose(term, payload.clone()).await
                && let Ok(Ok(index)) = timeout(Duration::from_millis(300), receipt).await
            {
                return index;
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_jobs_survive_random_faults_exactly_once() {
    let seed = match std::env::var("TRELLIS_SEED") {
        Ok(seed) => seed.parse().expect("TRELLIS_SEED is a number"),
        Err(_) => SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(1, |now| now.as_nanos() as u64),
    };
    println!(
        "replay the choices: TRELLIS_SEED={seed} sh tests/cargo.sh test -p trellis-consensus --test nemesis"
    );
    let mut dice = Dice(seed);
    let mut cluster = Cluster::of(NODES).await;
    let open = encode_leader(&LeaderCommand::OpenOrigin(origin()));
    let open = Payload {
        at: Timestamp(1),
        leader: vec![open],
        batches: vec![],
    };
    acknowledged(&cluster, open).await;

    let mut index = 0;
    for round in 1..=ROUNDS {
        let victim = 1 + dice.roll(NODES);
        let fault = dice.roll(8);
        println!("round {round}: fault {fault} at node {victim}");
        match fault {
            0 => cluster.network.isolate(NodeId(victim)),
            1 => {
                let other = 1 + (victim % NODES);
                cluster.network.cut(NodeId(victim), NodeId(other));
            }
            2 => cluster.crash(victim).await,
            3 => {
                cluster.node(victim).state.hold_windows(true);
                cluster
                    .node(victim)
                    .log
                    .delay_syncs(Duration::from_millis(1 + dice.roll(20)));
            }
            4 => cluster.node(victim).log.hold_syncs(true),
            5 => {
                // Refused unless somebody leads at this moment; that is fine.
                for node in cluster.nodes.values() {
                    let _ = node.consensus.transfer_leader(NodeId(victim)).await;
                }
            }
            6 => {
                let _ = cluster
                    .node(victim)
                    .consensus
                    .stand_with_transfer_flag()
                    .await;
            }
            _ => {
                let consensus = &cluster.node(victim).consensus;
                consensus.snapshot().await;
                consensus.purge(consensus.committed()).await;
            }
        }
        // Every round one batch, with a fault under way.
        index = acknowledged(&cluster, puts(round, 3, b"body")).await;
        cluster.network.mend();
        for node in cluster.nodes.values() {
            node.log.hold_syncs(false);
            node.log.delay_syncs(Duration::ZERO);
            node.state.hold_windows(false);
        }
        if dice.roll(3) == 0 {
            cluster.agree(index).await;
        }
    }
    cluster.agree(index).await;
    for node in cluster.nodes.values() {
        let (jobs, check) = node
            .consensus
            .with_machine(|machine| (machine.server().total_jobs, machine.check()));
        assert_eq!(jobs, ROUNDS * 3, "every batch exactly once");
        check.expect("a sound machine");
    }
    // And the same after the lights went out everywhere.
    for id in 1..=NODES {
        cluster.crash(id).await;
    }
    index = acknowledged(&cluster, puts(ROUNDS + 1, 1, b"after")).await;
    cluster.agree(index).await;
    let jobs = cluster
        .node(1)
        .consensus
        .with_machine(|machine: &Machine| machine.server().ready);
    assert_eq!(jobs, ROUNDS * 3 + 1);
    cluster.shutdown().await;
}
