//! A tube: order, emptiness, heads, pauses, counts.

use trellis_checker::{
    Invariant::*,
    history::{Call, JobState, Reply},
};
use trellis_types::{Priority, Seconds};

use crate::story::*;

fn pause(delay: u32) -> Call {
    Call::PauseTube {
        tube: tube("t"),
        delay: Seconds(delay),
    }
}

fn kick(bound: u32) -> Call {
    Call::Kick {
        tube: tube("t"),
        bound,
    }
}

#[test]
fn the_worse_job_is_delivered_first() {
    let taken = |first: (u64, &str), second: (u64, &str)| {
        let mut story = Story::new();
        story
            .told(1, 10, 20, put("a", 2, 0, 10), inserted(1))
            .told(1, 30, 40, put("b", 1, 0, 10), inserted(2))
            .told(2, 100, 110, reserve(0), reserved(first.0, first.1))
            .told(2, 120, 130, reserve(0), reserved(second.0, second.1));
        story
    };
    taken((1, "a"), (2, "b")).breaks(I8);
    taken((2, "b"), (1, "a")).is_sound();
}

#[test]
fn of_equal_jobs_the_younger_is_delivered_first() {
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(1, 30, 40, put("b", 1, 0, 10), inserted(2))
        .told(2, 100, 110, reserve(0), reserved(2, "b"))
        .breaks(I8);
}

#[test]
fn order_among_jobs_that_were_kicked_or_had_waited() {
    // Only the search sees this: nobody was told since when each of them is ready.
    let taken = |first: (u64, &str), second: (u64, &str)| {
        let mut story = Story::new();
        story
            .told(1, 10, 20, put("a", 2, 1, 10), inserted(1))
            .told(1, 30, 40, put("b", 1, 1, 10), inserted(2))
            .told(2, 2_000, 2_010, reserve(0), reserved(first.0, first.1))
            .told(2, 2_020, 2_030, reserve(0), reserved(second.0, second.1));
        story
    };
    taken((1, "a"), (2, "b")).breaks(I8);
    taken((2, "b"), (1, "a")).is_sound();
}

#[test]
fn a_burial_of_unknown_outcome_may_have_been_before_another() {
    let kicked = |first: (u64, &str), left: u64| {
        let mut story = Story::new();
        story
            .told(1, 10, 20, put("a", 5, 0, 1), inserted(1))
            .told(2, 30, 40, put("b", 6, 0, 60), inserted(2))
            .told(1, 50, 60, reserve(0), reserved(1, "a"))
            .told(2, 70, 80, reserve(0), reserved(2, "b"))
            .never_told(1, 100, bury(1))
            .closed(1, 110)
            .told(2, 200, 210, bury(2), Reply::Buried)
            .told(2, 300, 310, kick(1), Reply::Kicked { count: 1 })
            .told(2, 1_400, 1_410, reserve(0), reserved(first.0, first.1));
        let buried = Call::PeekBuried { tube: tube("t") };
        let key = if left == 1 { "a" } else { "b" };
        story.told(2, 1_500, 1_510, buried, found(left, key));
        story
    };
    // It was, so it was kicked first.
    kicked((1, "a"), 2).is_sound();
    // It was behind the other one: then that one was kicked first.
    kicked((2, "b"), 1).is_sound();
    kicked((2, "b"), 2).breaks(I17);
}

