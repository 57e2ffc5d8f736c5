use trellis_consensus::Position;

use super::*;

fn member(id: u64, name: &str) -> Member {
    Member {
        id: NodeId(id),
        name: name.into(),
        address: format!("{name}:1"),
    }
}

/// Three voters n1, n2, n3, all present and level; node 1 leads.
fn three() -> Council {
    let members: BTreeMap<NodeId, Member> = [1, 2, 3]
        .map(|id| (NodeId(id), member(id, &format!("n{id}"))))
        .into();
    let sight = Sight {
        present: true,
        follows: true,
        open_origin: true,
        lag: Some(0),
        level: Some(1),
        address: None,
        quarantined: false,
    };
    Council {
        me: NodeId(1),
        sights: members.keys().map(|id| (*id, sight.clone())).collect(),
        unretired: members.keys().copied().collect(),
        level: 1,
        membership: Membership {
            position: Some(Position {
                term: 1,
                leader: NodeId(1),
                index: 1,
            }),
            voters: vec![members.keys().copied().collect()],
            members,
        },
    }
}

impl Council {
    fn with_learner(mut self, id: u64, name: &str) -> Self {
        self.membership.members.insert(NodeId(id), member(id, name));
        let like = self.sights.get(&NodeId(1)).cloned().unwrap_or_default();
        self.sights.insert(NodeId(id), like);
        self
    }

    fn seeing(mut self, id: u64, change: impl FnOnce(&mut Sight)) -> Self {
        change(self.sights.entry(NodeId(id)).or_default());
        self
    }

    fn dead(self, id: u64) -> Self {
        self.seeing(id, |sight| {
            (sight.present, sight.follows, sight.open_origin) = (false, false, false)
        })
    }
}

fn rests_because(council: &Council, needle: &str) {
    match next_duty(council) {
        Duty::Rest(why) => assert!(why.join(";").contains(needle), "{why:?} / {needle}"),
        other => panic!("expected to rest for {needle:?}, got {other:?}"),
    }
}

#[test]
fn a_quiet_cluster_leaves_its_membership_alone() {
    assert_eq!(next_duty(&three()), Duty::Rest(Vec::new()));
    // No voter is removed for merely being away.
    assert_eq!(next_duty(&three().dead(3)), Duty::Rest(Vec::new()));
}

#[test]
fn a_leader_that_finds_a_joint_membership_completes_it() {
    let mut council = three().with_learner(4, "n4");
    council
        .membership
        .voters
        .push([NodeId(1), NodeId(2), NodeId(4)].into());
    assert_eq!(next_duty(&council), Duty::FinishJoint);
}

#[test]
fn an_empty_disk_comes_back_under_a_new_id_in_place_of_the_dead_one() {
    let council = three().dead(3).with_learner(9, "n3");
    assert_eq!(
        next_duty(&council),
        Duty::Replace {
            dead: NodeId(3),
            new: NodeId(9)
        }
    );
}

#[test]
fn the_dead_id_is_replaced_only_once_its_origin_is_over() {
    let council = three()
        .seeing(3, |sight| sight.present = false)
        .with_learner(9, "n3");
    rests_because(&council, "origin of node 0000000000000003 to expire");
}

#[test]
fn the_dead_id_is_replaced_only_while_every_other_voter_is_present() {
    let council = three()
        .dead(3)
        .seeing(2, |sight| sight.present = false)
        .with_learner(9, "n3");
    rests_because(&council, "waiting for n2");
}

#[test]
fn a_newcomer_and_a_replacement_do_not_wait_for_each_other() {
    // n4 waits for n3, whose disk is lost.
    let council = three().with_learner(4, "n4").dead(3);
    rests_because(&council, "waiting for n3");
    assert_eq!(council.may_join(&member(9, "n3"), 1, false), Ok(false));
    assert_eq!(
        council.may_join(&member(5, "n5"), 1, false),
        Err(ChangeRefusal::Underway("n4".into())),
        "a second newcomer"
    );
    let living = three().with_learner(4, "n4");
    let taken = living.may_join(&member(9, "n3"), 1, false);
    assert!(matches!(taken, Err(ChangeRefusal::NameTaken { .. })));

    let both = three().with_learner(4, "n4").dead(3).with_learner(9, "n3");
    let (dead, new) = (NodeId(3), NodeId(9));
    assert_eq!(next_duty(&both), Duty::Replace { dead, new });
    let mut replaced = both;
    replaced.membership.members.remove(&dead);
    replaced.membership.voters = vec![[NodeId(1), NodeId(2), new].into()];
    replaced.unretired.remove(&dead);
    assert_eq!(next_duty(&replaced), Duty::Promote(NodeId(4)));
}

#[test]
fn two_disks_lost_of_five_are_replaced_one_after_the_other() {
    let mut council = three().with_learner(4, "n4").with_learner(5, "n5");
    council.membership.voters = vec![(1..=5).map(NodeId).collect()];
    let council = council.dead(4).dead(5).with_learner(8, "n4");
    rests_because(&council, "waiting for n5");
    assert_eq!(council.may_join(&member(9, "n5"), 1, false), Ok(false));
    let behind = council
        .with_learner(9, "n5")
        .seeing(9, |sight| sight.lag = Some(10_000));
    rests_because(&behind, "waiting for n5");
    let both = behind.seeing(9, |sight| sight.lag = Some(0));
    let (dead, new) = (NodeId(4), NodeId(8));
    assert_eq!(next_duty(&both), Duty::Replace { dead, new });
    // A voter that is merely away is waited for, whoever else is replaced.
    let away = both.seeing(2, |sight| sight.present = false);
    rests_because(&away, "waiting for n2");
}

