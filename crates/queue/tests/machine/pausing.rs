//! pause-tube.

use trellis_queue::Answer;
use trellis_types::Seconds;

use crate::story::{Story, names};

/// 101.
#[test]
fn an_unknown_tube_cannot_be_paused_and_is_not_made() {
    let mut story = Story::begins();
    let ann = story.person();
    assert_eq!(story.pause(ann, "mail", 5), Answer::NotFound);
    assert!(!story.exists("mail"));
}

/// 102.
#[test]
fn a_paused_tube_keeps_its_jobs_until_the_pause_is_over() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    story.uses(ann, "mail");
    story.waits(bob, &["mail"]);
    assert_eq!(story.pause(ann, "mail", 2), Answer::Paused);
    let letter = story.at_ms(1).put(ann, "mail");
    assert_eq!((story.gets(bob), story.state(letter)), (None, "ready"));
    let tube = story.tube("mail");
    assert_eq!((tube.pause, tube.pause_left_seconds), (Seconds(2), 1));
    assert_eq!((tube.ready, tube.pauses), (1, 1));

    story.at_ms(1_999).tick();
    assert_eq!(story.gets(bob), None);
    story.at_ms(2_000).tick();
    assert_eq!(story.gets(bob), Some(letter));
    let tube = story.tube("mail");
    assert_eq!((tube.pause, tube.pause_left_seconds), (Seconds(0), 0));
}

/// 102: everybody who waited is served, best job first.
#[test]
fn at_the_end_of_a_pause_all_that_wait_are_served() {
    let mut story = Story::begins();
    let (ann, bob, cid) = (story.person(), story.person(), story.person());
    story.uses(ann, "mail");
    story.pause(ann, "mail", 2);
    story.waits(bob, &["mail"]);
    story.waits(cid, &["mail"]);
    let dull = story.put_as(ann, "mail", 9, 0, 60);
    let urgent = story.put_as(ann, "mail", 1, 0, 60);
    let left = story.put_as(ann, "mail", 10, 0, 60);
    story.at(2).tick();
    assert_eq!(
        (story.gets(bob), story.gets(cid)),
        (Some(urgent), Some(dull))
    );
    assert_eq!(story.state(left), "ready");
}

/// 103.
#[test]
fn a_later_pause_replaces_the_earlier_one_and_0_ends_it_at_once() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let letter = story.put(ann, "mail");
    story.pause(ann, "mail", 1);
    story.pause(ann, "mail", 10);
    story.waits(bob, &["mail"]);
    story.at(5).tick();
    assert_eq!(story.gets(bob), None, "the longer one counts");
    story.pause(ann, "mail", 2);
    story.at_ms(6_999).tick();
    assert_eq!(story.gets(bob), None);
    assert_eq!(story.pause(ann, "mail", 0), Answer::Paused);
    assert_eq!(story.gets(bob), Some(letter));
    assert_eq!(story.tube("mail").pauses, 4);
    assert_eq!(story.tube("mail").pause, Seconds(0));
}

/// 104.
#[test]
fn a_pause_blocks_reserve_and_nothing_else() {
    let mut story = Story::begins();
    let ann = story.person();
    let (first, second) = (story.put(ann, "mail"), story.put(ann, "mail"));
    story.pause(ann, "mail", 60);
    assert_eq!(story.poll(ann, &["mail"]), Answer::TimedOut);
    assert!(!story.machine.would_reserve(&names(&["mail"])));
    assert!(matches!(
        story.reserves_job(ann, first),
        Answer::Reserved { .. }
    ));
    assert_eq!(story.bury(ann, first, 0), Answer::Buried);
    assert_eq!(story.kick(ann, "mail", 1), Answer::Kicked(1));
    assert_eq!(story.delete(ann, first), Answer::Deleted);
    assert_eq!(story.delete(ann, second), Answer::Deleted);
}

/// 105.
#[test]
fn delays_and_ttrs_run_on_in_a_paused_tube() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let delayed = story.put_as(ann, "mail", 0, 1, 60);
    let held = story.put_as(ann, "mail", 0, 0, 1);
    story.reserves_job(ann, held);
    story.pause(ann, "mail", 60);
    story.waits(bob, &["mail"]);
    story.at(2).tick();
    assert_eq!(
        (story.state(delayed), story.state(held)),
        ("ready", "ready")
    );
    assert_eq!(story.gets(bob), None);
}

/// 106.
#[test]
fn with_one_tube_paused_the_others_are_served() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let better = story.put_as(ann, "a", 0, 0, 60);
    let worse = story.put_as(ann, "b", 9, 0, 60);
    story.pause(ann, "a", 60);
    assert_eq!(story.takes(ann, &["a", "b"]), Some(worse));
    story.release(ann, worse, 9, 0);
    story.pause(ann, "b", 30);
    story.waits(bob, &["a", "b"]);
    story.at(30).tick();
    assert_eq!(story.gets(bob), Some(worse), "its pause ended first");
    story.at(60).tick();
    assert_eq!(story.state(better), "ready");
}

/// 107, 114.
#[test]
fn a_pause_dies_with_its_tube() {
    let mut story = Story::begins();
    let ann = story.person();
    let letter = story.put(ann, "mail");
    story.pause(ann, "mail", 60);
    story.delete(ann, letter);
    assert!(!story.exists("mail"));
    let letter = story.put(ann, "mail");
    assert_eq!(story.takes(ann, &["mail"]), Some(letter));
    let tube = story.tube("mail");
    assert_eq!((tube.pauses, tube.deletes, tube.total_jobs), (0, 0, 1));
    story.at(60).tick();
    assert_eq!(story.tube("mail").pauses, 0);
}
