//! DEADLINE_SOON.

use trellis_queue::{Answer, Verdict};

use crate::story::{Story, reserve, reserve_within};

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
