use trellis_types::{JobId, Seconds, limits};

use super::*;

#[test]
fn a_thousand_pipelined_puts_ride_together_and_are_answered_in_order() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, (0..1_000).map(|_| put("x")));
    assert_eq!(story.hand(), 1);
    story.commit();
    let expected: Vec<String> = (1..=1_000).map(|id| format!("inserted {id}")).collect();
    assert_eq!(ann.hears(), expected);
}

#[test]
fn what_stands_behind_a_parked_reserve_is_skipped_and_sent_again() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&ann, [RESERVE, Call::Delete(JobId(1)), put("mine")]);
    story.run();
    assert_eq!(ann.hears(), [""; 0]);
    story.say(&ann, [Call::Touch(JobId(1))]);
    assert_eq!(
        story.hand(),
        0,
        "nothing of hers is sent while her reserve is parked"
    );
    story.say(&bob, [put("his")]);
    story.run();
    assert_eq!(
        ann.hears(),
        ["reserved 1", "Deleted", "inserted 2", "NotFound"]
    );
}

#[test]
fn all_later_ones_of_the_batch_are_skipped_even_if_the_wait_ends_inside_it() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&ann, [RESERVE, put("mine")]);
    // In the same batch: Ann's wait ends before her put is looked at … no, it is behind hers.
    story.say(&bob, [put("his")]);
    story.say(&ann, [put("hers too")]);
    assert_eq!(story.hand(), 1);
    story.commit();
    assert_eq!(ann.hears(), ["reserved 1"]);
    assert_eq!(bob.hears(), ["inserted 1"]);
    story.run();
    assert_eq!(ann.hears(), ["inserted 2", "inserted 3"]);
}

#[test]
fn nothing_of_a_session_goes_in_a_later_batch_while_its_reserve_may_be_parked() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [RESERVE]);
    story.hand();
    story.say(&ann, [put("x")]);
    assert_eq!(story.hand(), 0, "the fate of the reserve is open");
    story.wire.clear();
    // A put of another in the meantime, then the reserve again.
    let bob = story.client();
    story.say(&bob, [put("b")]);
    story.hand();
    story.wire = story
        .origin
        .resend(Story::own(1))
        .into_iter()
        .map(|(_, bytes)| bytes)
        .collect();
    story.commit();
    assert_eq!(ann.hears(), ["reserved 1"]);
    story.run();
    assert_eq!(ann.hears(), ["inserted 2"]);
}

#[test]
fn a_hundred_reserves_on_an_empty_tube_do_not_become_thousands() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&ann, (0..100).map(|_| RESERVE));
    story.run();
    for _ in 0..100 {
        story.say(&bob, [put("x")]);
        story.run();
    }
    assert_eq!(ann.hears().len(), 100);
    // 100 puts, 100 reserves in one batch, and each of the 99 skipped ones once more.
    assert_eq!(story.logged, 100 + 100 + 99);
}

#[test]
fn portions_double_while_jobs_are_there() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&ann, (0..100).map(|_| RESERVE));
    story.run();
    story.say(&bob, (0..200).map(|_| put("x")));
    story.hand();
    story.commit();
    let mut portions = Vec::new();
    while story.hand() > 0 {
        let before = story.logged;
        story.commit();
        portions.push(story.logged - before);
    }
    assert_eq!(portions, [1, 2, 4, 8, 16, 32, 36]);
    assert_eq!(ann.hears().len(), 100);
}

#[test]
fn a_hundred_reserves_on_a_full_tube_take_one_batch() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&bob, (0..100).map(|_| put("x")));
    story.run();
    story.say(&ann, (0..100).map(|_| RESERVE));
    assert_eq!(story.hand(), 1);
    story.commit();
    assert_eq!(ann.hears().len(), 100);
    assert_eq!(story.hand(), 0);
}

