use trellis_queue::LeaderCommand;
use trellis_types::{JobId, Priority, Seconds, limits};

use super::*;
use crate::{Refused, origin::Phase};

#[test]
fn an_answer_comes_from_the_own_apply_and_not_before() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [put("letter")]);
    assert_eq!(ann.hears(), [""; 0], "nothing is on any disk yet");
    story.hand();
    assert_eq!(
        ann.hears(),
        [""; 0],
        "the leader has it, that proves nothing"
    );
    story.commit();
    assert_eq!(ann.hears(), ["inserted 1"]);
}

#[test]
fn a_delete_is_answered_when_it_is_carried_out_and_not_before() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [put("letter")]);
    story.run();
    assert_eq!(ann.hears(), ["inserted 1"]);
    story.say(&ann, [Call::Delete(JobId(1))]);
    assert_eq!(ann.hears(), [""; 0], "nobody has heard of it");
    story.hand();
    assert_eq!(
        ann.hears(),
        [""; 0],
        "the leader has it, that proves nothing"
    );
    story.commit();
    assert_eq!(ann.hears(), ["Deleted"]);
}

#[test]
fn a_job_goes_through_its_life() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&bob, [RESERVE]);
    story.run();
    story.say(&ann, [put("letter")]);
    story.run();
    assert_eq!(ann.hears(), ["inserted 1"]);
    assert_eq!(
        bob.hears(),
        ["reserved 1"],
        "the waiter has it in the same entry"
    );
    let release = Call::Release {
        job: JobId(1),
        priority: Priority(3),
        delay: Seconds(0),
    };
    story.say(
        &bob,
        [Call::Touch(JobId(1)), release, Call::ReserveJob(JobId(1))],
    );
    story.say(
        &bob,
        [
            Call::Bury {
                job: JobId(1),
                priority: Priority(1),
            },
            Call::Kick { bound: 9 },
            Call::KickJob(JobId(1)),
            Call::Delete(JobId(1)),
            Call::Delete(JobId(1)),
        ],
    );
    story.run();
    assert_eq!(
        bob.hears(),
        [
            "Touched",
            "Released",
            "reserved 1",
            "Buried",
            "Kicked(1)",
            "NotFound",
            "Deleted",
            "NotFound"
        ]
    );
}

#[test]
fn commands_of_all_connections_travel_together_while_others_are_in_flight() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&ann, (0..20).map(|_| put("x")));
    assert_eq!(story.hand(), 1, "nothing waits without need");
    for _ in 0..9 {
        story.say(&ann, [put("x")]);
        story.say(&bob, [put("y")]);
        assert_eq!(story.hand(), 0, "more is in flight: the next batch grows");
    }
    story.say(&ann, [put("x"), put("x")]);
    assert_eq!(story.hand(), 1, "twenty puts beside twenty");
    story.say(&bob, [put("y")]);
    assert_eq!(story.hand(), 0);
    story.commit();
    assert_eq!(story.hand(), 1, "one put, and nothing in flight");
}

#[test]
fn a_large_batch_need_not_wait_for_those_in_flight() {
    let mut story = Story::begins();
    let ann = story.client();
    let many = || (0..limits::LARGE_BATCH_COMMANDS_MIN).map(|_| put("x"));
    for _ in 0..limits::BATCHES_IN_FLIGHT_MAX {
        story.say(&ann, many());
        assert_eq!(story.hand(), 1);
    }
    story.say(&ann, many());
    assert_eq!(story.hand(), 0, "as many as may be are in flight");
    story.run();
    let puts = limits::LARGE_BATCH_COMMANDS_MIN * (limits::BATCHES_IN_FLIGHT_MAX + 1);
    assert_eq!(ann.hears().len(), puts);
}

#[test]
fn a_full_batch_is_followed_by_another() {
    let mut story = Story::begins();
    let ann = story.client();
    let puts = limits::BATCH_COMMANDS_MAX + 1;
    story.say(&ann, (0..puts).map(|_| put("x")));
    assert_eq!(story.hand(), 1, "the one left over waits");
    story.run();
    let large = Call::Put {
        priority: Priority(0),
        delay: Seconds(0),
        ttr: Seconds(1),
        body: Bytes::from(vec![0; limits::BATCH_BYTES_MAX + 1]),
    };
    story.say(&ann, [put("x"), large, put("x")]);
    assert_eq!(story.hand(), 2, "a large one travels alone");
    story.run();
    assert_eq!(ann.hears().len(), puts + 3);
}

