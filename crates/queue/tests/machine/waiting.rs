//! Waiting for a job, and the three ways in which it ends.

use trellis_queue::{Answer, Command, Event, Fate, Verdict};

use crate::story::{Story, origin, put};

/// 58.
#[test]
fn a_reserve_with_a_timeout_answers_after_that_time_and_one_of_0_at_once() {
    let mut story = Story::begins();
    let ann = story.person();
    assert_eq!(story.poll(ann, &["mail"]), Answer::TimedOut);
    story.at_ms(300).waits_for(ann, &["mail"], 1);
    story.at_ms(1_299).tick();
    assert_eq!(story.hears(ann), []);
    story.at_ms(1_300).tick();
    assert_eq!(story.hears(ann), [Answer::TimedOut]);
    assert_eq!(story.server().waiting, 0);
}

/// 59: put and delivery are one step; the put's answer stands before the delivery.
#[test]
fn a_put_goes_straight_to_a_waiting_worker() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person_at(origin(2, 1)));
    story.waits(bob, &["mail"]);
    let letter = story.put(ann, "mail");
    let given = Answer::Reserved {
        job: letter,
        attempt: 1,
        body_bytes: 4,
    };
    assert_eq!(
        story.last.events,
        [
            Event::Batch {
                origin: ann.origin,
                seq: 1,
                fate: Fate::Applied(vec![Verdict::Answer(Answer::Inserted(letter))]),
            },
            Event::Deferred {
                session: bob,
                answer: given
            },
        ]
    );
    let tube = story.tube("mail");
    assert_eq!((tube.ready, tube.reserved, tube.waiting), (0, 1, 0));
}

/// 60.
#[test]
fn who_got_a_job_is_not_told_later_that_time_is_up() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    story.waits_for(bob, &["mail"], 1);
    let letter = story.put(ann, "mail");
    assert_eq!(story.gets(bob), Some(letter));
    story.at(30).tick();
    assert_eq!(story.hears(bob), []);
}

/// 61, 119.
#[test]
fn a_worker_who_waits_on_two_tubes_leaves_both_lines_when_served() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    for tube in ["a", "b", "c"] {
        story.uses(ann, tube);
    }
    story.waits(bob, &["a", "b", "c"]);
    assert_eq!(
        ["a", "b", "c"].map(|tube| story.tube(tube).waiting),
        [1, 1, 1]
    );
    assert_eq!(story.server().waiting, 1);
    let first = story.put(ann, "b");
    assert_eq!(story.gets(bob), Some(first));
    assert_eq!(
        ["a", "b", "c"].map(|tube| story.tube(tube).waiting),
        [0, 0, 0]
    );
    let second = story.put(ann, "a");
    assert_eq!((story.gets(bob), story.state(second)), (None, "ready"));
}

/// 62 to 64 in our own way: first come, first served, over all nodes (docs/COMPAT.md).
#[test]
fn waiters_are_served_in_the_order_in_which_they_came() {
    let mut story = Story::begins();
    let putter = story.person();
    let workers: Vec<_> = (0..6)
        .map(|i| story.person_at(origin(1 + i % 2, 1)))
        .collect();
    for worker in &workers {
        story.waits(*worker, &["mail"]);
    }
    for worker in &workers {
        let job = story.put(putter, "mail");
        assert_eq!(story.gets(*worker), Some(job));
    }
}

/// 65, 66: EndWait is what a node says when its client has half-closed.
#[test]
fn a_half_close_ends_a_wait_with_timed_out_and_does_nothing_else() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    story.waits(ann, &["mail"]);
    assert_eq!(story.says(ann, Command::EndWait), Verdict::Silent);
    assert_eq!(story.hears(ann), [Answer::TimedOut]);
    assert_eq!(story.says(ann, Command::EndWait), Verdict::Silent);
    assert_eq!(story.hears(ann), [], "nothing waits any more");
    let letter = story.put(bob, "mail");
    assert_eq!(story.state(letter), "ready");
}

/// The TTR of what is handed out after a stall begins when it is handed out.
#[test]
fn a_stall_eats_no_workers_time() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let letter = story.put_as(ann, "mail", 0, 0, 10);
    story.takes(ann, &["mail"]);
    story.waits(bob, &["mail"]);
    story.at(3_600).tick();
    assert_eq!(story.gets(bob), Some(letter));
    assert_eq!(story.job(letter).time_left_seconds, 10);
    assert_eq!(story.job(letter).timeouts, 1);
}

/// Due events come in order of their moment: a wait that ended first gets nothing of what became
/// ready later, though both are learnt in one step.
#[test]
fn a_wait_that_ended_before_the_job_was_ready_gets_nothing() {
    let mut story = Story::begins();
    let (ann, bob, cid) = (story.person(), story.person(), story.person());
    story.waits_for(bob, &["mail"], 1);
    story.waits_for(cid, &["mail"], 3);
    let letter = story.put_as(ann, "mail", 0, 2, 60);
    story.at(10).tick();
    assert_eq!(story.hears(bob), [Answer::TimedOut]);
    assert_eq!(story.gets(cid), Some(letter));
}

