//! No majority, or no leader: architecture, section 9, line by line.

use trellis_types::{JobId, Seconds};

use super::*;

#[test]
fn what_no_leader_has_waits_then_is_told_and_never_happens() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [put("x"), Call::Delete(JobId(7)), put("y")]);
    story.wait(4_999);
    assert_eq!(ann.hears(), [""; 0], "up to the time-out it waits");
    story.wait(1);
    assert_eq!(ann.hears(), ["Draining", "InternalError", "Draining"]);
    // The connection goes on, and what was told so is not carried out later.
    story.say(&ann, [put("z")]);
    story.run();
    assert_eq!(ann.hears(), ["inserted 1"]);
    assert_eq!(story.machine.server().total_jobs, 1);
    assert!(story.origin.outbound.budget.has_room());
}

#[test]
fn only_what_has_waited_long_enough_is_taken_back() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&ann, [put("old")]);
    story.say(&bob, [put("bob's old")]);
    story.wait(3_000);
    story.say(&ann, [put("young")]);
    story.say(&bob, [RESERVE, put("young")]);
    story.wait(2_000);
    assert_eq!(ann.hears(), ["Draining"]);
    assert_eq!(bob.hears(), ["Draining"]);
    story.run();
    assert_eq!(ann.hears(), ["inserted 1"]);
    assert_eq!(bob.hears(), ["reserved 1", "inserted 2"]);
    story.wait(60_000);
    assert_eq!(ann.hears(), [""; 0]);
}

#[test]
fn what_a_leader_may_have_is_unknown_and_the_connection_closes() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [put("x")]);
    story.hand();
    story.say(&ann, [put("y"), put("z")]);
    story.wait(5_000);
    assert_eq!(ann.hears(), ["InternalError", "closed: OutcomeUnknown"]);
    // It is resent to whatever leader appears: the outcome was unknown and stays so.
    assert_eq!(story.origin.resend(Story::own(1)).len(), 1);
    story.run();
    assert_eq!(ann.hears(), [""; 0]);
    assert!(story.machine.server().total_jobs >= 1);
}

#[test]
fn a_parked_reserve_stays_whatever_happens() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&ann, [RESERVE, put("behind")]);
    story.run();
    story.wait(3_600_000);
    assert_eq!(ann.hears(), [""; 0]);
    // What stands behind it did not age either: it counts from when it can be submitted.
    story.say(&bob, [put("x")]);
    story.hand();
    story.commit();
    assert_eq!(ann.hears(), ["reserved 1"]);
    story.wait(4_999);
    assert_eq!(ann.hears(), [""; 0]);
    story.wait(1);
    assert_eq!(ann.hears(), ["Draining"]);
}

#[test]
fn reads_and_polls_are_told_and_the_connection_goes_on() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&ann, [Call::Peek(JobId(1)), Call::Peek(JobId(2))]);
    story.say(&bob, [POLL, put("x")]);
    story.wait(5_000);
    assert_eq!(ann.hears(), ["InternalError"]);
    assert_eq!(bob.hears(), ["InternalError"]);
    story.read();
    story.run();
    assert_eq!(
        ann.hears(),
        ["NotFound"],
        "the second counts from when it could first be made"
    );
    assert_eq!(bob.hears(), ["inserted 1"]);
}

#[test]
fn a_use_so_answered_changes_nothing() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [Call::Use(tube("mail")), Call::Watch(tube("mail"))]);
    story.wait(3_000);
    story.say(
        &ann,
        [
            put("x"),
            Call::Ignore(tube("default")),
            Call::ListTubesWatched,
        ],
    );
    story.wait(2_000);
    assert_eq!(ann.hears(), ["InternalError", "InternalError"]);
    story.run();
    assert_eq!(
        ann.hears(),
        ["inserted 1", "NotIgnored", "default"],
        "as if it had never been said"
    );
    let view = story.machine.tube(&tube("default"), Timestamp(0));
    assert_eq!(view.map(|view| view.ready), Some(1));
    assert_eq!(
        story.machine.tubes().count(),
        1,
        "the reference was cleared again"
    );
    assert_eq!(story.origin.interest(&tube("mail")), (0, 0));
}

#[test]
fn a_half_closed_client_hears_everything_and_is_closed() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [put("x"), RESERVE]);
    story.half_closes(&ann);
    story.wait(5_000);
    assert_eq!(
        ann.hears(),
        ["Draining", "InternalError", "closed: HalfClosed"]
    );
    story.run();
    assert_eq!(story.machine.server().waiting, 0);
}

#[test]
fn close_session_is_never_withdrawn() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&ann, [put("x"), RESERVE]);
    story.run();
    story.hangs_up(&ann);
    story.say(&bob, [put("y")]);
    story.wait(60_000);
    assert_eq!(bob.hears(), ["Draining"]);
    story.run();
    assert_eq!(story.machine.server().ready, 1, "Ann's hold returned");
}

#[test]
fn a_wait_that_may_have_begun_is_unknown_too() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(
        &ann,
        [Call::Reserve {
            timeout: Some(Seconds(1)),
        }],
    );
    story.hand();
    story.wait(5_000);
    assert_eq!(ann.hears(), ["InternalError", "closed: OutcomeUnknown"]);
    story.run();
    assert_eq!(
        story.machine.server().waiting,
        0,
        "and its session ends behind it"
    );
}

#[test]
fn commands_that_travel_behind_a_reserve_stay_in_its_batch_when_others_are_taken_back() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&bob, [put("old")]);
    story.wait(1_000);
    story.say(&ann, [Call::Watch(tube("t")), RESERVE, put("behind")]);
    story.wait(4_000);
    assert_eq!(bob.hears(), ["Draining"]);
    story.run();
    assert_eq!(ann.hears(), ["watching 2"]);
    story.say(&bob, [put("x")]);
    story.run();
    assert_eq!(ann.hears(), ["reserved 1", "inserted 2"]);
}
