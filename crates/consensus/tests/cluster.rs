//! Stories of clusters in memory.

mod support;

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use support::{Cluster, PATIENCE, eventually, member, puts};
use tokio::time::timeout;
use trellis_consensus::{
    ChangeError, Payload, ProposeError, ReadError, Role, StateStore,
    memory::{MemoryLog, MemoryState},
};
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
async fn when_the_leader_stops_another_takes_over_and_nothing_is_lost() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    cluster.put(10).await;
    let old = cluster.leader().await;
    cluster.stop(old).await;
    assert_ne!(cluster.leader().await, old);
    let index = cluster.put(10).await;
    cluster.agree(index).await;
    let ready = |cluster: &Cluster, id| {
        cluster
            .node(id)
            .consensus
            .with_machine(|machine| machine.server().ready)
    };
    let leader = cluster.leader().await;
    assert_eq!(ready(&cluster, leader), 20);
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

/// Several huge bodies at once keep every disk busy for longer than an election takes.
#[tokio::test(start_paused = true)]
async fn slow_disks_cost_no_leader_its_office_and_nothing_is_acknowledged_unsynced() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    let leader = cluster.leader().await;
    let term = cluster.roles()[&leader].leads().expect("it leads");
    let consensus = cluster.node(leader).consensus.clone();
    let followers = cluster.nodes.iter().filter(|(id, _)| **id != leader);
    let disks: Vec<_> = followers.map(|(_, node)| node.log.clone()).collect();
    for disk in &disks {
        disk.hold_syncs(true);
    }
    let payload = puts(1, 1, b"huge");
    let mut receipt = Box::pin(consensus.propose(term, payload).await.expect("raft runs"));

    let until = tokio::time::Instant::now() + Duration::from_secs(2);
    while tokio::time::Instant::now() < until {
        let fate = timeout(Duration::from_millis(50), &mut receipt).await;
        assert!(
            fate.is_err(),
            "applied without a majority of disks: {fate:?}"
        );
        assert_eq!(cluster.roles()[&leader], Role::Leader { term });
        let age = consensus.quorum_ack_age().expect("it leads");
        assert!(age < Duration::from_millis(500), "heard {age:?} ago");
    }
    assert!(consensus.read_index().await.is_ok(), "a read needs no disk");

    for disk in &disks {
        disk.hold_syncs(false);
    }
    let index = timeout(PATIENCE, receipt).await.expect("an answer");
    cluster.agree(index.expect("applied")).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_majority_neither_reads_nor_writes() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    let old = cluster.leader().await;
    let consensus = cluster.node(old).consensus.clone();
    assert!(consensus.read_index().await.is_ok());
    let term = cluster.roles()[&old].leads().expect("it leads");

    cluster.network.isolate(NodeId(old));
    eventually("stale acknowledgement", || {
        match consensus.quorum_ack_age() {
            Some(age) if age < Duration::from_secs(1) => Err(format!("{age:?}")),
            _ => Ok(()),
        }
    })
    .await;
    let read = consensus.read_index().await;
    assert_eq!(read, Err(ReadError::NoMajority));
    let write = consensus
        .propose(term, puts(1, 1, b""))
        .await
        .expect("raft runs")
        .await;
    assert!(
        matches!(write, Err(ProposeError::NotLeader { .. })),
        "{write:?}"
    );

    // Followers do not answer reads either; they name the leader.
    let new = cluster.leader_other_than(&[old]).await;
    cluster.network.mend();
    let follower = (1..=3).find(|id| *id != new).expect("three nodes");
    eventually("leader known to a follower", || {
        match cluster.roles()[&follower] {
            Role::Follower {
                leader: Some(_), ..
            } => Ok(()),
            role => Err(format!("{role:?}")),
        }
    })
    .await;
    let read = cluster.node(follower).consensus.read_index().await;
    assert!(
        matches!(read, Err(ReadError::NotLeader { leader: Some(_) })),
        "{read:?}"
    );
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
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
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_handed_over_on_request() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    let index = cluster.put(5).await;
    cluster.agree(index).await;
    let old = cluster.leader().await;
    let heir = (1..=3).find(|id| *id != old).expect("three nodes");
    cluster
        .node(old)
        .consensus
        .transfer_leader(NodeId(heir))
        .await
        .expect("it leads");
    eventually("heir in office", || match cluster.roles()[&heir] {
        Role::Leader { .. } => Ok(()),
        _ => Err(format!("{:?}", cluster.roles())),
    })
    .await;
    let refused = cluster.node(old).consensus.transfer_leader(NodeId(9)).await;
    assert!(
        matches!(
            refused,
            Err(ChangeError::NotLeader { .. } | ChangeError::Refused(_))
        ),
        "{refused:?}"
    );
    let index = cluster.put(5).await;
    cluster.agree(index).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_distrusts_its_state_takes_no_office_that_is_handed_to_it() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    let old = cluster.leader().await;
    let term = cluster.roles()[&old].leads().expect("it leads");
    let heir = (1..=3).find(|id| *id != old).expect("three nodes");
    cluster.node(heir).consensus.distrust_state();
    cluster
        .node(old)
        .consensus
        .transfer_leader(NodeId(heir))
        .await
        .expect("it knows nothing of that");
    // Whoever leads next has had to be elected: a leader that hands over takes nothing more.
    let leads = |role: &Role| role.leads().filter(|new| *new > term);
    eventually("next leader", || {
        match cluster
            .roles()
            .iter()
            .find(|(_, role)| leads(role).is_some())
        {
            Some((leader, _)) if *leader != heir => Ok(()),
            other => Err(format!("{other:?} of {:?}", cluster.roles())),
        }
    })
    .await;
    let index = cluster.put(5).await;
    cluster.agree(index).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_knows_the_leader_dead_stands_without_waiting() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    let index = cluster.put(5).await;
    cluster.agree(index).await;
    let old = cluster.leader().await;
    let follower = (1..=3).find(|id| *id != old).expect("three nodes");
    let term = cluster.roles()[&old].leads().expect("it leads");
    cluster.stop(old).await;
    let asked = tokio::time::Instant::now();
    cluster
        .node(follower)
        .consensus
        .stand_with_transfer_flag()
        .await
        .expect("a sound log");
    eventually("new leader", || match cluster.roles()[&follower] {
        Role::Leader { term: new } if new > term => Ok(()),
        _ => Err(format!("{:?}", cluster.roles())),
    })
    .await;
    println!("in office {:?} after it stood", asked.elapsed());
    let index = cluster.put(1).await;
    cluster.agree(index).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_talks_but_does_not_hear_is_replaced() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    let old = cluster.leader().await;
    for other in (1..=3).filter(|id| *id != old) {
        cluster.network.cut(NodeId(other), NodeId(old));
    }
    let new = cluster.leader_other_than(&[old]).await;
    assert_ne!(new, old);
    cluster.network.mend();
    let index = cluster.put(5).await;
    cluster.agree(index).await;
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
