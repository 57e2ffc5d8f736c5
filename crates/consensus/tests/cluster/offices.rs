//! Who leads, and who is kept from it.

use std::time::Duration;

use tokio::time::timeout;
use trellis_consensus::{ChangeError, ProposeError, ReadError, Role};
use trellis_rpc::pb;
use trellis_types::NodeId;

use super::support::{Cluster, PATIENCE, eventually, puts};

#[tokio::test(start_paused = true)]
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

/// Of a vote Raft tells without an entry. Nodes that took that for writes that do not move never
/// stood again, when a candidate had gone silent with the votes of all in its hand.
#[tokio::test(start_paused = true)]
async fn a_vote_takes_nothing_back_of_what_was_written() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    let index = cluster.put(10).await;
    cluster.agree(index).await;
    let leader = cluster.leader().await;
    let term = cluster.roles()[&leader].leads().expect("it leads") + 1;
    let mut others = (1..=3).filter(|id| *id != leader);
    let (voter, candidate) = (others.next().expect("one"), others.next().expect("two"));
    cluster.stop(leader).await;
    cluster.stop(candidate).await;

    let consensus = cluster.node(voter).consensus.clone();
    let last = consensus.last_log();
    assert!(last.is_some_and(|last| last.index >= index), "{last:?}");
    assert_eq!(consensus.written(), last);
    let request = pb::VoteRequest {
        vote: Some(pb::Vote {
            term,
            node: candidate,
            committed: false,
        }),
        last_log: last.map(Into::into),
        leadership_transfer: true,
    };
    let reply = consensus.front().vote(request).await.expect("raft runs");
    assert!(reply.granted, "{reply:?}");
    eventually("Raft tells of the vote alone", || {
        match consensus.flushed() {
            flushed if flushed != last => Ok(()),
            flushed => Err(format!("{flushed:?}")),
        }
    })
    .await;
    assert_eq!(consensus.written(), last);
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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