/// At one moment: delayed → ready, pause over, TTR expired, margin, wait timed out. So a job that
/// matures in the very millisecond in which the patience ends is delivered.
#[test]
fn at_one_moment_jobs_become_ready_before_waits_end() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    story.waits_for(bob, &["mail"], 2);
    let letter = story.put_as(ann, "mail", 0, 2, 60);
    story.at(2).tick();
    assert_eq!(story.gets(bob), Some(letter));
}

/// The same moment again, with all kinds that hand out jobs.
#[test]
fn at_one_moment_the_delayed_job_comes_before_the_end_of_a_pause_and_that_before_a_ttr() {
    let mut story = Story::begins();
    let (ann, bob, cid, dan) = (
        story.person(),
        story.person(),
        story.person(),
        story.person(),
    );
    let held = story.at_ms(0).put_as(ann, "held", 0, 0, 1);
    story.takes(ann, &["held"]);
    let paused = story.at_ms(1).put(ann, "paused");
    story.pause(ann, "paused", 1);
    let delayed = story.put_as(ann, "delayed", 9, 1, 60);
    for worker in [bob, cid, dan] {
        story.waits(worker, &["held", "paused", "delayed"]);
    }
    story.at_ms(1_001).tick();
    assert_eq!(
        [bob, cid, dan].map(|who| story.gets(who)),
        [delayed, paused, held].map(Some)
    );
}

/// And a TTR that is over at the moment at which somebody's patience ends is in time for him.
#[test]
fn at_one_moment_a_ttr_runs_out_before_a_wait_times_out() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let letter = story.put_as(ann, "mail", 0, 0, 1);
    story.takes(ann, &["mail"]);
    story.at_ms(1).waits_for(bob, &["mail"], 1);
    story.at_ms(1_001).tick();
    assert_eq!(story.gets(bob), Some(letter));
}

/// 69 for one who waits: the job that matures with the margin beats the warning.
#[test]
fn at_one_moment_a_job_becomes_ready_before_the_warning() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    story.put_as(ann, "mail", 0, 0, 3);
    story.takes(ann, &["mail"]);
    let letter = story.put_as(bob, "mail", 0, 2, 60);
    story.waits(ann, &["mail"]);
    story.at(2).tick();
    assert_eq!(story.gets(ann), Some(letter));
}

/// 116, 117.
#[test]
fn a_disconnect_returns_the_holds_in_order_of_reservation() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let dull = story.put_as(ann, "mail", 9, 0, 60);
    let urgent = story.put_as(ann, "mail", 1, 0, 60);
    story.reserves_job(ann, dull);
    story.reserves_job(ann, urgent);
    story.at(1).touch(ann, dull);
    story.waits(bob, &["mail"]);
    story.leaves(ann);
    assert_eq!(
        story.gets(bob),
        Some(dull),
        "the first reserved, not the best"
    );
    let view = story.job(urgent);
    assert_eq!((view.state, view.releases, view.timeouts), ("ready", 0, 0));
}

/// 118: and what one leaves behind is not handed to one's own wait.
#[test]
fn when_a_waiting_holder_leaves_the_wait_goes_before_the_holds_return() {
    let mut story = Story::begins();
    let ann = story.person();
    let letter = story.put(ann, "mail");
    story.takes(ann, &["mail"]);
    story.waits(ann, &["mail"]);
    assert_eq!(story.server().waiting, 1);
    story.leaves(ann);
    assert_eq!(story.server().waiting, 0);
    assert_eq!(story.state(letter), "ready");
    assert_eq!((story.job(letter).reserves, story.hears(ann)), (1, vec![]));
}

/// One wait per name, even if a watch list says it twice.
#[test]
fn watching_a_tube_twice_is_waiting_once() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    story.uses(ann, "mail");
    story.waits(bob, &["mail", "mail"]);
    assert_eq!(story.tube("mail").waiting, 1);
    let letter = story.put(ann, "mail");
    assert_eq!(story.gets(bob), Some(letter));
    assert_eq!(story.tube("mail").waiting, 0);
}

/// Nobody can send an empty watch list; if one comes it is nobody's job that it waits for.
#[test]
fn a_reserve_of_no_tube_waits_for_nothing() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    assert_eq!(story.poll(bob, &[]), Answer::TimedOut);
    story.waits_for(bob, &[], 1);
    story.batch(vec![(ann, put("default", 0, 0, 1, ""))]);
    story.at(1).tick();
    assert_eq!(story.hears(bob), [Answer::TimedOut]);
}
