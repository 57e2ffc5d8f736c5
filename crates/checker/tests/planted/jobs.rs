//! One job: lost, back again, held twice, held too short or too long, settled by a stranger, looked
//! at too late.

use trellis_checker::{
    Invariant::*,
    history::{JobState, Reply},
};

use crate::story::*;

#[test]
fn a_lost_job() {
    let put_only = || {
        let mut story = Story::new();
        story.told(1, 10, 20, put("a", 1, 0, 10), inserted(1));
        story
    };
    put_only().finally("n1", 900, vec![]).breaks(I1);
    put_only()
        .finally("n1", 900, vec![stats(1, JobState::Ready, 0, 0, 0)])
        .is_sound();
    // Whoever deleted it without having been told may have deleted it.
    put_only()
        .never_told(2, 100, delete(1))
        .finally("n1", 900, vec![])
        .is_sound();
}

#[test]
fn a_job_lost_in_the_hands_of_a_worker_that_died() {
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(2, 30, 40, reserve(0), reserved(1, "a"))
        .closed(2, 50)
        .told(3, 100, 110, peek(1), Reply::NotFound)
        .finally("n1", 900, vec![])
        .breaks(I1);
}

#[test]
fn a_put_of_unknown_outcome_may_be_there_or_not() {
    let put_only = || {
        let mut story = Story::new();
        story.never_told(1, 10, put("a", 1, 0, 10));
        story
    };
    put_only().finally("n1", 900, vec![]).is_sound();
    put_only()
        .finally("n1", 900, vec![stats(7, JobState::Ready, 0, 0, 0)])
        .is_sound();
    put_only()
        .told(2, 500, 510, reserve(0), reserved(7, "a"))
        .told(2, 520, 530, delete(7), Reply::Deleted)
        .finally("n1", 900, vec![])
        .is_sound();
    // Once it has been seen it must not be lost.
    put_only()
        .told(2, 500, 510, reserve(0), reserved(7, "a"))
        .told(2, 520, 530, release(7, 1, 0), Reply::Released)
        .finally("n1", 900, vec![])
        .breaks(I1);
}

#[test]
fn a_deleted_job_comes_back() {
    let deleted = || {
        let mut story = Story::new();
        story
            .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
            .told(2, 30, 40, reserve(0), reserved(1, "a"))
            .told(2, 50, 60, delete(1), Reply::Deleted);
        story
    };
    deleted().finally("n1", 900, vec![]).is_sound();
    deleted()
        .told(3, 100, 110, reserve(0), reserved(1, "a"))
        .breaks(I2);
    deleted()
        .finally("n1", 900, vec![stats(1, JobState::Ready, 0, 0, 1)])
        .breaks(I2);
    // An answer under way at the same time proves nothing.
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(2, 30, 60, delete(1), Reply::Deleted)
        .told(3, 40, 70, peek(1), found(1, "a"))
        .is_sound();
}

#[test]
fn two_hold_one_job() {
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(2, 30, 40, reserve(0), reserved(1, "a"))
        .told(3, 100, 110, reserve(0), reserved(1, "a"))
        .told(2, 200, 210, touch(1), Reply::Touched)
        .told(3, 300, 310, delete(1), Reply::Deleted)
        .breaks(I3);
    // The first one says nothing any more: it was robbed all the same.
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(2, 30, 40, reserve(0), reserved(1, "a"))
        .told(3, 100, 110, reserve(0), reserved(1, "a"))
        .told(2, 200, 210, put("b", 1, 0, 10), inserted(2))
        .breaks(I3);
    // Given back in between, or its holder gone, it may go to the next.
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(2, 30, 40, reserve(0), reserved(1, "a"))
        .told(2, 50, 60, release(1, 1, 0), Reply::Released)
        .told(3, 55, 70, reserve(0), reserved(1, "a"))
        .closed(3, 100)
        .told(1, 90, 110, reserve(2), reserved(1, "a"))
        .is_sound();
}

#[test]
fn a_hold_ends_too_early() {
    let held = |taken: u64| {
        let mut story = Story::new();
        story
            .told(1, 10, 20, put("a", 1, 0, 2), inserted(1))
            .told(2, 30, 40, reserve(0), reserved(1, "a"))
            .told(3, taken - 10, taken, reserve(0), reserved(1, "a"))
            .told(2, 3_000, 3_010, touch(1), Reply::NotFound);
        story
    };
    held(1_400).breaks(I5);
    held(2_050).is_sound();
    // A hold that its holder loses at once.
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(2, 30, 40, reserve(0), reserved(1, "a"))
        .told(2, 100, 110, release(1, 1, 0), Reply::NotFound)
        .breaks(I5);
}

#[test]
fn a_touched_hold_is_as_long_as_a_new_one() {
    let touched = |taken: u64| {
        let mut story = Story::new();
        story
            .told(1, 10, 20, put("a", 1, 0, 2), inserted(1))
            .told(2, 30, 40, reserve(0), reserved(1, "a"))
            .told(2, 1_500, 1_510, touch(1), Reply::Touched)
            .told(3, taken - 10, taken, reserve(0), reserved(1, "a"));
        story
    };
    touched(2_900).breaks(I5);
    touched(3_520).is_sound();
}