#[test]
fn a_learner_first_catches_up() {
    let behind = three()
        .with_learner(4, "n4")
        .seeing(4, |sight| sight.lag = Some(10_000));
    rests_because(&behind, "10000 entries left");
    let mute = three()
        .with_learner(4, "n4")
        .seeing(4, |sight| sight.lag = None);
    rests_because(&mute, "not acknowledged anything");
    let away = three()
        .with_learner(4, "n4")
        .seeing(4, |sight| sight.present = false);
    rests_because(&away, "not present");
    assert_eq!(
        next_duty(&three().with_learner(4, "n4")),
        Duty::Promote(NodeId(4))
    );
}

#[test]
fn a_disk_lost_twice_leaves_no_learner_behind() {
    let council = three()
        .dead(3)
        .with_learner(8, "n3")
        .dead(8)
        .with_learner(9, "n3");
    assert_eq!(next_duty(&council), Duty::Drop(NodeId(8)));
}

#[test]
fn an_id_that_left_is_recorded_for_ever() {
    let mut council = three();
    council.unretired.insert(NodeId(7));
    assert_eq!(next_duty(&council), Duty::Retire(NodeId(7)));
}

#[test]
fn a_member_that_moved_is_found_at_its_new_address() {
    let moved = three().seeing(2, |sight| sight.address = Some("elsewhere:1".into()));
    let there = Member {
        address: "elsewhere:1".into(),
        ..member(2, "n2")
    };
    assert_eq!(next_duty(&moved), Duty::Readdress(there));
    let usurper = three().seeing(2, |sight| sight.address = Some("n3:1".into()));
    assert_eq!(next_duty(&usurper), Duty::Rest(Vec::new()));
    let stayed = three().seeing(2, |sight| sight.address = Some("n2:1".into()));
    assert_eq!(next_duty(&stayed), Duty::Rest(Vec::new()));
}

#[test]
fn the_level_is_raised_when_all_understand_it_and_nobody_is_on_its_way() {
    let two = |council: Council| {
        [1, 2, 3].into_iter().fold(council, |council, id| {
            council.seeing(id, |sight| sight.level = Some(2))
        })
    };
    assert_eq!(next_duty(&two(three())), Duty::RaiseLevel(2));
    let one_old = two(three()).seeing(2, |sight| sight.level = Some(1));
    assert_eq!(next_duty(&one_old), Duty::Rest(Vec::new()));
    let one_unknown = two(three()).seeing(2, |sight| sight.level = None);
    assert_eq!(next_duty(&one_unknown), Duty::Rest(Vec::new()));
    let joining = two(three()).with_learner(4, "n4").seeing(4, |sight| {
        (sight.level, sight.lag) = (Some(2), Some(10_000))
    });
    rests_because(&joining, "catching up");
}

#[test]
fn newcomers_are_taken_in_one_at_a_time_and_by_names_of_their_own() {
    let council = three();
    assert_eq!(council.may_join(&member(4, "n4"), 1, false), Ok(false));
    assert_eq!(
        council.may_join(&member(2, "n2"), 1, false),
        Ok(true),
        "it is there already"
    );
    let taken = council.may_join(&member(4, "n2"), 1, false);
    assert!(matches!(taken, Err(ChangeRefusal::NameTaken { .. })));
    assert_eq!(
        council.may_join(&member(4, "n4"), 1, true),
        Err(ChangeRefusal::Retired(NodeId(4)))
    );
    let old = Council {
        level: 3,
        ..three()
    }
    .may_join(&member(4, "n4"), 2, false);
    assert!(matches!(old, Err(ChangeRefusal::TooOld { .. })));
    let busy = three().with_learner(4, "n4");
    assert_eq!(
        busy.may_join(&member(5, "n5"), 1, false),
        Err(ChangeRefusal::Underway("n4".into()))
    );
    let again = three().with_learner(4, "n4").dead(4);
    assert_eq!(
        again.may_join(&member(5, "n4"), 1, false),
        Ok(false),
        "its own former self"
    );
}

#[test]
fn a_removal_must_leave_a_majority_that_is_there() {
    let council = three();
    let n3 = member(3, "n3");
    assert_eq!(
        council.may_remove(&n3, false),
        Err(ChangeRefusal::NoTolerance("n3".into()))
    );
    assert_eq!(council.may_remove(&n3, true), Ok(()));
    let short = three().dead(2).may_remove(&n3, true);
    assert!(matches!(
        short,
        Err(ChangeRefusal::NoMajority {
            needed: 2,
            present: 1,
            ..
        })
    ));
    let mut alone = three();
    alone.membership.voters = vec![[NodeId(1)].into()];
    let last = alone.may_remove(&member(1, "n1"), true);
    assert_eq!(last, Err(ChangeRefusal::LastVoter("n1".into())));
}

#[test]
fn members_are_found_by_name_or_id_the_voter_first() {
    let council = three().dead(3).with_learner(9, "n3");
    assert_eq!(council.find("n3").map(|found| found.id), Ok(NodeId(3)));
    assert_eq!(
        council.find("0000000000000009").map(|found| found.id),
        Ok(NodeId(9))
    );
    assert!(council.find("n7").is_err());
}

#[test]
fn the_most_advanced_present_voter_leads_next() {
    let council = three().seeing(2, |sight| sight.lag = Some(5));
    assert_eq!(council.successor(None), Some(NodeId(3)));
    assert_eq!(council.successor(Some(NodeId(2))), Some(NodeId(2)));
    assert_eq!(three().dead(3).successor(Some(NodeId(3))), None);
    assert_eq!(three().dead(2).dead(3).successor(None), None);
}
