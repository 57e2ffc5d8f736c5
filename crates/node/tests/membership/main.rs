//! Stories of nodes that form, leave and enter a cluster. Architecture, section 12.

#[allow(unreachable_pub, missing_docs)]
mod town;

use tokio_stream::StreamExt as _;
use trellis_node::membership::{Identity as _, NodeStop};
use trellis_rpc::{
    ClusterId, Identity, Lane, Peers, SharedIdentity,
    pb::{self, forward_down::Down, forward_end::Reason, forward_up::Up},
};
use trellis_types::NodeId;

use town::{SHORT_LEASE, Town};

#[test]
fn a_node_with_no_members_configured_is_a_cluster_at_once_and_keeps_its_data() {
    let mut town = Town::of(&["n1"]);
    town.start("n1");
    town.wait_ready(&["n1"]);
    let before = town.status("n1");
    assert_eq!(before.role, "leader");
    assert!(before.members[0].voter && before.members.len() == 1);
    assert_eq!(town.put("n1", "letter"), 1);

    town.kill("n1");
    town.start("n1");
    town.wait_ready(&["n1"]);
    let after = town.status("n1");
    assert_eq!((after.cluster, after.node), (before.cluster, before.node));
    assert_eq!(after.jobs, 1);
    assert_ne!(after.origin, before.origin, "a new run");
    assert_eq!(town.put("n1", "another"), 2, "ids go on");
}

#[test]
fn three_nodes_form_only_when_all_are_there() {
    let mut town = Town::of(&["n1", "n2", "n3"]);
    town.start("n1");
    town.start("n2");
    town.wait("n1 waits for n3", |town| {
        let n3 = town.address("n3");
        let status = town.status("n1");
        (status.stage == "forming" && status.waits_for?.contains(&n3)).then_some(())
    });
    town.wait("n2 waits for n1", |town| {
        town.status("n2")
            .waits_for?
            .contains("waiting for n1 to form")
            .then_some(())
    });
    let members = town.node("n1").members().clone();
    let health = members.health();
    assert!(health.live && health.started && !health.ready, "{health:?}");
    let refused = town.on("n1", members.snapshot_written());
    assert!(
        refused
            .is_err_and(|refused| refused.again && refused.why.contains("not part of a cluster")),
        "there is no state to write"
    );
    assert_eq!(town.status("n1").disk, None, "nobody has looked");

    town.start("n3");
    town.wait_ready(&["n1", "n2", "n3"]);
    let clusters = ["n1", "n2", "n3"].map(|name| town.status(name).cluster);
    assert!(clusters[0].is_some() && clusters.iter().all(|cluster| *cluster == clusters[0]));
    for (turn, name) in (1..).zip(["n2", "n3", "n1"]) {
        assert_eq!(town.put(name, "letter"), turn);
    }
    town.wait_equal(&["n1", "n2", "n3"]);
}

#[test]
fn a_cluster_survives_the_restart_of_any_and_of_all() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    town.start_all();
    town.wait_ready(&all);
    town.put("n1", "first");

    let leader = town.wait_leader(&all);
    town.kill(&leader);
    let others: Vec<&str> = all.into_iter().filter(|name| *name != leader).collect();
    town.wait_leader(&others);
    town.put(others[0], "second");
    town.start(&leader);
    town.wait_ready(&all);
    town.wait_equal(&all);

    town.kill_all();
    town.start_all();
    town.wait_ready(&all);
    assert_eq!(town.put("n2", "third"), 3);
    town.wait_equal(&all);
    assert_eq!(town.status("n3").jobs, 3);
}

#[test]
fn a_started_node_takes_no_part_before_a_majority_has_answered() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    town.start_all();
    town.wait_ready(&all);
    town.kill_all();

    town.start("n2");
    town.wait("n2 names whom it waits for", |town| {
        let why = town.status("n2").waits_for?;
        (why.contains("n1 at") && why.contains("n3 at") && why.contains("refused")).then_some(())
    });
    assert_eq!(town.status("n2").role, "stopped");
    assert_eq!(town.status("n2").stage, "hello");
    town.start("n3");
    town.wait_ready(&["n2", "n3"]);
}