#[test]
fn a_hold_lasts_too_long() {
    let touched_at = |at: u64| {
        let mut story = Story::new();
        story
            .told(1, 10, 20, put("a", 1, 0, 2), inserted(1))
            .told(2, 30, 40, reserve(0), reserved(1, "a"))
            .told(2, at, at + 10, touch(1), Reply::Touched);
        story
    };
    touched_at(2_900).breaks(I5);
    touched_at(2_000).is_sound();
}

#[test]
fn one_who_no_longer_holds_it_changes_a_job() {
    let settled = |call, reply| {
        let mut story = Story::new();
        story
            .told(1, 10, 20, put("a", 1, 0, 1), inserted(1))
            .told(2, 30, 40, reserve(0), reserved(1, "a"))
            .told(3, 1_200, 1_300, reserve(0), reserved(1, "a"))
            .told(2, 1_400, 1_410, call, reply)
            .told(3, 1_500, 1_510, touch(1), Reply::NotFound);
        story
    };
    settled(release(1, 1, 0), Reply::Released).breaks(I4);
    settled(delete(1), Reply::Deleted).breaks(I4);
    settled(bury(1), Reply::Buried).breaks(I4);
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 1), inserted(1))
        .told(2, 30, 40, reserve(0), reserved(1, "a"))
        .told(3, 1_200, 1_300, reserve(0), reserved(1, "a"))
        .told(2, 1_400, 1_410, delete(1), Reply::NotFound)
        .told(3, 1_500, 1_510, delete(1), Reply::Deleted)
        .is_sound();
}

#[test]
fn a_delay_is_cut_short_or_never_ends() {
    let taken_at = |at: u64| {
        let mut story = Story::new();
        story.told(1, 10, 20, put("a", 1, 2, 10), inserted(1)).told(
            2,
            at - 10,
            at,
            reserve(0),
            reserved(1, "a"),
        );
        story
    };
    taken_at(1_500).breaks(I9);
    taken_at(2_020).is_sound();
    let seen_at = |at: u64| {
        let mut story = Story::new();
        let mut seen = stats(1, JobState::Delayed, at / 1_000, 0, 0);
        seen.delay = trellis_types::Seconds(2);
        story.told(1, 10, 20, put("a", 1, 2, 10), inserted(1)).told(
            2,
            at - 10,
            at,
            stats_job(1),
            Reply::JobStats(seen),
        );
        story
    };
    seen_at(3_900).breaks(I9);
    seen_at(2_100).is_sound();
}

#[test]
fn a_look_shows_what_was_over() {
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(2, 100, 110, peek(1), Reply::NotFound)
        .told(2, 200, 210, reserve(0), reserved(1, "a"))
        .breaks(I17);
    let mut story = Story::new();
    let ready = Reply::JobStats(stats(1, JobState::Ready, 0, 0, 0));
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(2, 100, 110, reserve(0), reserved(1, "a"))
        .told(3, 200, 210, stats_job(1), ready)
        .told(2, 300, 310, delete(1), Reply::Deleted)
        .breaks(I17);
    // While the put is under way, both are true.
    let mut story = Story::new();
    story
        .told(1, 10, 40, put("a", 1, 0, 10), inserted(1))
        .told(2, 20, 30, peek(1), Reply::NotFound)
        .told(2, 35, 45, peek(1), found(1, "a"))
        .is_sound();
    // But not one after the other, the wrong way round.
    let mut story = Story::new();
    story
        .told(1, 10, 60, put("a", 1, 0, 10), inserted(1))
        .told(2, 20, 30, peek(1), found(1, "a"))
        .told(3, 40, 50, peek(1), Reply::NotFound)
        .breaks(I17);
}

#[test]
fn a_job_counts_wrongly() {
    let counted = |reserves| {
        let mut story = Story::new();
        let seen = Reply::JobStats(stats(1, JobState::Reserved, 0, 9, reserves));
        story
            .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
            .told(2, 100, 110, reserve(0), reserved(1, "a"))
            .told(3, 200, 210, stats_job(1), seen);
        story
    };
    counted(2).breaks(I10);
    counted(1).is_sound();
    // A reserve that nobody heard of explains one more: it had it, and went.
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .never_told(3, 30, reserve(0))
        .told(2, 100, 110, reserve(0), reserved(1, "a"))
        .told(
            1,
            200,
            210,
            stats_job(1),
            Reply::JobStats(stats(1, JobState::Reserved, 0, 9, 2)),
        )
        .is_sound();
}

#[test]
fn a_session_on_a_node_in_trouble_may_have_ended_early() {
    let robbed = |trouble: bool| {
        let mut story = Story::new();
        if trouble {
            story.fault(50, 400);
        }
        story
            .told(3, 10, 20, put("a", 1, 0, 60), inserted(1))
            .told(1, 30, 40, reserve(0), reserved(1, "a"))
            .told(3, 5_000, 5_010, reserve(0), reserved(1, "a"))
            .closed(1, 6_000);
        story
    };
    robbed(true).is_sound();
    robbed(false).breaks(I3);
}
