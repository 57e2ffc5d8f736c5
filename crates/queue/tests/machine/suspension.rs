//! Waiters of a node that is away.

use trellis_queue::{Answer, LeaderCommand, Verdict};

use crate::story::{Story, origin, reserve};

/// A dead node's waiters must not swallow jobs.
#[test]
fn the_waiters_of_a_suspended_origin_are_passed_over() {
    let mut story = Story::begins();
    let (ann, bob, cid) = (
        story.person(),
        story.person_at(origin(2, 1)),
        story.person_at(origin(1, 1)),
    );
    story.waits(bob, &["mail"]);
    story.waits(cid, &["mail"]);
    story.leader(LeaderCommand::SuspendOrigin(origin(2, 1)));
    let first = story.put(ann, "mail");
    assert_eq!((story.gets(bob), story.gets(cid)), (None, Some(first)));
    let second = story.put(ann, "mail");
    assert_eq!(story.state(second), "ready");
    story.leader(LeaderCommand::ResumeOrigin(origin(2, 1)));
    assert_eq!(story.gets(bob), Some(second), "offered in the same apply");
}

/// He kept his place in line meanwhile.
#[test]
fn a_resumed_waiter_stands_where_he_stood() {
    let mut story = Story::begins();
    let (ann, bob, cid) = (
        story.person(),
        story.person_at(origin(2, 1)),
        story.person_at(origin(1, 1)),
    );
    story.waits(bob, &["mail"]);
    story.waits(cid, &["mail"]);
    story.leader(LeaderCommand::SuspendOrigin(origin(2, 1)));
    story.leader(LeaderCommand::ResumeOrigin(origin(2, 1)));
    let letter = story.put(ann, "mail");
    assert_eq!(story.gets(bob), Some(letter));
}

/// The best job first, each to the first in line for it.
#[test]
fn a_resume_hands_out_the_best_jobs_of_all_tubes_that_are_waited_for() {
    let mut story = Story::begins();
    let ann = story.person();
    let far = origin(2, 1);
    let (bob, cid) = (story.person_at(far), story.person_at(far));
    story.waits(bob, &["a", "b"]);
    story.waits(cid, &["b", "c"]);
    story.leader(LeaderCommand::SuspendOrigin(far));
    let dull = story.put_as(ann, "a", 9, 0, 60);
    let best = story.put_as(ann, "b", 0, 0, 60);
    let good = story.put_as(ann, "c", 5, 0, 60);
    let other = story.put(ann, "nobody-waits-here");
    story.leader(LeaderCommand::ResumeOrigin(far));
    assert_eq!((story.gets(bob), story.gets(cid)), (Some(best), Some(good)));
    assert_eq!((story.state(dull), story.state(other)), ("ready", "ready"));
}

/// Not only the first job of a tube.
#[test]
fn a_resume_serves_all_that_wait_for_one_tube() {
    let mut story = Story::begins();
    let ann = story.person();
    let far = origin(2, 1);
    let (bob, cid) = (story.person_at(far), story.person_at(far));
    story.waits(bob, &["mail"]);
    story.waits(cid, &["mail"]);
    story.leader(LeaderCommand::SuspendOrigin(far));
    let jobs = [0; 3].map(|_| story.put(ann, "mail"));
    story.leader(LeaderCommand::ResumeOrigin(far));
    assert_eq!(
        [bob, cid].map(|who| story.gets(who)),
        [jobs[0], jobs[1]].map(Some)
    );
    assert_eq!(story.state(jobs[2]), "ready");
}

/// A reserve of a suspended origin parks beside a ready job; a poll is decided as usual.
#[test]
fn a_reserve_of_a_suspended_origin_waits_but_a_poll_takes() {
    let mut story = Story::begins();
    let ann = story.person();
    let far = origin(2, 1);
    let (bob, cid) = (story.person_at(far), story.person_at(far));
    story.leader(LeaderCommand::SuspendOrigin(far));
    let first = story.put(ann, "mail");
    let second = story.put(ann, "mail");
    story.waits(bob, &["mail"]);
    assert_eq!(story.takes(cid, &["mail"]), Some(first));
    assert_eq!(story.state(second), "ready");
    story.leader(LeaderCommand::ResumeOrigin(far));
    assert_eq!(story.gets(bob), Some(second));
}

/// Not even beside a ready job is there anything to wait for: the warning is due at once.
#[test]
fn a_suspended_holder_inside_the_margin_is_warned_at_once() {
    let mut story = Story::begins();
    let ann = story.person();
    let bob = story.person_at(origin(2, 1));
    story.put_as(bob, "mail", 0, 0, 1);
    story.takes(bob, &["mail"]);
    story.put(ann, "mail");
    story.leader(LeaderCommand::SuspendOrigin(origin(2, 1)));
    assert_eq!(
        story.says(bob, reserve(&["mail"])),
        Verdict::Answer(Answer::DeadlineSoon)
    );
}

/// Its due events go on.
#[test]
fn a_suspended_waiter_times_out_and_is_warned_like_any_other() {
    let mut story = Story::begins();
    let far = origin(2, 1);
    let (bob, cid) = (story.person_at(far), story.person_at(far));
    story.put_as(bob, "mail", 0, 0, 3);
    story.takes(bob, &["mail"]);
    story.waits(bob, &["mail"]);
    story.waits_for(cid, &["mail"], 1);
    story.leader(LeaderCommand::SuspendOrigin(far));
    story.at(2).tick();
    assert_eq!(story.hears(cid), [Answer::TimedOut]);
    assert_eq!(story.hears(bob), [Answer::DeadlineSoon]);
}

/// `TIMED_OUT` is said only when nothing is ready: a wait that was passed over is not over yet.
#[test]
fn a_passed_over_waiter_does_not_time_out_beside_a_ready_job() {
    let mut story = Story::begins();
    let ann = story.person();
    let far = origin(2, 1);
    let (bob, cid) = (story.person_at(far), story.person_at(far));
    story.waits_for(bob, &["mail"], 1);
    story.waits_for(cid, &["mail"], 1);
    story.leader(LeaderCommand::SuspendOrigin(far));
    let letter = story.put(ann, "mail");
    story.at(2).tick();
    story.at(3).tick();
    assert_eq!((story.hears(bob), story.hears(cid)), (vec![], vec![]));
    story.leader(LeaderCommand::ResumeOrigin(far));
    assert_eq!(story.gets(bob), Some(letter));
    // Nothing is left for the other, and now that is the truth.
    story.at(4).tick();
    assert_eq!(story.hears(cid), [Answer::TimedOut]);
}

/// Somebody else took it meanwhile.
#[test]
fn a_passed_over_waiter_times_out_once_nothing_is_ready() {
    let mut story = Story::begins();
    let ann = story.person();
    let far = origin(2, 1);
    let bob = story.person_at(far);
    story.waits_for(bob, &["mail"], 1);
    story.leader(LeaderCommand::SuspendOrigin(far));
    let letter = story.put(ann, "mail");
    story.at(2).tick();
    assert_eq!(story.takes(ann, &["mail"]), Some(letter));
    story.at(3).tick();
    assert_eq!(story.hears(bob), [Answer::TimedOut]);
}
