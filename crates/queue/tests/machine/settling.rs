//! How a hold ends, and what comes after: release, burial, kick, delete.

use trellis_queue::{Answer, Command};
use trellis_types::{JobId, Priority, Seconds};

use crate::story::Story;

/// 83, 86.
#[test]
fn a_release_sets_priority_and_delay() {
    let mut story = Story::begins();
    let ann = story.person();
    let letter = story.put(ann, "mail");
    story.takes(ann, &["mail"]);
    assert_eq!(story.release(ann, letter, 42, 5), Answer::Released);
    let view = story.at_ms(1).job(letter);
    assert_eq!((view.state, view.time_left_seconds), ("delayed", 4));
    assert_eq!(
        (view.priority, view.delay, view.releases),
        (Priority(42), Seconds(5), 1)
    );

    story.at(5).tick();
    assert_eq!(story.takes(ann, &["mail"]), Some(letter));
    assert_eq!(
        story.job(letter).delay,
        Seconds(5),
        "what was last asked for"
    );
    story.release(ann, letter, 42, 0);
    assert_eq!(story.job(letter).delay, Seconds(0), "and that was 0");
}

/// 84.
#[test]
fn a_release_without_delay_goes_to_a_waiting_worker_at_once() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let letter = story.put(ann, "mail");
    story.takes(ann, &["mail"]);
    story.waits(bob, &["mail"]);
    story.release(ann, letter, 3, 0);
    assert_eq!(story.gets(bob), Some(letter));
    assert_eq!(story.job(letter).priority, Priority(3));
}

/// 85.
#[test]
fn only_the_holder_can_release_bury_or_touch() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let ready = story.put(ann, "mail");
    let delayed = story.put_as(ann, "mail", 0, 9, 60);
    let buried = story.put(ann, "mail");
    story.reserves_job(ann, buried);
    story.bury(ann, buried, 0);
    let held = story.put(ann, "mail");
    story.reserves_job(bob, held);
    for job in [ready, delayed, buried, held] {
        let before = story.job(job);
        assert_eq!(story.release(ann, job, 1, 1), Answer::NotFound);
        assert_eq!(story.bury(ann, job, 1), Answer::NotFound);
        assert_eq!(story.touch(ann, job), Answer::NotFound);
        assert_eq!(story.job(job), before);
    }
}

/// 87.
#[test]
fn buried_jobs_queue_in_the_order_of_burial() {
    let mut story = Story::begins();
    let ann = story.person();
    let jobs: Vec<JobId> = (0..4)
        .map(|priority| story.put_as(ann, "mail", priority, 0, 60))
        .collect();
    let order = [jobs[1], jobs[3], jobs[0], jobs[2]];
    for job in order {
        story.reserves_job(ann, job);
        assert_eq!(story.bury(ann, job, 0), Answer::Buried);
    }
    assert_eq!(
        story.machine.peek_buried(&crate::story::name("mail")),
        Some(order[0])
    );
    assert_eq!(story.kick(ann, "mail", 2), Answer::Kicked(2));
    assert_eq!(
        order.map(|job| story.state(job)),
        ["ready", "ready", "buried", "buried"]
    );
    assert_eq!(story.job(order[0]).kicks, 1);
}

/// 88.
#[test]
fn a_burial_replaces_the_priority_and_leaves_the_delay() {
    let mut story = Story::begins();
    let ann = story.person();
    let better = story.put_as(ann, "mail", 1, 0, 60);
    let letter = story.put_as(ann, "mail", 0, 3, 60);
    story.at(3).reserves_job(ann, letter);
    story.bury(ann, letter, 7);
    let view = story.job(letter);
    assert_eq!(
        (view.priority, view.delay, view.buries),
        (Priority(7), Seconds(3), 1)
    );
    story.kick(ann, "mail", 1);
    assert_eq!(
        story.takes(ann, &["mail"]),
        Some(better),
        "the new priority decides"
    );
}

/// What is carried out in portions must not go on with delayed jobs behind the last buried one.
#[test]
fn a_portion_of_a_kick_looks_at_one_kind_only() {
    let mut story = Story::begins();
    let ann = story.person();
    let late = story.put_as(ann, "mail", 0, 9, 60);
    let laid = story.put(ann, "mail");
    story.reserves_job(ann, laid);
    story.bury(ann, laid, 0);
    let portion = |story: &mut Story, delayed| {
        let tube = crate::story::name("mail");
        story.answer(
            ann,
            Command::KickPortion {
                tube,
                bound: 9,
                delayed,
            },
        )
    };
    let moved = |count, left| Answer::KickedPortion { count, left };
    assert_eq!(portion(&mut story, false), moved(1, 0));
    assert_eq!(portion(&mut story, false), moved(0, 0));
    assert_eq!((story.state(laid), story.state(late)), ("ready", "delayed"));
    assert_eq!(portion(&mut story, true), moved(1, 0));
    assert_eq!(portion(&mut story, true), moved(0, 0));
    assert_eq!(story.state(late), "ready");
}

