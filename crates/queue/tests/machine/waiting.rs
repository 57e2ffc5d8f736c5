//! Waiting for a job, and the three ways in which it ends.

use trellis_queue::{Answer, Command, Event, Fate, LeaderCommand, Verdict};

use crate::story::{Story, origin, put, reserve, reserve_within};

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

/// 68: also a hold that was begun by reserve-job counts.
#[test]
fn a_worker_who_waits_while_holding_is_warned_one_second_before_the_deadline() {
    let mut story = Story::begins();
    let ann = story.person();
    let letter = story.put_as(ann, "mail", 0, 0, 3);
    story.reserves_job(ann, letter);
    story.waits(ann, &["mail"]);
    story.at_ms(1_999).tick();
    assert_eq!(story.hears(ann), []);
    story.at_ms(2_000).tick();
    assert_eq!(story.hears(ann), [Answer::DeadlineSoon]);
    assert_eq!(story.state(letter), "reserved", "a warning changes no job");
    assert_eq!(story.job(letter).timeouts, 0);
}

/// 69.
#[test]
fn inside_the_margin_a_ready_job_beats_the_warning() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    story.put_as(ann, "mail", 0, 0, 3);
    story.takes(ann, &["mail"]);
    let another = story.put(bob, "mail");
    assert_eq!(story.at(2).takes(ann, &["mail"]), Some(another));
    assert_eq!(story.poll(ann, &["mail"]), Answer::DeadlineSoon);
    let soon = Verdict::Answer(Answer::DeadlineSoon);
    assert_eq!(story.says(ann, reserve(&["mail"])), soon);
    assert_eq!(story.says(ann, reserve_within(&["mail"], 9)), soon);
    assert_eq!(story.server().waiting, 0);
}

/// 70.
#[test]
fn a_job_with_a_ttr_of_1_is_inside_the_margin_from_the_first_instant() {
    let mut story = Story::begins();
    let ann = story.person();
    let letter = story.put_as(ann, "mail", 0, 0, 1);
    story.takes(ann, &["mail"]);
    assert_eq!(story.poll(ann, &["mail"]), Answer::DeadlineSoon);
    story.touch(ann, letter);
    assert_eq!(story.poll(ann, &["mail"]), Answer::DeadlineSoon);
}

/// 71.
#[test]
fn if_margin_and_timeout_fall_on_one_instant_the_warning_wins() {
    let mut story = Story::begins();
    let ann = story.person();
    story.put_as(ann, "mail", 0, 0, 3);
    story.takes(ann, &["mail"]);
    story.waits_for(ann, &["mail"], 2);
    story.at(2).tick();
    assert_eq!(story.hears(ann), [Answer::DeadlineSoon]);
}

/// And if the time-out comes first it is the answer.
#[test]
fn a_timeout_before_the_margin_is_a_timeout() {
    let mut story = Story::begins();
    let ann = story.person();
    story.put_as(ann, "mail", 0, 0, 4);
    story.takes(ann, &["mail"]);
    story.waits_for(ann, &["mail"], 2);
    story.at(60).tick();
    assert_eq!(
        story.hears(ann),
        [Answer::TimedOut],
        "even if the machine sleeps through both"
    );
}

/// 72.
#[test]
fn of_several_holds_the_earliest_deadline_counts_and_a_touch_lifts_it() {
    let mut story = Story::begins();
    let ann = story.person();
    story.put_as(ann, "mail", 0, 0, 100);
    let pressing = story.put_as(ann, "mail", 1, 0, 2);
    story.takes(ann, &["mail"]);
    story.takes(ann, &["mail"]);
    story.waits(ann, &["mail"]);
    story.at(1).tick();
    assert_eq!(story.hears(ann), [Answer::DeadlineSoon]);
    assert_eq!(story.touch(ann, pressing), Answer::Touched);
    story.at_ms(1_999);
    assert_eq!(story.poll(ann, &["mail"]), Answer::TimedOut);
}

/// 73: the warning is about what one holds, not about what one watches.
#[test]
fn the_warning_does_not_depend_on_the_watch_list() {
    let mut story = Story::begins();
    let ann = story.person();
    story.put_as(ann, "mail", 0, 0, 2);
    story.takes(ann, &["mail"]);
    story.waits(ann, &["fax"]);
    story.at(1).tick();
    assert_eq!(story.hears(ann), [Answer::DeadlineSoon]);
}

/// 74.
#[test]
fn a_ready_job_in_a_paused_tube_does_not_keep_the_warning_away() {
    let mut story = Story::begins();
    let ann = story.person();
    story.put_as(ann, "mail", 0, 0, 1);
    story.takes(ann, &["mail"]);
    story.put(ann, "fax");
    story.pause(ann, "fax", 60);
    assert_eq!(story.poll(ann, &["mail", "fax"]), Answer::DeadlineSoon);
}

/// 75.
#[test]
fn reserve_job_is_never_answered_with_the_warning() {
    let mut story = Story::begins();
    let ann = story.person();
    story.put_as(ann, "mail", 0, 0, 1);
    story.takes(ann, &["mail"]);
    let another = story.put(ann, "mail");
    assert!(matches!(
        story.reserves_job(ann, another),
        Answer::Reserved { .. }
    ));
}

/// 76.
#[test]
fn nothing_follows_a_warning() {
    let mut story = Story::begins();
    let ann = story.person();
    story.put_as(ann, "mail", 0, 0, 3);
    story.takes(ann, &["mail"]);
    story.waits_for(ann, &["fax"], 3);
    story.at(2).tick();
    assert_eq!(story.hears(ann), [Answer::DeadlineSoon]);
    story.at(30).tick();
    assert_eq!(story.hears(ann), []);
}

/// 140, not copied: after a stall past margin and deadline the holder gets the warning, and then
/// the expired job is ready; it is not silently his again.
#[test]
fn after_a_stall_nobody_is_warned_about_a_job_that_was_given_to_him_again() {
    let mut story = Story::begins();
    let ann = story.person();
    let letter = story.put_as(ann, "mail", 0, 0, 3);
    story.takes(ann, &["mail"]);
    story.waits(ann, &["mail"]);
    story.at(60).tick();
    assert_eq!(story.hears(ann), [Answer::DeadlineSoon]);
    assert_eq!(story.state(letter), "ready");
    assert_eq!(
        (story.job(letter).reserves, story.job(letter).timeouts),
        (1, 1)
    );
    assert_eq!(
        story.takes(ann, &["mail"]),
        Some(letter),
        "she may take it again"
    );
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

/// 116, 117.
#[test]
fn a_disconnect_returns_the_holds_in_order_of_reservation() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let dull = story.put_as(ann, "mail", 9, 0, 60);
    let urgent = story.put_as(ann, "mail", 1, 0, 60);
    story.reserves_job(ann, dull);
    story.reserves_job(ann, urgent);
    story.touch(ann, dull);
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