#[test]
fn an_empty_disk_comes_back_under_a_new_id_in_place_of_the_dead_one() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    town.lease = SHORT_LEASE;
    town.start_all();
    town.wait_ready(&all);
    town.put("n1", "letter");
    let leader = town.wait_leader(&all);
    let victim = all.into_iter().find(|name| *name != leader).unwrap_or("n1");
    let dead = town.status(victim).node;

    town.kill(victim);
    town.wipe(victim);
    town.start(victim);
    town.wait_ready(&all);
    let reborn = town.status(victim);
    assert_ne!(reborn.node, dead);
    let members = town.wait_voters(&leader, 3);
    assert!(members.iter().all(|member| member.node != dead));
    town.wait_equal(&all);
    assert_eq!(town.status(victim).jobs, 1);
}

#[test]
fn a_cluster_of_one_grows_to_three() {
    let mut town = Town::of(&["n1"]);
    town.start("n1");
    town.wait_ready(&["n1"]);
    town.put("n1", "letter");
    town.joining("n2", &["n1"]);
    town.start("n2");
    town.wait_ready(&["n1", "n2"]);
    // Over a follower.
    town.joining("n3", &["n2"]);
    town.start("n3");
    town.wait_ready(&["n1", "n2", "n3"]);
    town.wait_equal(&["n1", "n2", "n3"]);
    assert_eq!(town.status("n3").jobs, 1);
    assert_eq!(town.put("n3", "another"), 2);
}

#[test]
fn member_add_invites_a_node_that_waits() {
    let mut town = Town::of(&["n1"]);
    town.start("n1");
    town.wait_ready(&["n1"]);
    // It waits for a node that never comes.
    town.waiting_for("n2", "absent");
    let address = town.address("n2");
    let members = town.node("n1").members().clone();
    let absent = town.on("n1", members.add(&address));
    assert!(
        absent.is_err_and(|refused| refused.again),
        "nobody is there yet"
    );
    town.start("n2");
    town.wait("n2 waits", |town| {
        let why = town.status("n2").waits_for?;
        why.contains("waiting for absent to form").then_some(())
    });
    assert_eq!(town.status("n1").members.len(), 1);
    let invited = town.on("n1", members.add(&address));
    assert!(invited.is_ok(), "{invited:?}");
    town.wait_ready(&["n1", "n2"]);
    town.wait("n2 votes", |town| {
        let members = town.status("n1").members;
        let n2 = members.iter().find(|member| member.name == "n2")?;
        n2.voter.then_some(())
    });
}

#[test]
fn a_removed_node_is_told_so_and_stops() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    town.start_all();
    town.wait_ready(&all);
    let leader = town.wait_leader(&all);
    let followers: Vec<&str> = all.into_iter().filter(|name| *name != leader).collect();
    let (asked, victim) = (followers[0], followers[1]);

    // Asked of a follower, which passes it on.
    let members = town.node(asked).members().clone();
    let refused = town.on(asked, members.remove(victim, false));
    assert!(refused.is_err_and(|refused| refused.why.contains("--force")));
    let removed = town.on(asked, members.remove(victim, true));
    assert!(removed.is_ok(), "{removed:?}");

    let gone = town.node(victim).members().clone();
    let stop = town.on(victim, gone.stopped());
    assert!(
        stop.to_string().contains("removed from the cluster"),
        "{stop}"
    );
    town.kill(victim);
    town.start(victim);
    let again = town.node(victim).members().clone();
    let stop = town.on(victim, again.stopped());
    assert!(matches!(stop, NodeStop::Hello(_)), "{stop}");
    assert!(!town.node(victim).members().health().live);
}

#[test]
fn an_older_copy_of_the_folder_stops_even_if_it_is_tried_again_and_again() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    town.start_all();
    town.wait_ready(&all);
    let copy = town.folder("n3").identity.copy();
    let older = copy.copy();
    town.kill("n3");
    town.start("n3");
    town.wait_ready(&all);

    town.kill("n3");
    town.restore("n3", copy);
    for _ in 0..3 {
        town.start("n3");
        let members = town.node("n3").members().clone();
        let stop = town.on("n3", members.stopped());
        assert!(stop.to_string().contains("older copy"), "{stop}");
        town.kill("n3");
    }

    // After a restart of all only the run can tell; it does.
    town.kill_all();
    town.restore("n3", older);
    town.start_all();
    let members = town.node("n3").members().clone();
    let stop = town.on("n3", members.stopped());
    assert!(stop.to_string().contains("holds run"), "{stop}");
    town.wait_ready(&["n1", "n2"]);
}

