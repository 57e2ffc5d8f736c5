//! Kicks that are too large for one entry.

use trellis_types::{Seconds, limits};

use super::*;

/// There are `count` delayed jobs.
fn delayed(story: &mut Story, count: u32) {
    let bob = story.client();
    story.say(
        &bob,
        (0..count).map(|_| Call::Put {
            priority: trellis_types::Priority(0),
            delay: Seconds(900),
            ttr: Seconds(60),
            body: Bytes::new(),
        }),
    );
    story.run();
    assert_eq!(bob.hears().len(), count as usize);
}

#[test]
fn a_large_kick_is_carried_out_in_portions_and_answered_once() {
    let mut story = Story::begins();
    let count = 2 * limits::KICK_PORTION_JOBS + 7;
    delayed(&mut story, count);
    let ann = story.client();
    let (kick, puts) = (Call::Kick { bound: 9_999_999 }, [put("a"), put("b")]);
    story.say(&ann, [kick].into_iter().chain(puts));
    // One for the buried, of which there are none, and three for the delayed ones.
    for portion in 0..4 {
        assert_eq!(story.hand(), 1, "portion {portion}");
        assert_eq!(ann.hears(), [""; 0], "portion {portion}");
        assert_eq!(
            story.hand(),
            0,
            "one portion after the other, and nothing behind it"
        );
        // Others have their turn.
        let bob = story.client();
        story.say(&bob, [put("his")]);
        story.hand();
        story.commit();
        assert_eq!(bob.hears().len(), 1, "portion {portion}");
    }
    assert_eq!(ann.hears(), [format!("Kicked({count})")]);
    story.run();
    assert_eq!(ann.hears().len(), 2, "what stood behind it");
    assert_eq!(story.machine.server().delayed, 0);
}

#[test]
fn a_large_kick_takes_longer_than_a_command_may_and_is_not_late() {
    let mut story = Story::begins();
    delayed(&mut story, 3 * limits::KICK_PORTION_JOBS);
    let ann = story.client();
    let bound = 3 * limits::KICK_PORTION_JOBS - 5;
    story.say(&ann, [Call::Kick { bound }]);
    for _ in 0..4 {
        story.wait(3_000);
        story.hand();
        story.commit();
    }
    assert_eq!(ann.hears(), [format!("Kicked({bound})")]);
}

#[test]
fn a_large_kick_that_finds_no_leader_for_the_rest_says_what_it_has_done() {
    let mut story = Story::begins();
    delayed(&mut story, 3 * limits::KICK_PORTION_JOBS);
    let ann = story.client();
    story.say(&ann, [Call::Kick { bound: 700 }, put("next")]);
    for _ in 0..2 {
        story.hand();
        story.commit();
    }
    story.wait(6_000);
    let kicked = limits::KICK_PORTION_JOBS;
    assert_eq!(ann.hears(), [format!("Kicked({kicked})")]);
    story.run();
    assert_eq!(ann.hears().len(), 1);
}

/// A drain cut it off without a word, although jobs were moved.
#[test]
fn a_large_kick_on_a_node_that_leaves_says_what_it_has_done() {
    let mut story = Story::begins();
    delayed(&mut story, 3 * limits::KICK_PORTION_JOBS);
    let ann = story.client();
    let bound = 3 * limits::KICK_PORTION_JOBS - 5;
    story.say(&ann, [Call::Kick { bound }]);
    for _ in 0..2 {
        story.hand();
        story.commit();
    }
    assert!(ann.hears().is_empty(), "it goes on");
    let now = story.now;
    story.origin.leave(now);
    story.run();
    let kicked = format!("Kicked({})", 2 * limits::KICK_PORTION_JOBS);
    assert_eq!(ann.hears(), [&kicked, "closed: Drained"]);
}

#[test]
fn a_large_kick_rests_between_portions_while_others_work() {
    let mut story = Story::begins();
    delayed(&mut story, 3 * limits::KICK_PORTION_JOBS);
    story.wait(10_000);
    let (ann, bob) = (story.client(), story.client());
    let bound = 3 * limits::KICK_PORTION_JOBS - 5;
    story.say(&ann, [Call::Kick { bound }]);
    // Bob is heard of behind the first portion, which looks for buried jobs.
    story.hand();
    story.say(&bob, [put("his")]);
    story.hand();
    story.commit();
    assert_eq!(story.hand(), 1);
    // So long the second one was on its way.
    story.wait(4);
    story.commit();
    assert_eq!(story.hand(), 0, "others have the nodes for a while");
    story.wait(11);
    assert_eq!(story.hand(), 0);
    story.wait(1);
    assert_eq!(story.hand(), 1);
    // Bob has gone home.
    story.wait(600);
    story.commit();
    assert_eq!(story.hand(), 1, "nobody is disturbed");
    story.commit();
    assert_eq!(ann.hears(), [format!("Kicked({bound})")]);
}