#[test]
fn a_half_closed_client_that_waits_is_told_so_and_closed() {
    // Edge 65.
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [RESERVE]);
    story.run();
    story.half_closes(&ann);
    story.run();
    assert_eq!(ann.hears(), ["TimedOut", "closed: HalfClosed"]);
    assert_eq!(story.machine.server().waiting, 0);
}

#[test]
fn what_was_sent_before_a_half_close_is_carried_out_without_waiting() {
    // Edge 66.
    let mut story = Story::begins();
    let ann = story.client();
    story.say(
        &ann,
        [
            RESERVE,
            Call::ListTubeUsed,
            RESERVE,
            put("x"),
            RESERVE,
            RESERVE,
        ],
    );
    story.half_closes(&ann);
    story.run();
    while !story.tickets.is_empty() {
        story.read();
        story.run();
    }
    assert_eq!(
        ann.hears(),
        [
            "TimedOut",
            "using default",
            "TimedOut",
            "inserted 1",
            "reserved 1",
            "TimedOut",
            "closed: HalfClosed"
        ]
    );
    assert_eq!(story.machine.server().ready, 1, "its hold returned");
}

#[test]
fn an_end_of_wait_comes_while_the_reserve_is_in_flight() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [RESERVE, RESERVE]);
    story.hand();
    story.half_closes(&ann);
    story.hand();
    story.commit();
    // It may have had to wait for the reserve's batch.
    story.hand();
    story.commit();
    assert_eq!(ann.hears(), ["TimedOut"]);
    story.run();
    story.read();
    assert_eq!(ann.hears(), ["TimedOut", "closed: HalfClosed"]);
}

#[test]
fn what_is_read_after_the_end_was_noticed_does_not_wait_either() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [RESERVE]);
    story.run();
    story.origin.hung_up(ann.id, story.now);
    story.run();
    assert_eq!(ann.hears(), ["TimedOut"]);
    story.say(&ann, [RESERVE, put("x"), RESERVE]);
    story.half_closes(&ann);
    story.read();
    story.run();
    assert_eq!(
        ann.hears(),
        ["TimedOut", "inserted 1", "reserved 1", "closed: HalfClosed"]
    );
}

#[test]
fn a_half_closed_client_that_owes_nothing_is_closed_at_once() {
    let mut story = Story::begins();
    let ann = story.client();
    story.half_closes(&ann);
    assert_eq!(ann.hears(), ["closed: HalfClosed"]);
}

#[test]
fn a_read_is_a_barrier() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(
        &ann,
        [
            put("1"),
            Call::Peek(JobId(2)),
            put("2"),
            Call::Peek(JobId(2)),
        ],
    );
    assert!(
        story.tickets.is_empty(),
        "it starts when all earlier commands are applied"
    );
    story.run();
    assert_eq!(ann.hears(), ["inserted 1"]);
    assert_eq!(story.tickets.len(), 1);
    assert_eq!(story.hand(), 0, "what stands behind it is not submitted");
    story.read();
    assert_eq!(ann.hears(), ["NotFound"]);
    story.run();
    story.read();
    assert_eq!(ann.hears(), ["inserted 2", "found 2"]);
}

#[test]
fn a_poll_that_finds_nothing_does_not_enter_the_log() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [POLL, POLL]);
    assert_eq!(story.hand(), 0);
    story.read();
    assert_eq!(ann.hears(), ["TimedOut"]);
    story.read();
    assert_eq!(ann.hears(), ["TimedOut"]);
    assert_eq!(story.logged, 0);
    let bob = story.client();
    story.say(&bob, [put("x")]);
    story.run();
    story.say(&ann, [POLL]);
    story.read();
    story.run();
    assert_eq!(
        ann.hears(),
        ["reserved 1"],
        "something is ready: the log decides"
    );
}

#[test]
fn a_poll_behind_a_put_finds_its_job() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [put("x"), POLL]);
    story.run();
    assert_eq!(ann.hears(), ["inserted 1", "reserved 1"]);
}