#[test]
fn after_a_doubt_the_same_bytes_are_sent_again_and_take_effect_once() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [put("1")]);
    story.hand();
    story.say(&ann, [put("2")]);
    story.hand();
    let first_try = story.wire.clone();
    let again: Vec<Bytes> = story
        .origin
        .resend(Story::own(1))
        .into_iter()
        .map(|(_, bytes)| bytes)
        .collect();
    assert_eq!(again, first_try, "seq and bytes never change");
    // Both tries come into the log, and something new behind them.
    story.wire.extend(again);
    story.say(&ann, [put("3")]);
    story.run();
    assert_eq!(ann.hears(), ["inserted 1", "inserted 2", "inserted 3"]);
    assert_eq!(story.machine.server().total_jobs, 3);
    assert!(story.origin.resend(Story::own(1)).is_empty());
}

#[test]
fn a_hole_in_the_log_raises_a_doubt_and_all_comes_again() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [put("1")]);
    story.hand();
    story.say(&ann, [put("2")]);
    story.hand();
    let doubt = story.origin.doubt();
    // The entry with the first batch was lost with its leader.
    story.wire.remove(0);
    story.commit();
    assert_eq!(ann.hears(), [""; 0]);
    assert_ne!(
        story.origin.doubt(),
        doubt,
        "the stream is not to be trusted"
    );
    story.wire = story
        .origin
        .resend(Story::own(1))
        .into_iter()
        .map(|(_, bytes)| bytes)
        .collect();
    story.commit();
    assert_eq!(ann.hears(), ["inserted 1", "inserted 2"]);
}

#[test]
fn a_client_that_hangs_up_gives_its_jobs_back_and_what_it_sent_is_carried_out() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&ann, [put("1"), RESERVE]);
    story.run();
    assert_eq!(ann.hears(), ["inserted 1", "reserved 1"]);
    story.say(&ann, [put("2")]);
    story.hangs_up(&ann);
    story.say(&bob, [RESERVE, RESERVE]);
    story.run();
    assert_eq!(ann.hears(), [""; 0]);
    assert_eq!(bob.hears(), ["reserved 1", "reserved 2"]);
}

#[test]
fn a_client_that_never_reserved_leaves_no_trace_in_the_log() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [put("1")]);
    story.run();
    let logged = story.logged;
    story.hangs_up(&ann);
    story.run();
    assert_eq!(story.logged, logged, "the machine does not know it");
}

#[test]
fn quit_answers_what_came_before_and_drops_what_comes_after() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [put("1"), Call::Quit, put("2")]);
    story.run();
    assert_eq!(ann.hears(), ["inserted 1", "closed: Quit"]);
    assert_eq!(story.machine.server().total_jobs, 1);
}

#[test]
fn a_fenced_node_closes_its_connections_and_opens_another_origin() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [put("1"), RESERVE, RESERVE]);
    story.run();
    ann.hears();
    story.say(&ann, [put("2")]);
    story.hand();
    story.origin.fence(CloseReason::Fenced);
    story.settles();
    assert_eq!(ann.hears(), ["closed: Fenced"]);
    assert_eq!(story.origin.phase(), Phase::Fenced);
    story.opens(2);
    // The late batch of the earlier run is refused: its sessions are over.
    story.commit();
    assert_eq!(story.machine.server().total_jobs, 1);
    assert_eq!(story.machine.server().waiting, 0);
    let bob = story.client();
    story.say(&bob, [RESERVE]);
    story.say(&ann, [put("3")]);
    story.run();
    assert_eq!(
        bob.hears(),
        ["reserved 1"],
        "Ann's hold returned with her origin"
    );
    assert_eq!(ann.hears(), [""; 0], "her session is over");
}

#[test]
fn the_end_of_the_own_origin_fences() {
    let mut story = Story::begins();
    let ann = story.client();
    story.leads(LeaderCommand::ExpireOrigin(Story::own(1)));
    assert_eq!(ann.hears(), ["closed: Fenced"]);
    assert_eq!(story.origin.phase(), Phase::Fenced);
}

