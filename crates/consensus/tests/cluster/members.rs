//! Who is let in, replaced and removed.

use std::collections::BTreeSet;

use trellis_consensus::{
    Role, StateStore,
    memory::{MemoryLog, MemoryState},
};
use trellis_types::NodeId;

use super::support::{Cluster, eventually, member};

#[tokio::test(start_paused = true)]
async fn a_learner_far_behind_gets_a_snapshot_and_then_the_log() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    let index = cluster.put(30).await;
    let leader = cluster.leader().await;
    let consensus = cluster.node(leader).consensus.clone();

    consensus.snapshot().await;
    let snapshot = eventually("snapshot", || {
        let metrics = consensus.metrics();
        metrics
            .snapshot
            .filter(|at| at.index >= index)
            .ok_or_else(|| format!("{metrics:?}"))
    })
    .await;
    consensus.purge(snapshot.index).await;
    eventually("purge", || match cluster.node(leader).log.span() {
        Some((first, _)) if first <= snapshot.index => Err(format!("log from {first}")),
        _ => Ok(()),
    })
    .await;

    cluster.start(4, MemoryLog::new(), MemoryState::new()).await;
    consensus
        .add_learner(member(4))
        .await
        .expect("a learner more");
    let index = cluster.put(10).await;
    cluster.agree(index).await;
    let newcomer = cluster.node(4);
    assert!(matches!(cluster.roles()[&4], Role::Learner { .. }));
    assert!(newcomer.ear.0.lock().replaced.contains(&Some(snapshot)));
    assert_eq!(newcomer.consensus.membership(), consensus.membership());

    // It was sent what it needs for its bodies, and survives on its own.
    let job = newcomer.consensus.with_machine(|machine| {
        machine
            .peek_ready(&trellis_types::TubeName::default_tube())
            .expect("jobs are ready")
    });
    let body = newcomer.state.bodies().owe(job, 4);
    assert_eq!(body.ready().as_deref(), Some(&b"body"[..]));
    cluster.crash(4).await;
    let index = cluster.put(1).await;
    cluster.agree(index).await;
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_voter_is_replaced_in_one_change() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    cluster.put(5).await;
    let leader = cluster.leader().await;
    let dead = (1..=3).find(|id| *id != leader).expect("three nodes");
    cluster.stop(dead).await;

    cluster.start(4, MemoryLog::new(), MemoryState::new()).await;
    let consensus = cluster.node(leader).consensus.clone();
    consensus
        .add_learner(member(4))
        .await
        .expect("a learner more");
    eventually("learner that is level", || {
        let metrics = consensus.metrics();
        let level = metrics.peers.iter().any(|peer| {
            peer.node == NodeId(4) && peer.matched.is_some() && peer.matched == metrics.last_log
        });
        if level {
            Ok(())
        } else {
            Err(format!("{metrics:?}"))
        }
    })
    .await;
    consensus
        .replace_voter(Some(NodeId(dead)), NodeId(4))
        .await
        .expect("a change");

    let expected: BTreeSet<_> = [1, 2, 3, 4]
        .into_iter()
        .filter(|id| *id != dead)
        .map(NodeId)
        .collect();
    let membership = consensus.membership();
    assert_eq!(membership.voters, vec![expected.clone()]);
    assert_eq!(
        membership.members.keys().copied().collect::<BTreeSet<_>>(),
        expected
    );
    assert_eq!(membership.members[&NodeId(4)], member(4));
    // Nothing is left to finish, and saying so does no harm.
    consensus.finish_joint().await.expect("nothing to finish");
    assert_eq!(consensus.membership().voters, vec![expected]);
    let index = cluster.put(5).await;
    cluster.agree(index).await;
    cluster.shutdown().await;
}

/// Who still counted it could agree on something that the others never hear of (faults E40 and E41).
#[tokio::test(start_paused = true)]
async fn who_was_removed_counts_for_nobody_even_when_all_restart() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    cluster.put(5).await;
    let leader = cluster.leader().await;
    let gone = (1..=3).find(|id| *id != leader).expect("three nodes");
    let consensus = cluster.node(leader).consensus.clone();
    consensus.remove(NodeId(gone)).await.expect("a change");
    cluster.stop(gone).await;
    let index = cluster.put(5).await;
    cluster.agree(index).await;

    let left: Vec<u64> = cluster.nodes.keys().copied().collect();
    // What is in the state is not read from the log again.
    for id in &left {
        let state = &cluster.node(*id).state;
        eventually("written state", || match state.written() {
            Some(written) if written.index >= index => Ok(()),
            written => Err(format!("{written:?} of {index}")),
        })
        .await;
    }
    for id in &left {
        cluster.crash(*id).await;
    }
    let index = cluster.put(1).await;
    cluster.agree(index).await;
    let expected: BTreeSet<_> = left.iter().copied().map(NodeId).collect();
    for id in &left {
        let membership = cluster.node(*id).consensus.membership();
        assert_eq!(membership.voters, vec![expected.clone()], "node {id}");
        assert!(!membership.members.contains_key(&NodeId(gone)));
    }
    cluster.shutdown().await;
}