#[test]
fn a_wait_gets_the_first_that_is_kicked_and_not_the_best() {
    let kicked = |waits: bool| {
        let mut story = Story::new();
        story
            .told(1, 10, 20, put("a", 1, 0, 60), inserted(1))
            .told(1, 30, 40, put("b", 1, 0, 60), inserted(2))
            .told(1, 50, 60, reserve(0), reserved(1, "a"))
            .told(1, 70, 80, reserve(0), reserved(2, "b"))
            .told(
                1,
                90,
                100,
                Call::Bury {
                    job: trellis_types::JobId(1),
                    priority: Priority(9),
                },
                Reply::Buried,
            )
            .told(
                1,
                110,
                120,
                Call::Bury {
                    job: trellis_types::JobId(2),
                    priority: Priority(1),
                },
                Reply::Buried,
            )
            .told(3, 200, 210, kick(2), Reply::Kicked { count: 2 })
            .told(
                2,
                if waits { 150 } else { 250 },
                300,
                reserve(5),
                reserved(1, "a"),
            );
        story
    };
    kicked(true).is_sound();
    kicked(false).breaks(I8);
}

#[test]
fn somebody_is_told_that_nothing_is_ready() {
    let polled = |deleted: bool| {
        let mut story = Story::new();
        story.told(1, 10, 20, put("a", 1, 0, 10), inserted(1));
        if deleted {
            story.never_told(3, 30, delete(1));
        }
        story.told(2, 100, 110, reserve(0), Reply::TimedOut);
        story
    };
    polled(false).breaks(I17);
    polled(true).is_sound();
}

#[test]
fn a_wait_times_out_beside_a_ready_job() {
    let waited = |trouble: bool| {
        let mut story = Story::new();
        if trouble {
            story.fault(50, 400);
        }
        story.told(1, 10, 20, put("a", 1, 0, 10), inserted(1)).told(
            2,
            100,
            1_200,
            reserve(1),
            Reply::TimedOut,
        );
        story
    };
    waited(false).breaks(I17);
    // A node that was away is passed over.
    waited(true).is_sound();
}

#[test]
fn a_peek_shows_what_is_not_the_first() {
    let peeked = |reply| {
        let mut story = Story::new();
        story
            .told(1, 10, 20, put("a", 2, 0, 10), inserted(1))
            .told(1, 30, 40, put("b", 1, 0, 10), inserted(2))
            .told(2, 100, 110, Call::PeekReady { tube: tube("t") }, reply);
        story
    };
    peeked(found(1, "a")).breaks(I17);
    peeked(Reply::NotFound).breaks(I17);
    peeked(found(2, "b")).is_sound();
}

#[test]
fn a_paused_tube_delivers() {
    let taken_at = |at: u64| {
        let mut story = Story::new();
        story
            .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
            .told(1, 30, 40, pause(2), Reply::Paused)
            .told(2, at - 10, at, reserve(0), reserved(1, "a"));
        story
    };
    taken_at(1_000).breaks(I8);
    taken_at(2_100).is_sound();
}

#[test]
fn a_tube_counts_wrongly() {
    let counted = |ready, reserved_jobs| {
        let mut story = Story::new();
        story
            .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
            .told(1, 30, 40, put("b", 1, 0, 10), inserted(2))
            .told(2, 50, 60, reserve(0), reserved(1, "a"))
            .told(
                3,
                100,
                110,
                Call::StatsTube { tube: tube("t") },
                Reply::TubeStats(tube_stats(ready, reserved_jobs, 0, 0)),
            );
        story
    };
    counted(2, 1).breaks(I10);
    counted(2, 0).breaks(I10);
    counted(1, 1).is_sound();
}

#[test]
fn a_node_counts_something_else_than_it_holds() {
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .finally_counting(
            "n1",
            900,
            vec![stats(1, JobState::Ready, 0, 0, 0)],
            tube_stats(0, 0, 0, 1),
        )
        .breaks(I10);
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .finally("n1", 900, vec![stats(1, JobState::Ready, 0, 0, 0)])
        .total(2)
        .breaks(I10);
}

#[test]
fn a_job_goes_to_one_who_does_not_watch_its_tube() {
    let mut story = Story::new();
    let elsewhere = Call::Reserve {
        tubes: vec![tube("other")],
        timeout: None,
    };
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(2, 30, 40, elsewhere, reserved(1, "a"))
        .breaks(I8);
}