#[test]
fn an_origin_that_the_machine_does_not_know_is_given_up() {
    let mut story = Story::begins();
    let ann = story.client();
    story.machine = Machine::new();
    story.say(&ann, [put("1")]);
    story.run();
    assert_eq!(ann.hears(), ["closed: Fenced"]);
}

#[test]
fn there_are_as_many_clients_as_there_may_be_and_none_without_an_origin() {
    let mut story = Story::begins();
    for _ in 0..100 {
        story.client();
    }
    let line = story.client_line();
    assert_eq!(story.origin.connect(line.clone()), Err(Refused::TooMany));
    story.origin.fence(CloseReason::Fenced);
    assert_eq!(story.origin.connect(line), Err(Refused::Closed));
}

#[test]
fn counters_follow_the_commands_in_their_turn() {
    let mut story = Story::begins();
    let ann = story.client();
    let counters = |story: &Story| {
        let all = story.origin.counters;
        let count = |kind: trellis_wire::beanstalk::Counted| all.commands[kind.index()];
        use trellis_wire::beanstalk::Counted::{Put, Reserve, ReserveWithTimeout};
        (
            count(Put),
            count(Reserve),
            count(ReserveWithTimeout),
            all.producers,
            all.workers,
        )
    };
    let timed = Call::Reserve {
        timeout: Some(Seconds(1)),
    };
    story.say(&ann, [RESERVE]);
    story.run();
    story.say(&ann, [put("x"), timed]);
    story.run();
    assert_eq!(
        counters(&story),
        (0, 1, 0, 0, 1),
        "what stands behind a wait has not had its turn"
    );
    let bob = story.client();
    story.say(
        &bob,
        [
            put("y"),
            Call::Refused {
                tag: 1,
                counts: None,
                producer: true,
            },
        ],
    );
    story.run();
    assert_eq!(counters(&story), (2, 1, 1, 2, 1));
    story.hangs_up(&bob);
    assert_eq!(counters(&story), (2, 1, 1, 1, 1));
    assert_eq!(story.origin.counters.connections_total, 2);
}

#[test]
fn reserve_job_makes_a_worker_only_when_it_succeeds() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [put("x"), Call::ReserveJob(JobId(7))]);
    story.run();
    assert_eq!(story.origin.counters.workers, 0);
    story.say(&ann, [Call::ReserveJob(JobId(1))]);
    story.run();
    assert_eq!(story.origin.counters.workers, 1);
}

#[test]
fn a_node_that_lets_go_answers_what_is_under_way_and_ends_waits() {
    let mut story = Story::begins();
    let (ann, bob, eve) = (story.client(), story.client(), story.client());
    story.say(&bob, [RESERVE]);
    story.run();
    story.say(&ann, [put("x")]);
    story.origin.leave(story.now);
    story.settles();
    assert_eq!(bob.hears(), ["closed: Drained"]);
    assert_eq!(eve.hears(), ["closed: Drained"]);
    story.run();
    assert_eq!(ann.hears(), ["inserted 1", "closed: Drained"]);
    assert_eq!(story.origin.left(), (0, 0));
    assert_eq!(story.machine.server().ready, 1, "nobody has it");
}

/// Found by simulation: a wait of two seconds that reached a leaving node just before the end was
/// told TIMED_OUT a tenth of a second later.
#[test]
fn a_wait_that_a_leaving_node_cuts_short_is_not_told_that_its_time_is_up() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    let wait = Call::Reserve {
        timeout: Some(Seconds(2)),
    };
    story.say(&ann, [wait]);
    story.say(
        &bob,
        [
            put("x"),
            Call::Reserve { timeout: None },
            Call::Reserve { timeout: None },
        ],
    );
    story.origin.leave(story.now);
    story.run();
    assert_eq!(ann.hears(), ["reserved 1", "closed: Drained"]);
    assert_eq!(bob.hears(), ["inserted 1", "closed: Drained"]);
    assert_eq!(story.origin.left(), (0, 0));
}

impl Story {
    fn client_line(&self) -> Arc<Line> {
        Line::new(Arc::new(Ear(Arc::default())))
    }
}