/// Its run is the newest, but acknowledged entries are gone: a disk that lied.
#[test]
fn a_disk_that_lost_acknowledged_entries_is_noticed_by_the_others() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    town.start_all();
    town.wait_ready(&all);
    town.kill("n3");
    let (log, state) = town.copy_storage("n3");
    town.start("n3");
    town.wait_ready(&all);
    for _ in 0..3 {
        town.put("n1", "letter");
    }
    town.wait_equal(&all);
    // What was seen of it travels with its reports.
    let applied = town.status("n1").applied;
    town.wait("n3's report", |town| {
        let members = town.status("n1").members;
        let n3 = members.into_iter().find(|member| member.name == "n3")?;
        (n3.applied? >= applied).then_some(())
    });
    town.kill("n3");
    town.restore_storage("n3", log, state);
    town.start("n3");
    let members = town.node("n3").members().clone();
    let stop = town.on("n3", members.stopped());
    assert!(stop.to_string().contains("holds log index"), "{stop}");
}

#[test]
fn several_newcomers_at_once_are_taken_in_one_after_the_other() {
    let mut town = Town::of(&["n1", "n2", "n3"]);
    town.start_all();
    town.wait_ready(&["n1", "n2", "n3"]);
    town.joining("n4", &["n1", "n2"]);
    town.joining("n5", &["n3"]);
    town.start("n4");
    town.start("n5");
    let all = ["n1", "n2", "n3", "n4", "n5"];
    town.wait_ready(&all);
    town.wait_voters("n1", 5);
    town.put("n5", "letter");
    town.wait_equal(&all);
}

/// A change that stops half-way is completed by the next leader, whoever dies when.
#[test]
fn a_leader_that_dies_while_a_member_is_replaced_changes_nothing_in_the_end() {
    let all = ["n1", "n2", "n3", "n4", "n5"];
    let mut town = Town::of(&all);
    town.lease = SHORT_LEASE;
    town.start_all();
    town.wait_ready(&all);
    town.put("n1", "letter");
    for round in 0..3 {
        let leader = town.wait_leader(&all);
        let victim = all.into_iter().find(|name| *name != leader).unwrap_or("n1");
        let dead = town.status(victim).node;
        town.kill(victim);
        town.wipe(victim);
        town.start(victim);
        // At once when it is a learner; a little later it may be in the middle of the change.
        town.wait("the newcomer", |town| {
            let status = town.status(&leader);
            let learner = status.members.iter().any(|member| !member.voter);
            let gone = status.members.iter().all(|member| member.node != dead);
            (learner && (round == 0 || !status.changes.is_empty()) || gone).then_some(())
        });
        town.kill(&leader);
        let rest: Vec<&str> = all.into_iter().filter(|name| *name != leader).collect();
        town.wait_leader(&rest);
        town.start(&leader);
        town.wait_ready(&all);
        let members = town.wait_voters(&leader, 5);
        assert!(members.iter().all(|member| member.node != dead));
        town.put(victim, "letter");
    }
    town.wait_equal(&all);
}

#[test]
fn a_folder_of_another_cluster_is_refused_with_both_ids() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    let mut other = Town::of(&all);
    town.start_all();
    other.start_all();
    town.wait_ready(&all);
    other.wait_ready(&all);
    let (ours, theirs) = (town.status("n1").cluster, other.status("n1").cluster);
    let (ours, theirs) = (ours.unwrap_or_default(), theirs.unwrap_or_default());
    town.kill("n3");
    other.kill_all();
    town.swap_folder("n3", &mut other);
    town.start("n3");
    town.wait("both ids", |town| {
        let why = town.status("n3").waits_for?;
        (why.contains(&ours) && why.contains(&theirs)).then_some(())
    });
    assert_eq!(town.status("n3").role, "stopped");
}

#[test]
fn a_name_stays_with_its_folder() {
    let mut town = Town::of(&["n1"]);
    let mut other = Town::of(&["n2"]);
    town.start("n1");
    town.wait_ready(&["n1"]);
    town.kill("n1");
    let identity = town.folder("n1").identity.copy();
    other.restore("n2", identity);
    let refused = other.try_start("n2").err().map(|error| error.to_string());
    assert!(refused.is_some_and(|text| text.contains("\"n1\"") && text.contains("\"n2\"")));
}

