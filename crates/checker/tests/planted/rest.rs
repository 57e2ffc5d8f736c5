//! Ids, bodies, time, nodes, the end; and runs that prove nothing.

use trellis_checker::{
    BadHistory,
    Invariant::*,
    check,
    history::{Body, Demands, JobState, NodeEvent, Reply},
};
use trellis_types::JobId;

use crate::story::*;

#[test]
fn an_id_is_given_twice() {
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(1, 30, 40, put("b", 1, 0, 10), inserted(1))
        .breaks(I7);
    // Also after the first of them is gone.
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(1, 30, 40, delete(1), Reply::Deleted)
        .told(1, 50, 60, put("b", 1, 0, 10), inserted(1))
        .breaks(I7);
}

#[test]
fn a_later_put_gets_a_smaller_id() {
    let puts = |second: u64| {
        let mut story = Story::new();
        story.told(1, 10, 20, put("a", 1, 0, 10), inserted(5)).told(
            2,
            second,
            40,
            put("b", 1, 0, 10),
            inserted(4),
        );
        story
    };
    puts(30).breaks(I7);
    // At the same time, either may be first.
    puts(15).is_sound();
}

#[test]
fn one_put_is_stored_twice() {
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(2, 30, 40, reserve(0), reserved(1, "a"))
        .told(3, 50, 60, reserve(0), reserved(2, "a"))
        .breaks(I7);
}

#[test]
fn a_job_that_nobody_put_is_left() {
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(1, 30, 40, delete(1), Reply::Deleted)
        .finally("n1", 900, vec![stats(2, JobState::Ready, 0, 0, 0)])
        .breaks(I7);
}

#[test]
fn a_body_changes_on_the_way() {
    let delivered = |body: Body| {
        let mut story = Story::new();
        story.told(1, 10, 20, put("a", 1, 0, 10), inserted(1)).told(
            2,
            30,
            40,
            reserve(0),
            Reply::Reserved {
                job: JobId(1),
                body,
            },
        );
        story
    };
    delivered(Body::named("a", 20)).is_sound();
    delivered(Body {
        crc: 7,
        ..Body::named("a", 20)
    })
    .breaks(I20);
    delivered(Body {
        bytes: 19,
        ..Body::named("a", 20)
    })
    .breaks(I20);
    delivered(Body {
        key: None,
        ..Body::named("a", 20)
    })
    .breaks(I20);
}

#[test]
fn time_runs_back_or_ahead() {
    let mut story = Story::new();
    story.told(1, 10, 20, put("a", 1, 0, 10), inserted(1));
    story
        .sample("n1", 100, 10, 5_000, "x")
        .sample("n2", 200, 11, 4_000, "y")
        .breaks(I12);
    let aged = |age| {
        let mut story = Story::new();
        let seen = Reply::JobStats(stats(1, JobState::Ready, age, 0, 0));
        story.told(1, 10, 20, put("a", 1, 0, 10), inserted(1)).told(
            2,
            3_100,
            3_110,
            stats_job(1),
            seen,
        );
        story
    };
    aged(60).breaks(I12);
    aged(0).breaks(I12);
    aged(3).is_sound();
}

#[test]
fn a_wait_ends_before_its_time() {
    let waited = |to| {
        let mut story = Story::new();
        story.told(1, 100, to, reserve(2), Reply::TimedOut);
        story
    };
    waited(1_500).breaks(I12);
    waited(2_110).is_sound();
}

#[test]
fn a_warning_to_one_who_holds_nothing() {
    let mut story = Story::new();
    story
        .told(1, 100, 110, reserve(2), Reply::DeadlineSoon)
        .breaks(I5);
}

#[test]
fn nodes_differ() {
    let sampled = |digest| {
        let mut story = Story::new();
        story.told(1, 10, 20, put("a", 1, 0, 10), inserted(1));
        story
            .sample("n1", 100, 10, 5_000, "same")
            .sample("n2", 120, 10, 5_000, digest);
        story
    };
    sampled("other").breaks(I11);
    sampled("same").is_sound();
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .never_told(1, 30, delete(1))
        .finally("n1", 900, vec![stats(1, JobState::Ready, 0, 0, 0)])
        .finally("n2", 910, vec![])
        .breaks(I11);
}

