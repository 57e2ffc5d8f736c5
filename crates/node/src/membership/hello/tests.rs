use trellis_consensus::{Member, Position};

use super::*;

const OURS: ClusterId = ClusterId(7);

fn membership(index: u64, ids: &[u64]) -> Membership {
    let ids: BTreeSet<NodeId> = ids.iter().copied().map(NodeId).collect();
    Membership {
        position: Some(Position {
            term: 1,
            leader: NodeId(1),
            index,
        }),
        voters: vec![ids.clone()],
        members: ids
            .into_iter()
            .map(|id| {
                let name = format!("n{}", id.0);
                (
                    id,
                    Member {
                        id,
                        address: format!("{name}:1"),
                        name,
                    },
                )
            })
            .collect(),
    }
}

/// Node 1 of three, restarted with run 4, term 3 and log index 90.
fn restarted() -> Own {
    Own {
        id: NodeId(1),
        name: "n1".into(),
        run: Run(4),
        term: 3,
        flushed: 90,
        membership: membership(0, &[1, 2, 3]),
        cluster: OURS,
        initial: BTreeSet::new(),
    }
}

fn answer(from: u64) -> HelloAnswer {
    HelloAnswer {
        from: NodeId(from),
        name: format!("n{from}"),
        cluster: Some(OURS),
        formed: true,
        leads: false,
        leader: None,
        membership: membership(0, &[1, 2, 3]),
        knows: Known {
            run: Run(4),
            term: 3,
            flushed: 90,
        },
        removed: false,
    }
}

fn verdict(own: &Own, answers: impl IntoIterator<Item = HelloAnswer>) -> HelloVerdict {
    hello_verdict(
        own,
        &answers
            .into_iter()
            .map(|answer| (answer.from, answer))
            .collect(),
    )
}

fn waits_for(verdict: &HelloVerdict, needle: &str) {
    match verdict {
        HelloVerdict::Wait(why) => assert!(why.contains(needle), "{why:?} lacks {needle:?}"),
        other => panic!("expected to wait for {needle}, got {other:?}"),
    }
}

#[test]
fn a_restarted_node_waits_for_a_majority_of_whom_none_hears_a_leader() {
    let own = restarted();
    waits_for(&verdict(&own, []), "n2 at n2:1");
    assert_eq!(
        verdict(&own, [answer(2)]),
        HelloVerdict::Go(Go::NobodyLeads)
    );
}

#[test]
fn one_that_hears_a_leader_sends_the_node_to_that_leader() {
    let own = restarted();
    let hears = HelloAnswer {
        leader: Some(NodeId(3)),
        ..answer(2)
    };
    waits_for(&verdict(&own, [hears.clone()]), "heard by n2");
    let leader = HelloAnswer {
        leads: true,
        leader: Some(NodeId(3)),
        ..answer(3)
    };
    assert_eq!(
        verdict(&own, [hears, leader]),
        HelloVerdict::Go(Go::LeaderAnswered(NodeId(3)))
    );
}

#[test]
fn a_majority_without_a_leader_outweighs_one_that_still_hears_the_dead_one() {
    let mut own = restarted();
    own.membership = membership(0, &[1, 2, 3, 4, 5]);
    let five = |from| HelloAnswer {
        membership: own.membership.clone(),
        ..answer(from)
    };
    let hears = HelloAnswer {
        leader: Some(NodeId(5)),
        ..five(2)
    };
    waits_for(&verdict(&own, [hears.clone(), five(3)]), "heard by n2");
    assert_eq!(
        verdict(&own, [hears, five(3), five(4)]),
        HelloVerdict::Go(Go::NobodyLeads)
    );
}

#[test]
fn the_only_voter_needs_nobody() {
    let mut own = restarted();
    own.membership = membership(0, &[1]);
    assert_eq!(verdict(&own, []), HelloVerdict::Go(Go::NobodyLeads));
}