#[test]
fn leadership_is_handed_over_on_request_and_by_drain() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    town.start_all();
    town.wait_ready(&all);
    let first = town.wait_leader(&all);
    let to = all.into_iter().find(|name| *name != first).unwrap_or("n1");
    let asked = all
        .into_iter()
        .find(|name| *name != first && *name != to)
        .unwrap_or("n1");
    let members = town.node(asked).members().clone();
    let moved = town.on(asked, members.transfer_leader(Some(to)));
    assert!(moved.is_ok(), "{moved:?}");
    assert_eq!(town.wait_leader(&all), to);

    town.put(to, "letter");
    let members = town.node(to).members().clone();
    town.on(to, members.drain());
    let health = members.health();
    assert!(
        health.draining && !health.ready && health.live,
        "{health:?}"
    );
    let rest: Vec<&str> = all.into_iter().filter(|name| *name != to).collect();
    town.wait_leader(&rest);
    town.put(rest[0], "another");
}

#[test]
fn a_leader_is_removed_by_its_successor() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    town.start_all();
    town.wait_ready(&all);
    let leader = town.wait_leader(&all);
    let members = town.node(&leader).members().clone();
    let removed = town.on(&leader, members.remove(&leader, true));
    assert!(removed.is_ok(), "{removed:?}");
    let stop = town.on(&leader, members.stopped());
    assert!(stop.to_string().contains("removed"), "{stop}");
    let rest: Vec<&str> = all.into_iter().filter(|name| *name != leader).collect();
    town.wait_leader(&rest);
    town.put(rest[0], "letter");
    town.wait_equal(&rest);
}

/// Section 14. Without this somebody would stand only after the leader's lease of 900 ms and an
/// election time-out of at least 500 ms.
#[test]
fn a_killed_leader_is_replaced_before_its_lease_runs_out() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    town.start_all();
    town.wait_ready(&all);
    let mut gaps = Vec::new();
    for _ in 0..5 {
        let leader = town.wait_leader(&all);
        let others: Vec<&str> = all.into_iter().filter(|name| *name != leader).collect();
        town.put(others[0], "before");
        town.kill(&leader);
        let begun = std::time::Instant::now();
        town.put(others[0], "after");
        gaps.push(begun.elapsed().as_millis());
        town.start(&leader);
        town.wait_ready(&all);
    }
    gaps.sort_unstable();
    println!("gaps in ms: {gaps:?}");
    assert!(gaps[0] < 900, "the quickest of {gaps:?}");
    town.wait_equal(&all);
    assert_eq!(town.status("n1").jobs, 10);
}

/// Section 10, rule 7.
#[test]
fn a_leader_whose_log_stands_still_hands_over_and_does_not_come_back_before_it_moves() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    town.start_all();
    town.wait_ready(&all);
    let slow = town.wait_leader(&all);
    let others: Vec<&str> = all.into_iter().filter(|name| *name != slow).collect();
    town.folder(&slow).log.hold_syncs(true);
    town.put(others[0], "the others are a majority");
    let next = town.wait("another leader", |town| {
        let leader = town.status(others[0]).leader?;
        (leader != slow).then_some(leader)
    });
    town.folder(&slow).log.hold_syncs(false);
    town.put(&next, "letter");
    town.wait_equal(&all);
}

#[test]
fn puts_are_refused_while_a_disk_is_short() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    town.start_all();
    town.wait_ready(&all);
    town.folder("n2").disk.set_free(1 << 20);
    town.wait("puts refused everywhere", |town| {
        let refused = all.iter().all(|name| town.status(name).puts_refused);
        let leader = town.wait_leader(&all);
        (refused && town.status(&leader).short_of_disk == ["n2"]).then_some(())
    });
    town.wait("n2 compacts", |town| {
        (town.folder("n2").disk.compactions() > 0).then_some(())
    });
    town.folder("n2").disk.set_free(1 << 39);
    town.wait("puts taken again", |town| {
        all.iter()
            .all(|name| !town.status(name).puts_refused)
            .then_some(())
    });
}

#[test]
fn a_node_that_was_bound_in_vain_can_be_unbound_and_forms_a_cluster() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    // Who began a first attempt has lost its folder since.
    let in_vain = ClusterId(7);
    let bound = town.folder("n2").identity.bind(in_vain);
    assert!(bound.is_ok(), "{bound:?}");
    town.start_all();
    town.wait("n1 names who is in the way", |town| {
        let why = town.status("n1").waits_for?;
        (why.contains("n2 is bound to cluster") && why.contains("member unbind")).then_some(())
    });
    town.wait("n2 takes part", |town| {
        (town.status("n2").stage == "hello").then_some(())
    });

    // It has asked others in the name of that cluster, so it starts afresh.
    let members = town.node("n2").members().clone();
    let unbound = town.on("n2", members.unbind());
    assert!(unbound.is_ok(), "{unbound:?}");
    let stop = town.on("n2", members.stopped());
    assert!(matches!(stop, NodeStop::Unbound), "{stop}");
    town.kill("n2");
    town.start("n2");

    town.wait_ready(&all);
    let clusters = all.map(|name| town.status(name).cluster);
    assert!(clusters.iter().all(|cluster| *cluster == clusters[0]));
    assert_ne!(clusters[0], Some(in_vain.to_string()), "another cluster");
}

