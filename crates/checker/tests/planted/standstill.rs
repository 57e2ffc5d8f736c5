//! The log stands still for longer than a change of leaders takes: what falls due meanwhile is late,
//! and is seen so by whoever is answered before the log has moved again.

use trellis_checker::{
    Invariant::{self, *},
    history::{Call, JobState, Reply},
};
use trellis_types::Seconds;

use crate::story::*;

/// What goes on from 900 to 3,300, while job 1 falls due at 1,020.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    /// One asks in vain, the next is answered when the log moves again, at 3,300.
    Nothing,
    /// One is cut off, connects to a node that does not answer, and asks at last.
    Away,
    /// Nobody asks for anything.
    Idle,
    /// One asks in vain, others are served.
    Others,
    /// One asks in vain for a while.
    AWhile,
}

impl Meanwhile {
    fn happens(self, story: &mut Story) {
        let (call, reply) = (delete(78), Reply::NotFound);
        match self {
            Self::Nothing => story
                .given_up(3, 900, 2_900, delete(77))
                .told(3, 2_950, 3_300, call, reply),
            Self::Away => story
                .lost(3, 900, 4, 1_500)
                .told(4, 3_100, 3_300, call, reply),
            Self::Idle => story.told(3, 3_310, 3_320, call, reply),
            Self::Others => story
                .given_up(3, 900, 3_250, delete(77))
                .told(1, 1_100, 1_110, call, reply),
            Self::AWhile => story
                .given_up(3, 900, 1_100, delete(77))
                .told(3, 3_310, 3_320, call, reply),
        };
    }
}

/// Job 1 is made to fall due, something goes on, and at 3,200 somebody sees it undone.
fn seen(job: impl Fn(&mut Story), look: impl Fn() -> (Call, Reply), breaks: Invariant) {
    let seen_at = |at: u64, meanwhile: Meanwhile| {
        println!("{meanwhile:?}, seen at {at}");
        let mut story = Story::new();
        job(&mut story);
        meanwhile.happens(&mut story);
        let (call, reply) = look();
        story.told(2, at, at + 10, call, reply);
        story
    };
    seen_at(3_200, Meanwhile::Nothing).is_sound();
    seen_at(3_200, Meanwhile::Away).is_sound();
    for meanwhile in [Meanwhile::Idle, Meanwhile::Others, Meanwhile::AWhile] {
        seen_at(3_200, meanwhile).breaks(breaks);
    }
    // Nor for ever after it.
    seen_at(4_100, Meanwhile::Nothing).breaks(breaks);
    seen_at(4_100, Meanwhile::Away).breaks(breaks);
}

fn delayed(story: &mut Story) {
    story.told(1, 10, 20, put("a", 1, 1, 10), inserted(1));
}

fn held(story: &mut Story) {
    story.told(1, 5, 9, put("a", 1, 0, 1), inserted(1)).told(
        2,
        10,
        20,
        reserve(0),
        reserved(1, "a"),
    );
}

#[test]
fn a_job_is_seen_delayed() {
    let look = || {
        let mut seen = stats(1, JobState::Delayed, 3, 0, 0);
        seen.delay = Seconds(1);
        (stats_job(1), Reply::JobStats(seen))
    };
    seen(delayed, look, I9);
}

#[test]
fn a_job_is_no_older() {
    let put_at = |story: &mut Story| {
        story.told(1, 10, 20, put("a", 1, 0, 10), inserted(1));
    };
    let look = || {
        let seen = stats(1, JobState::Ready, 0, 0, 0);
        (stats_job(1), Reply::JobStats(seen))
    };
    seen(put_at, look, I12);
}

#[test]
fn a_hold_lasts() {
    seen(held, || (touch(1), Reply::Touched), I5);
}

#[test]
fn a_delayed_job_is_hidden_from_a_poll() {
    seen(delayed, || (reserve(0), Reply::TimedOut), I17);
}

#[test]
fn a_pause_lasts() {
    let paused = |story: &mut Story| {
        let pause = Call::PauseTube {
            tube: tube("t"),
            delay: Seconds(1),
        };
        story
            .told(1, 5, 9, put("a", 1, 0, 10), inserted(1))
            .told(1, 10, 20, pause, Reply::Paused);
    };
    seen(paused, || (reserve(0), Reply::TimedOut), I17);
}

#[test]
fn a_tube_counts_what_is_late() {
    let counting = |ready: u64, delayed: u64| {
        let call = Call::StatsTube { tube: tube("t") };
        let counts = tube_stats(ready, 0, delayed, 0);
        move || (call.clone(), Reply::TubeStats(counts.clone()))
    };
    seen(delayed, counting(0, 1), I10);
    // It excuses nothing else: a job is somewhere.
    let mut story = Story::new();
    delayed(&mut story);
    Meanwhile::Nothing.happens(&mut story);
    let (call, reply) = counting(0, 0)();
    story.told(2, 3_200, 3_210, call, reply).breaks(I10);
}