#[test]
fn refusals_of_the_codec_are_answered_in_their_turn() {
    let mut story = Story::begins();
    let ann = story.client();
    let refused = |tag| Call::Refused {
        tag,
        counts: None,
        producer: false,
    };
    story.say(&ann, [refused(1), put("x"), refused(2)]);
    assert_eq!(ann.hears(), ["refused 1"]);
    story.run();
    assert_eq!(ann.hears(), ["inserted 1", "refused 2"]);
}

#[test]
fn draining_puts_are_refused_and_everything_else_works() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(&ann, [put("x")]);
    story.run();
    story.origin.draining = true;
    story.say(&ann, [put("y"), RESERVE, Call::Delete(JobId(1))]);
    story.run();
    assert_eq!(
        ann.hears(),
        ["inserted 1", "Draining", "reserved 1", "Deleted"]
    );
}

#[test]
fn a_timed_wait_ends_by_cluster_time() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(
        &ann,
        [
            Call::Reserve {
                timeout: Some(Seconds(2)),
            },
            put("behind"),
        ],
    );
    story.run();
    story.wait(1_999);
    story.tick();
    assert_eq!(ann.hears(), [""; 0]);
    story.wait(1);
    story.run();
    assert_eq!(ann.hears(), ["TimedOut"]);
    story.run();
    assert_eq!(ann.hears(), ["inserted 1"]);
}

#[test]
fn a_connection_is_read_no_further_than_its_pipeline_and_its_read_ahead() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(
        &ann,
        (0..limits::CONNECTION_PIPELINE_MAX - 1).map(|_| put("x")),
    );
    assert!(!ann.line.is_full());
    story.say(&ann, [put("x")]);
    assert!(ann.line.is_full(), "as many as may be are not answered");
    story.run();
    assert!(!ann.line.is_full());

    let bob = story.client();
    story.say(
        &bob,
        [
            Call::Watch(tube("empty")),
            Call::Ignore(tube("default")),
            RESERVE,
        ],
    );
    story.run();
    let body = Bytes::from(vec![0; limits::CONNECTION_READ_AHEAD_BYTES]);
    story.say(
        &bob,
        [Call::Put {
            priority: Priority(0),
            delay: Seconds(0),
            ttr: Seconds(1),
            body,
        }],
    );
    assert!(
        bob.line.is_full(),
        "64 KiB behind a parked reserve are enough"
    );
    assert!(
        story.origin.outbound.budget.has_room(),
        "and do not count for the node"
    );
    story.say(&ann, [Call::Use(tube("empty")), put("x")]);
    story.run();
    assert!(!bob.line.is_full());
}

#[test]
fn the_budget_of_the_node_is_given_back_when_commands_are_applied() {
    let mut story = Story::begins();
    let ann = story.client();
    let body = Bytes::from(vec![0; limits::NODE_PENDING_BYTES_MAX]);
    story.say(
        &ann,
        [Call::Put {
            priority: Priority(0),
            delay: Seconds(0),
            ttr: Seconds(1),
            body,
        }],
    );
    assert!(!story.origin.outbound.budget.has_room());
    story.run();
    assert!(story.origin.outbound.budget.has_room());
}

#[test]
fn a_wait_may_end_inside_the_batch_in_which_the_next_one_begins() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&ann, [put("a"), RESERVE, RESERVE]);
    story.say(&bob, [put("b")]);
    story.say(&ann, [RESERVE]);
    story.run();
    assert_eq!(ann.hears(), ["inserted 1", "reserved 1", "reserved 2"]);
    assert_eq!(story.machine.server().waiting, 1);
    let parked = |story: &Story| {
        let connection = &story.origin.sessions[&ann.id];
        (connection.parked_place(), connection.may_be_parked())
    };
    assert_eq!(parked(&story), (Some(0), true));
}
