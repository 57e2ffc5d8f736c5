//! The lean part of the model, for every day: the small worlds that are quickly explored, some
//! thousand walks, and each rule that a few of them miss. `make model` is the whole.

use std::time::Duration;

use trellis_sim::model::{Rule, explore, kind_of, scenarios, walk};

/// More than any of these may take; they end by states and walks.
const LONG: Duration = Duration::from_secs(600);

#[test]
fn small_worlds_keep_all_promises_in_every_order() {
    for scenario in scenarios() {
        let explored = explore(&scenario.setup, 4_000, LONG);
        if let Some(violation) = explored.violation {
            panic!("{}: {violation}", scenario.name);
        }
    }
}

#[test]
fn a_crash_and_an_election_are_explored_to_the_end() {
    let scenario = scenarios()
        .into_iter()
        .find(|scenario| scenario.name == "crash-and-election")
        .expect("a scenario of that name");
    let explored = explore(&scenario.setup, usize::MAX, LONG);
    assert!(explored.violation.is_none(), "{:?}", explored.violation);
    assert!(explored.complete);
    assert!(explored.rests > 0, "some of it comes to rest");
}

#[test]
fn walks_through_random_worlds_break_no_promise() {
    let walked = walk(1, None, 5_000, LONG);
    if let Some((seed, violation)) = walked.violation {
        panic!(
            "replay: cargo run -p trellis-sim --release -- model walk --seed {seed} --walks 1\n{violation}"
        );
    }
    assert_eq!(walked.walks, 5_000);
}

#[test]
fn the_same_seed_is_the_same_walk() {
    let steps = || walk(4_711, None, 50, LONG).steps;
    assert_eq!(steps(), steps());
    let broken = || {
        let (seed, violation) = walk(1, Some(Rule::Dedupe), 200, LONG)
            .violation
            .expect("a breach");
        (seed, violation.to_string())
    };
    assert_eq!(broken(), broken(), "to the last step of its trace");
}

#[test]
fn whichever_rule_is_dropped_is_missed() {
    for rule in Rule::all() {
        let walked = walk(1, Some(*rule), 5_000, LONG);
        assert!(walked.violation.is_some(), "nobody misses {}", rule.name());
    }
}

/// A breach says what is broken, so the first one has to be the right one.
#[test]
fn what_is_missed_has_the_right_name() {
    let kinds = [
        (Rule::Dedupe, "DOUBLE"),
        (Rule::Unopened, "ENDED"),
        (Rule::ExemptClose, "REST"),
        (Rule::ResumeOffers, "MACHINE"),
        (Rule::PassedOver, "ABSENT"),
        (Rule::PollReadIndex, "LIE"),
        (Rule::SureReference, "TUBE"),
    ];
    for (rule, kind) in kinds {
        let (_, violation) = walk(1, Some(rule), 5_000, LONG)
            .violation
            .expect("a breach");
        assert_eq!(kind_of(&violation.breach), kind, "{violation}");
    }
}
