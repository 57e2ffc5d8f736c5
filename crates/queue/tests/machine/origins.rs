//! Runs of nodes: opening, suspending, ending, retiring.

use trellis_queue::{Answer, Event, Fate, LeaderCommand};
use trellis_types::NodeId;

use crate::story::{Story, origin, put};

use LeaderCommand::{ExpireOrigin, OpenOrigin, ResumeOrigin, RetireNode, SuspendOrigin};

#[test]
fn a_node_opens_run_after_run_and_never_one_twice() {
    let mut story = Story::begins();
    story.leader(OpenOrigin(origin(5, 3)));
    assert_eq!(story.last.events, [Event::Opened(origin(5, 3))]);
    for stale in [3, 2, 0] {
        story.leader(OpenOrigin(origin(5, stale)));
        assert_eq!(story.last.events, []);
    }
    story.leader(ExpireOrigin(origin(5, 3)));
    story.leader(OpenOrigin(origin(5, 3)));
    assert_eq!(story.last.events, [], "not even when it is over");
    assert_eq!(
        story.machine.origin(NodeId(5)).and_then(|known| known.open),
        None
    );
    story.leader(OpenOrigin(origin(5, 4)));
    let known = story.machine.origin(NodeId(5)).expect("it opened");
    assert_eq!((known.highest_run.0, known.open), (4, Some(origin(5, 4))));
}

/// A repeat changes nothing: the batches already carried out stay known.
#[test]
fn opening_an_open_origin_again_changes_nothing() {
    let mut story = Story::begins();
    let ann = story.person();
    story.put(ann, "mail");
    story.leader(SuspendOrigin(ann.origin));
    story.leader(OpenOrigin(ann.origin));
    let known = story.machine.origin(ann.origin.node).expect("open");
    assert_eq!((known.last_seq, known.suspended), (1, true));
    let again = story.send(ann.origin, 1, vec![(ann, put("mail", 0, 0, 1, ""))]);
    assert_eq!(again, Fate::Duplicate);
}

#[test]
fn a_higher_run_ends_the_earlier_one_and_starts_fresh() {
    let mut story = Story::begins();
    let ann = story.person();
    let letter = story.put(ann, "mail");
    story.takes(ann, &["mail"]);
    story.leader(SuspendOrigin(ann.origin));
    story.leader(OpenOrigin(origin(1, 2)));
    assert_eq!(
        story.last.events,
        [Event::Ended(ann.origin), Event::Opened(origin(1, 2))]
    );
    assert_eq!(story.state(letter), "ready");
    let known = story.machine.origin(ann.origin.node).expect("open");
    assert_eq!((known.last_seq, known.suspended), (0, false));
    let bob = story.person_at(origin(1, 2));
    assert_eq!(story.takes(bob, &["mail"]), Some(letter));
}

/// All waits go before any hold returns: none of its sessions gets a job of another of them.
#[test]
fn when_an_origin_ends_its_holds_return_to_the_others() {
    let mut story = Story::begins();
    let far = origin(2, 1);
    let (ann, bob, cid) = (story.person_at(far), story.person_at(far), story.person());
    story.leader(SuspendOrigin(far));
    let second = story.put_as(ann, "mail", 0, 0, 60);
    let first = story.put_as(ann, "mail", 9, 0, 60);
    let third = story.put_as(ann, "mail", 1, 0, 60);
    story.reserves_job(ann, first);
    story.reserves_job(bob, second);
    story.reserves_job(ann, third);
    story.waits(ann, &["mail"]);
    story.waits(bob, &["mail"]);
    story.leader(ResumeOrigin(far));
    story.waits(cid, &["mail"]);

    story.leader(ExpireOrigin(far));
    assert_eq!(
        story.last.events,
        [
            Event::Deferred {
                session: cid,
                answer: Answer::Reserved {
                    job: first,
                    attempt: 2,
                    body_bytes: 4
                },
            },
            Event::Ended(far),
        ],
        "in order of reservation, over all its sessions"
    );
    assert_eq!(
        (story.state(second), story.state(third)),
        ("ready", "ready")
    );
    assert_eq!(story.server().waiting, 0);
    assert!(!story.machine.holds_any(ann) && !story.machine.holds_any(bob));
}

/// A late command of an ended run does nothing to the next one.
#[test]
fn words_that_name_another_run_do_nothing() {
    let mut story = Story::begins();
    story.leader(OpenOrigin(origin(1, 2)));
    let ann = story.person_at(origin(1, 2));
    let letter = story.put(ann, "mail");
    story.takes(ann, &["mail"]);
    for run in [1, 3] {
        story.leader(SuspendOrigin(origin(1, run)));
        assert!(!story.machine.origin(NodeId(1)).expect("open").suspended);
        story.leader(ExpireOrigin(origin(1, run)));
        assert_eq!(story.last.events, []);
    }
    story.leader(SuspendOrigin(origin(1, 2)));
    story.leader(ResumeOrigin(origin(1, 1)));
    assert!(story.machine.origin(NodeId(1)).expect("open").suspended);
    assert_eq!(story.state(letter), "reserved");
}

#[test]
fn an_origin_can_end_only_once() {
    let mut story = Story::begins();
    story.leader(ExpireOrigin(origin(1, 1)));
    assert_eq!(story.last.events, [Event::Ended(origin(1, 1))]);
    story.leader(ExpireOrigin(origin(1, 1)));
    assert_eq!(story.last.events, []);
}

/// Reservations and waits of other nodes live on (P4).
#[test]
fn the_end_of_one_origin_leaves_the_others_alone() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let letter = story.put(ann, "mail");
    story.takes(ann, &["mail"]);
    story.waits(bob, &["mail"]);
    story.leader(ExpireOrigin(origin(2, 1)));
    assert_eq!(story.job(letter).holder, Some(ann));
    assert!(story.machine.is_waiting(bob));
}

#[test]
fn a_retired_node_never_comes_back() {
    let mut story = Story::begins();
    let bob = story.person_at(origin(2, 1));
    let letter = story.put(bob, "mail");
    story.takes(bob, &["mail"]);
    story.leader(RetireNode(NodeId(2)));
    assert_eq!(
        story.last.events,
        [Event::Ended(origin(2, 1)), Event::Retired(NodeId(2))]
    );
    assert_eq!(story.state(letter), "ready");
    assert!(story.machine.is_retired(NodeId(2)) && !story.machine.is_retired(NodeId(1)));
    story.leader(OpenOrigin(origin(2, 2)));
    assert_eq!(story.last.events, []);
    story.leader(RetireNode(NodeId(2)));
    assert_eq!(story.last.events, [], "once is enough");

    story.leader(RetireNode(NodeId(77)));
    assert_eq!(
        story.last.events,
        [Event::Retired(NodeId(77))],
        "one that never opened an origin"
    );
    story.leader(OpenOrigin(origin(77, 1)));
    assert_eq!(story.last.events, []);
}

#[test]
fn origins_are_listed_by_node_the_ended_ones_too() {
    let mut story = Story::begins();
    story.leader(ExpireOrigin(origin(1, 1)));
    let open: Vec<_> = story
        .machine
        .origins()
        .map(|known| (known.node.0, known.open))
        .collect();
    assert_eq!(open, [(1, None), (2, Some(origin(2, 1)))]);
    assert_eq!(story.machine.origin(NodeId(9)), None);
}