#[test]
fn the_newest_membership_counts() {
    // Alone when it stopped; two more have joined since.
    let mut own = restarted();
    own.membership = membership(0, &[1]);
    let newer = HelloAnswer {
        membership: membership(50, &[1, 2, 3, 4, 5]),
        ..answer(2)
    };
    waits_for(&verdict(&own, [newer]), "n3 at n3:1");
}

#[test]
fn both_halves_of_a_joint_membership_must_have_a_majority() {
    let mut own = restarted();
    own.membership.voters.push([1, 4, 5].map(NodeId).into());
    waits_for(&verdict(&own, [answer(2)]), "node 0000000000000004");
    let joint = |from| HelloAnswer {
        membership: own.membership.clone(),
        ..answer(from)
    };
    assert_eq!(
        verdict(&own, [answer(2), joint(4)]),
        HelloVerdict::Go(Go::NobodyLeads)
    );
}

#[test]
fn a_learner_counts_for_no_majority() {
    let mut own = restarted();
    own.id = NodeId(4);
    waits_for(&verdict(&own, [answer(2)]), "n1 at n1:1");
    assert_eq!(
        verdict(&own, [answer(2), answer(3)]),
        HelloVerdict::Go(Go::NobodyLeads)
    );
}

#[test]
fn an_older_copy_of_the_folder_stops_whoever_notices_and_whatever_gives_it_away() {
    for (what, knows) in [
        (
            "run",
            Known {
                run: Run(5),
                term: 3,
                flushed: 90,
            },
        ),
        (
            "term",
            Known {
                run: Run(4),
                term: 4,
                flushed: 90,
            },
        ),
        (
            "log index",
            Known {
                run: Run(4),
                term: 3,
                flushed: 91,
            },
        ),
    ] {
        let seen = HelloAnswer { knows, ..answer(2) };
        match verdict(&restarted(), [seen, answer(3)]) {
            HelloVerdict::Stop(stop) => {
                let text = stop.to_string();
                assert!(text.contains(what) && text.contains("n2"), "{text}");
                assert!(
                    text.contains("empty data folder"),
                    "it says what to do: {text}"
                );
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn a_removed_node_stops_even_if_a_majority_would_have_it() {
    let told = HelloAnswer {
        removed: true,
        ..answer(3)
    };
    assert_eq!(
        verdict(&restarted(), [answer(2), told]),
        HelloVerdict::Stop(HelloStop::Removed {
            id: NodeId(1),
            by: "n3".into()
        })
    );
}

#[test]
fn nodes_of_another_cluster_count_for_nothing() {
    let stranger = HelloAnswer {
        cluster: Some(ClusterId(8)),
        leads: true,
        removed: true,
        knows: Known {
            run: Run(99),
            term: 99,
            flushed: 99,
        },
        ..answer(2)
    };
    waits_for(&verdict(&restarted(), [stranger]), "n2 at n2:1");
}

#[test]
fn before_the_first_entry_the_initial_members_are_the_electorate() {
    let own = Own {
        run: Run(0),
        term: 0,
        flushed: 0,
        membership: Membership::default(),
        initial: ["n1", "n2", "n3"].map(String::from).into(),
        ..restarted()
    };
    let blank = |from| HelloAnswer {
        formed: false,
        membership: Membership::default(),
        knows: Known::default(),
        ..answer(from)
    };
    waits_for(&verdict(&own, []), "n2");
    assert_eq!(verdict(&own, [blank(2)]), HelloVerdict::Go(Go::NobodyLeads));
    let stranger = HelloAnswer {
        name: "n9".into(),
        ..blank(9)
    };
    waits_for(&verdict(&own, [stranger]), "n2");
}

#[test]
fn a_leader_that_does_not_know_the_node_is_waited_for() {
    let mut own = restarted();
    own.id = NodeId(9);
    let leader = HelloAnswer {
        leads: true,
        leader: Some(NodeId(3)),
        ..answer(3)
    };
    waits_for(&verdict(&own, [leader]), "does not count this node");
}
