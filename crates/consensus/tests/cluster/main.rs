//! Stories of clusters in memory.

mod members;
mod offices;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use bytes::Bytes;
use support::{Cluster, PATIENCE, eventually, puts};
use tokio::time::timeout;
use trellis_consensus::{Payload, ProposeError, Role, StateStore};
use trellis_queue::{Event, Fate, LeaderCommand};
use trellis_rpc::queue::encode_leader;
use trellis_types::NodeId;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_elect_apply_in_order_and_agree() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    let index = cluster.put(50).await;
    cluster.agree(index).await;

    for node in cluster.nodes.values() {
        assert_eq!(
            node.consensus
                .with_machine(|machine| machine.server().ready),
            50
        );
        let heard = node.ear.0.lock();
        let positions: Vec<_> = heard
            .applied
            .iter()
            .map(|(position, _)| *position)
            .collect();
        assert!(
            positions.is_sorted_by(|a, b| a.index < b.index),
            "{positions:?}"
        );
        assert!(heard.rounds > 0);
        let carried_out = heard
            .applied
            .iter()
            .flat_map(|(_, outcome)| &outcome.events);
        let seqs: Vec<_> = carried_out
            .filter_map(|event| match event {
                Event::Batch {
                    seq,
                    fate: Fate::Applied(_),
                    ..
                } => Some(*seq),
                _ => None,
            })
            .collect();
        assert_eq!(seqs, (1..=50).collect::<Vec<_>>());
        assert!(
            heard
                .applied
                .iter()
                .all(|(_, outcome)| outcome.changes.is_empty())
        );
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_on_condition_of_a_former_term_is_refused() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    let old = cluster.leader().await;
    let term = cluster.roles()[&old].leads().expect("it leads");

    let consensus = cluster.node(old).consensus.clone();
    let refused = consensus
        .propose(term - 1, puts(1, 1, b""))
        .await
        .expect("raft runs")
        .await;
    assert!(
        matches!(refused, Err(ProposeError::NotLeader { .. })),
        "{refused:?}"
    );

    // The network hides the leader; another leads; the old one comes back and hears of it.
    cluster.network.isolate(NodeId(old));
    cluster.leader_other_than(&[old]).await;
    cluster.network.mend();
    eventually("step-down", || match cluster.roles()[&old] {
        Role::Leader { term: still } if still == term => Err("it still leads".into()),
        _ => Ok(()),
    })
    .await;
    let refused = consensus
        .propose(term, puts(1, 1, b""))
        .await
        .expect("raft runs")
        .await;
    assert!(
        matches!(refused, Err(ProposeError::NotLeader { .. })),
        "{refused:?}"
    );
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_appended_when_raft_stops_has_an_unknown_fate() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    let leader = cluster.leader().await;
    for node in cluster.nodes.values() {
        node.log.hold_syncs(true);
    }
    let term = cluster.roles()[&leader].leads().expect("it leads");
    let consensus = cluster.node(leader).consensus.clone();
    let receipt = consensus
        .propose(term, puts(1, 1, b""))
        .await
        .expect("raft runs");
    consensus.shutdown().await;
    let fate = timeout(PATIENCE, receipt).await.expect("an answer");
    assert_eq!(fate, Err(ProposeError::Unknown));
    assert!(matches!(
        consensus.propose(term, puts(1, 1, b"")).await,
        Err(ProposeError::Stopped)
    ));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_of_all_loses_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::of(3).await;
    for node in cluster.nodes.values() {
        // The mirrors stay far behind, and disks take their time.
        node.state.hold_windows(true);
        node.log.delay_syncs(Duration::from_millis(2));
    }
    let behind: Vec<_> = cluster
        .nodes
        .values()
        .map(|node| node.state.written())
        .collect();
    cluster.open_origin().await;
    cluster.put(20).await;
    for (id, behind) in (1..=3).zip(behind) {
        assert_eq!(cluster.node(id).state.written(), behind);
        cluster.crash(id).await;
    }
    let index = cluster.put(1).await;
    cluster.agree(index).await;
    let ready = cluster
        .node(1)
        .consensus
        .with_machine(|machine| machine.server().ready);
    assert_eq!(ready, 21);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mirror_never_holds_what_the_log_has_not() {
    let mut cluster = Cluster::of(1).await;
    cluster.open_origin().await;
    let index = cluster.put(3).await;
    let node = cluster.node(1);
    eventually("written mirror", || match node.state.written() {
        Some(written) if written.index >= index => Ok(()),
        written => Err(format!("{written:?}")),
    })
    .await;
    let flushed = node.consensus.flushed().expect("entries are durable");
    assert!(node.state.written().expect("written").index <= flushed.index);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_it_runs_a_node_takes_no_part_but_knows_what_it_holds() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    let index = cluster.put(3).await;
    cluster.agree(index).await;
    let membership = cluster.node(3).consensus.membership();
    let (log, state) = (cluster.node(3).log.crash(), cluster.node(3).state.crash());
    cluster.stop(3).await;

    let node = support::build(3, log, state, cluster.network.transport(NodeId(3))).await;
    assert_eq!(*node.consensus.role().borrow(), Role::Stopped);
    assert_eq!(node.consensus.membership(), membership);
    assert!(node.consensus.metrics().term >= 1);
    assert_eq!(node.consensus.flushed().map(|last| last.index), Some(index));
    let refused = node
        .consensus
        .front()
        .vote(Default::default())
        .await
        .expect_err("refused");
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert!(
        node.consensus
            .front()
            .append(futures::stream::empty())
            .is_err()
    );
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_leader_should_have_let_pass_is_refused_by_all_equally() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    let rubbish = Bytes::from_static(b"no batch at all");
    let mut payload = puts(1, 1, b"x");
    payload.batches.insert(0, rubbish.clone());
    payload.leader.push(rubbish.clone());
    let index = cluster.propose(payload).await;
    cluster.agree(index).await;
    let alone = Payload {
        batches: vec![rubbish],
        ..Payload::default()
    };
    let index = cluster.propose(alone).await;
    cluster.agree(index).await;
    for node in cluster.nodes.values() {
        assert_eq!(
            node.consensus
                .with_machine(|machine| machine.server().ready),
            1
        );
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_leader_are_carried_out_before_the_batches_beside_them() {
    let mut cluster = Cluster::of(1).await;
    let mut payload = puts(1, 1, b"x");
    payload
        .leader
        .push(encode_leader(&LeaderCommand::OpenOrigin(support::origin())));
    cluster.propose(payload).await;
    let ready = cluster
        .node(1)
        .consensus
        .with_machine(|machine| machine.server().ready);
    assert_eq!(ready, 1, "the origin was opened first");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apply_waits_for_the_mirror_and_goes_on_when_it_has_room() {
    let mut cluster = Cluster::of(1).await;
    cluster.open_origin().await;
    let before = cluster.put(1).await;
    let node = cluster.node(1);
    let term = cluster.roles()[&1].leads().expect("the only one");
    node.state.bound_windows(4);
    node.state.hold_windows(true);
    let mut receipts = Vec::new();
    for seq in 2..=20 {
        receipts.push(
            node.consensus
                .propose(term, puts(seq, 1, b""))
                .await
                .expect("raft runs"),
        );
    }
    eventually("full windows", || match node.state.has_room() {
        false => Ok(()),
        true => Err(format!("{} applied", node.applied())),
    })
    .await;
    assert!(node.applied() <= before + 4);
    node.state.hold_windows(false);
    for receipt in receipts {
        timeout(PATIENCE, receipt)
            .await
            .expect("in time")
            .expect("applied");
    }
    cluster.shutdown().await;
}
