use trellis_queue::LeaderCommand;
use trellis_types::limits;

use super::*;

#[test]
fn the_first_use_of_a_tube_waits_for_its_reference_and_the_next_does_not() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&ann, [Call::Use(tube("mail"))]);
    assert_eq!(ann.hears(), [""; 0]);
    story.say(&bob, [Call::Watch(tube("mail"))]);
    assert_eq!(
        bob.hears(),
        [""; 0],
        "a TubeRef of that tube is outstanding"
    );
    story.run();
    assert_eq!(ann.hears(), ["using mail"]);
    assert_eq!(bob.hears(), ["watching 2"]);
    assert!(story.machine.has_reference(Story::own(1), &tube("mail")));
    let logged = story.logged;
    let eve = story.client();
    story.say(&eve, [Call::Watch(tube("mail")), Call::Use(tube("mail"))]);
    assert_eq!(eve.hears(), ["watching 2", "using mail"], "at once");
    assert_eq!(story.logged, logged);
}

#[test]
fn a_watch_list_that_is_full_takes_no_name_more_but_lets_one_go() {
    let mut story = Story::begins();
    let ann = story.client();
    for nth in 1..limits::WATCH_NAMES_MAX_DEFAULT {
        story.say(&ann, [Call::Watch(tube(&format!("tube-{nth}")))]);
        story.run();
    }
    let heard = ann.hears();
    assert_eq!(heard.last().map(String::as_str), Some("watching 1024"));
    story.say(
        &ann,
        [Call::Watch(tube("more")), Call::Watch(tube("tube-7"))],
    );
    assert_eq!(ann.hears(), ["OutOfMemory", "watching 1024"]);
    assert!(!story.machine.has_reference(Story::own(1), &tube("more")));

    story.say(
        &ann,
        [Call::Ignore(tube("tube-7")), Call::Watch(tube("more"))],
    );
    story.run();
    assert_eq!(ann.hears(), ["watching 1023", "watching 1024"]);
}

#[test]
fn a_tube_lives_as_long_as_somebody_is_interested() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&ann, [Call::Use(tube("mail"))]);
    story.say(&bob, [Call::Watch(tube("mail"))]);
    story.run();
    story.say(&ann, [Call::Use(tube("default"))]);
    story.run();
    assert_eq!(story.machine.tubes().count(), 2, "Bob watches it");
    story.hangs_up(&bob);
    story.run();
    assert_eq!(story.machine.tubes().count(), 1);
    assert!(!story.machine.has_reference(Story::own(1), &tube("mail")));
}

#[test]
fn while_a_clear_is_under_way_the_reference_is_set_again() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(&ann, [Call::Use(tube("mail"))]);
    story.run();
    story.say(&ann, [Call::Use(tube("default"))]);
    story.hand();
    story.say(&bob, [Call::Use(tube("mail"))]);
    assert_eq!(
        bob.hears(),
        [""; 0],
        "the machine is about to forget the tube"
    );
    story.run();
    assert_eq!(bob.hears(), ["using mail"]);
    assert!(story.machine.has_reference(Story::own(1), &tube("mail")));
}

#[test]
fn a_put_goes_to_the_tube_that_was_used_when_its_turn_came() {
    let mut story = Story::begins();
    let ann = story.client();
    story.say(
        &ann,
        [
            Call::Use(tube("a")),
            put("1"),
            Call::Use(tube("b")),
            put("2"),
            put("3"),
            Call::ListTubeUsed,
        ],
    );
    story.run();
    assert_eq!(
        ann.hears(),
        [
            "using a",
            "inserted 1",
            "using b",
            "inserted 2",
            "inserted 3",
            "using b"
        ]
    );
    let ready = |name| {
        story
            .machine
            .tube(&tube(name), Timestamp(0))
            .map(|view| view.ready)
    };
    assert_eq!((ready("a"), ready("b")), (Some(1), Some(2)));
}

#[test]
fn what_a_skipped_put_uses_is_decided_when_it_is_sent_again_in_its_place() {
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    story.say(
        &ann,
        [
            RESERVE,
            put("into default"),
            Call::Use(tube("b")),
            put("into b"),
        ],
    );
    story.run();
    story.say(&bob, [put("x")]);
    story.run();
    assert_eq!(
        ann.hears(),
        ["reserved 1", "inserted 2", "using b", "inserted 3"]
    );
    let tube_of = |job| {
        story
            .machine
            .job(JobId(job), Timestamp(0))
            .map(|view| view.tube)
    };
    assert_eq!(tube_of(2), Some(tube("default")));
    assert_eq!(tube_of(3), Some(tube("b")));
    assert!(story.machine.has_reference(Story::own(1), &tube("b")));
}

#[test]
fn the_watch_list_keeps_order_with_the_last_moving_into_the_gap() {
    // Edges 109 to 111.
    let mut story = Story::begins();
    let ann = story.client();
    story.say(
        &ann,
        [
            Call::Ignore(tube("default")),
            Call::Watch(tube("a")),
            Call::Watch(tube("b")),
            Call::Watch(tube("c")),
            Call::Watch(tube("c")),
            Call::Ignore(tube("nowhere")),
            Call::Ignore(tube("default")),
            Call::ListTubesWatched,
        ],
    );
    story.run();
    assert_eq!(
        ann.hears(),
        [
            "NotIgnored",
            "watching 2",
            "watching 3",
            "watching 4",
            "watching 4",
            "watching 4",
            "watching 3",
            "c,a,b"
        ]
    );
}

#[test]
fn a_tube_too_many_is_out_of_memory_and_changes_nothing() {
    let mut story = Story::begins();
    let ann = story.client();
    story.leads(LeaderCommand::Set(trellis_queue::Setting::TubesMax(1)));
    story.say(&ann, [Call::Use(tube("mail")), Call::Watch(tube("mail"))]);
    story.run();
    assert_eq!(ann.hears(), ["OutOfMemory", "OutOfMemory"]);
    story.say(&ann, [Call::ListTubeUsed, Call::ListTubesWatched]);
    assert_eq!(ann.hears(), ["using default", "default"]);
    assert_eq!(story.origin.interest(&tube("mail")), (0, 0));
    story.run();
    assert_eq!(story.machine.tubes().count(), 1);
}

#[test]
fn using_and_watching_are_counted_per_connection() {
    // Edge 120.
    let mut story = Story::begins();
    let (ann, bob) = (story.client(), story.client());
    assert_eq!(story.origin.interest(&tube("default")), (2, 2));
    story.say(
        &ann,
        [
            Call::Use(tube("a")),
            Call::Use(tube("a")),
            Call::Watch(tube("a")),
        ],
    );
    story.run();
    assert_eq!(story.origin.interest(&tube("a")), (1, 1));
    assert_eq!(story.origin.interest(&tube("default")), (1, 2));
    story.hangs_up(&bob);
    assert_eq!(story.origin.interest(&tube("default")), (0, 1));
}