/// 89, 90.
#[test]
fn a_kick_takes_delayed_jobs_only_when_none_is_buried() {
    let mut story = Story::begins();
    let ann = story.person();
    let later = story.put_as(ann, "mail", 0, 9, 60);
    let sooner = story.put_as(ann, "mail", 5, 3, 60);
    for _ in 0..2 {
        let job = story.put(ann, "mail");
        story.reserves_job(ann, job);
        story.bury(ann, job, 0);
    }
    assert_eq!(story.kick(ann, "mail", 100), Answer::Kicked(2));
    assert_eq!(story.kick(ann, "mail", 1), Answer::Kicked(1));
    assert_eq!(
        (story.state(sooner), story.state(later)),
        ("ready", "delayed")
    );
    assert_eq!(story.kick(ann, "mail", 100), Answer::Kicked(1));
    assert_eq!(story.kick(ann, "mail", 100), Answer::Kicked(0));
    assert_eq!(story.job(sooner).delay, Seconds(3), "the delay field stays");
}

/// 91.
#[test]
fn a_kick_stays_in_its_tube_and_within_its_bound() {
    let mut story = Story::begins();
    let ann = story.person();
    let letter = story.put_as(ann, "mail", 0, 9, 60);
    assert_eq!(
        story.kick(ann, "fax", 100),
        Answer::Kicked(0),
        "no such tube, none made"
    );
    assert!(!story.exists("fax"));
    assert_eq!(story.kick(ann, "default", 100), Answer::Kicked(0));
    assert_eq!(story.kick(ann, "mail", 0), Answer::Kicked(0));
    assert_eq!(story.state(letter), "delayed");
}

/// 92.
#[test]
fn each_kicked_job_is_offered_before_the_next_is_kicked() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let dull = story.put_as(ann, "mail", 9, 0, 60);
    let urgent = story.put_as(ann, "mail", 1, 0, 60);
    for (job, priority) in [(dull, 9), (urgent, 1)] {
        story.reserves_job(ann, job);
        story.bury(ann, job, priority);
    }
    story.waits(bob, &["mail"]);
    assert_eq!(story.kick(ann, "mail", 2), Answer::Kicked(2));
    assert_eq!(story.gets(bob), Some(dull), "the first, not the best");
    assert_eq!(story.state(urgent), "ready");
}

/// 93.
#[test]
fn kick_job_works_on_buried_and_delayed_jobs_only() {
    let mut story = Story::begins();
    let ann = story.person();
    let delayed = story.put_as(ann, "fax", 0, 9, 60);
    let buried = story.put(ann, "mail");
    story.takes(ann, &["mail"]);
    story.bury(ann, buried, 0);
    for job in [delayed, buried] {
        assert_eq!(story.kick_job(ann, job), Answer::KickedJob);
        assert_eq!((story.state(job), story.job(job).kicks), ("ready", 1));
        assert_eq!(story.kick_job(ann, job), Answer::NotFound, "it is ready");
    }
    story.takes(ann, &["mail"]);
    assert_eq!(story.kick_job(ann, buried), Answer::NotFound, "it is held");
}

/// 94, 95.
#[test]
fn anybody_may_delete_what_nobody_holds() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    story.uses(ann, "mail");
    let ready = story.put(ann, "mail");
    let delayed = story.put_as(ann, "mail", 0, 9, 60);
    let buried = story.put(ann, "mail");
    story.reserves_job(ann, buried);
    story.bury(ann, buried, 0);
    let held = story.put(ann, "mail");
    story.reserves_job(ann, held);
    story.put(ann, "fax");

    assert_eq!(story.delete(bob, held), Answer::NotFound);
    for job in [ready, delayed, buried] {
        assert_eq!(story.delete(bob, job), Answer::Deleted);
        assert_eq!(story.delete(bob, job), Answer::NotFound);
    }
    assert_eq!(story.delete(ann, held), Answer::Deleted);
    assert_eq!(story.tube("mail").deletes, 4);
    assert_eq!(story.tube("fax").deletes, 0);
    assert!(!story.machine.holds_any(ann));
}