#[test]
fn a_node_without_a_disk_goes_on_answering() {
    let answered_at = |at: u64, call, reply| {
        let mut story = Story::new();
        story
            .told(2, 10, 20, put("a", 1, 0, 10), inserted(1))
            .node("n1", 1_000, NodeEvent::DiskFailed)
            .node("n1", 9_000, NodeEvent::Started)
            .told(1, at, at + 10, call, reply);
        story
    };
    answered_at(5_000, put("b", 1, 0, 10), inserted(2)).breaks(I19);
    answered_at(9_500, put("b", 1, 0, 10), inserted(2)).is_sound();
    // An answer that was under way, a read, and a refusal are no breach.
    answered_at(1_100, put("b", 1, 0, 10), inserted(2)).is_sound();
    answered_at(5_000, peek(1), found(1, "a")).is_sound();
    answered_at(5_000, put("b", 1, 0, 10), Reply::Draining).is_sound();
}

#[test]
fn a_job_is_stuck() {
    let ended = |drained: bool, left| {
        let mut story = Story::new();
        story
            .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
            .drained(100, 800, drained)
            .finally("n1", 900, left);
        story
    };
    ended(false, vec![stats(1, JobState::Ready, 0, 0, 0)]).breaks(I6);
    ended(true, vec![stats(1, JobState::Ready, 0, 0, 0)]).breaks(I6);
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(2, 110, 120, reserve(0), reserved(1, "a"))
        .told(2, 130, 140, delete(1), Reply::Deleted)
        .drained(100, 800, true)
        .finally("n1", 900, vec![])
        .is_sound();
}

#[test]
fn a_run_that_did_nothing_proves_nothing() {
    let demands = Demands {
        acknowledged: 2,
        faults: 1,
        finals: 1,
    };
    let mut story = Story::demanding(demands);
    story.told(1, 10, 20, put("a", 1, 0, 10), inserted(1));
    let verdict = story.verdict();
    assert_eq!(verdict.first(), None, "{verdict}");
    assert_eq!(verdict.rejected.len(), 3, "{verdict}");
    assert!(!verdict.is_sound());
    story
        .told(1, 30, 40, put("b", 1, 0, 10), inserted(2))
        .fault(50, 60)
        .finally(
            "n1",
            900,
            vec![
                stats(1, JobState::Ready, 0, 0, 0),
                stats(2, JobState::Ready, 0, 0, 0),
            ],
        )
        .is_sound();
}

#[test]
fn answers_that_fit_no_question() {
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), Reply::Deleted)
        .breaks(I17);
    let line = "HELLO".to_owned();
    let mut story = Story::new();
    story
        .told(1, 10, 20, delete(1), Reply::Other { line })
        .breaks(I17);
}

#[test]
fn what_is_no_history_is_said_so() {
    assert_eq!(check([]).map(|_| ()), Err(BadHistory::NoHeader));
    let mut story = Story::new();
    story.told(1, 20, 10, put("a", 1, 0, 10), inserted(1));
    assert_eq!(story.bad(), BadHistory::Backwards(1));
    let mut story = Story::new();
    story.told(9, 10, 20, put("a", 1, 0, 10), inserted(1));
    assert_eq!(
        story.bad(),
        BadHistory::NoConnection {
            op: 1,
            connection: 9
        }
    );
}

#[test]
fn a_verdict_shows_what_a_person_needs() {
    let mut story = Story::new();
    story
        .told(1, 10, 20, put("a", 1, 0, 10), inserted(1))
        .told(3, 12, 25, put("b", 9, 0, 10), inserted(2))
        .told(2, 30, 40, reserve(0), reserved(1, "a"))
        .told(1, 45, 46, peek(1), found(1, "a"))
        .told(2, 50, 60, delete(1), Reply::Deleted)
        .told(3, 100, 110, reserve(0), reserved(1, "a"));
    let finding = &story.verdict().findings[0];
    assert_eq!(
        finding.words,
        "at 0.100000s: job 1 [a] of tube t: it came back after it had been deleted"
    );
    // Neither the other job nor the look is told: they have nothing to do with it.
    assert_eq!(
        finding.slice,
        [
            "0.000000s +10.000ms  #1 client 1 connection 1 at n1: put 1 0 10 20 [a] in t → INSERTED 1",
            "0.020000s +10.000ms  #3 client 2 connection 2 at n2: reserve-with-timeout 0 from t → RESERVED 1 20 [a]",
            "0.040000s +10.000ms  #5 client 2 connection 2 at n2: delete 1 → DELETED",
            "0.090000s +10.000ms  #6 client 3 connection 3 at n3: reserve-with-timeout 0 from t → RESERVED 1 20 [a]",
        ]
    );
}