#[test]
fn only_a_bound_node_without_a_cluster_can_be_unbound() {
    let mut town = Town::of(&["n1", "n2", "n3"]);
    town.start("n2");
    let members = town.node("n2").members().clone();
    let refused = town.on("n2", members.unbind());
    assert!(refused.is_err_and(|refused| refused.why.contains("not bound")));
    let mut single = Town::of(&["n1"]);
    single.start("n1");
    single.wait_ready(&["n1"]);
    let members = single.node("n1").members().clone();
    let refused = single.on("n1", members.unbind());
    assert!(refused.is_err_and(|refused| refused.why.contains("member of cluster")));
}

/// A node speaks for its own origins only: what another one sends under its name would make a hole
/// in its batches, or fill one.
#[test]
fn batches_are_taken_from_the_node_whose_origin_it_is() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    town.start_all();
    town.wait_ready(&all);
    let leader = town.wait_leader(&all);
    let others: Vec<&str> = all.into_iter().filter(|name| *name != leader).collect();
    let id = |name: &str| {
        let id = u64::from_str_radix(&town.status(name).node, 16);
        NodeId(id.unwrap_or_else(|error| panic!("{error}")))
    };
    let status = town.status(&leader);
    let cluster = status.cluster.as_deref().and_then(ClusterId::parse);
    let liar = Peers::new(SharedIdentity::new(Identity {
        cluster: cluster.unwrap_or_else(|| panic!("{status:?}")),
        node: id(others[0]),
    }));
    let open = |node: NodeId| pb::ForwardUp {
        up: Some(Up::Open(pb::ForwardOpen {
            origin: Some(pb::Origin {
                node: node.0,
                run: 1_000,
            }),
            term: status.term,
        })),
    };
    let first_answer = |node: NodeId| {
        town.on(&leader, async {
            let up = tokio_stream::once(open(node)).chain(tokio_stream::pending());
            let mut peer = liar
                .peer(id(&leader), &town.address(&leader), Lane::Forward)
                .unwrap_or_else(|status| panic!("{status}"));
            let down = peer.forward(up).await;
            let mut down = down
                .unwrap_or_else(|status| panic!("{status}"))
                .into_inner();
            let answer = down.message().await;
            answer.unwrap_or_else(|status| panic!("{status}"))
        })
    };
    let refused = first_answer(id(others[1])).and_then(|answer| answer.down);
    let doubt = matches!(&refused, Some(Down::End(end)) if end.reason == i32::from(Reason::Doubt));
    assert!(doubt, "{refused:?}");
    let taken = first_answer(id(others[0])).and_then(|answer| answer.down);
    assert!(matches!(taken, Some(Down::Ping(_))), "{taken:?}");
}

/// A load balancer that believes a node whose clients are told errors sends more of them there.
#[test]
fn a_leader_without_a_majority_stops_being_ready_and_its_status_says_why() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    town.lease = SHORT_LEASE;
    town.start_all();
    town.wait_ready(&all);
    let leader = town.wait_leader(&all);
    let others: Vec<&str> = all.into_iter().filter(|name| *name != leader).collect();
    let known = |name: &str| {
        let members = town.status(name).members.into_iter();
        members
            .filter(|member| member.lag.is_some())
            .collect::<Vec<_>>()
    };
    assert_eq!(known(&leader).len(), 3, "the leader knows who lags");
    assert!(known(others[0]).is_empty(), "nobody else does");
    let status = town.status(others[0]);
    assert!(status.ready && status.not_ready.is_empty(), "{status:?}");

    for name in &others {
        town.kill(name);
    }
    town.wait("it is not ready, and says why", |town| {
        let status = town.status(&leader);
        let why = status.not_ready.join("; ");
        (!status.ready && !status.leads && why.contains("waiting for the cluster")).then_some(())
    });
    town.wait("who is silent is not said to be sound", |town| {
        let members = town.status(&leader).members;
        let silent = members.iter().filter(|member| member.quarantined.is_none());
        (silent.count() == 2).then_some(())
    });
}
