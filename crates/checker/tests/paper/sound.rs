//! A sound queue is accepted.

use trellis_checker::{check, workload::Profile};

use crate::queue::{Bug, play};

fn accepted(seed: u64, profile: &str, seconds: u64, deaths: bool) {
    println!("seed {seed}, profile {profile}, deaths {deaths}");
    let profile = Profile::named(profile).expect("a profile");
    let records = play(seed, &profile, seconds, deaths, Bug::None);
    let verdict = check(records).expect("a history");
    assert!(verdict.is_sound(), "seed {seed}:\n{verdict}");
    let coverage = &verdict.coverage;
    assert_eq!(coverage.jobs_unfinished, 0, "seed {seed}:\n{verdict}");
}

#[test]
fn whatever_the_seed_a_sound_queue_is_accepted() {
    for seed in 1..=15 {
        accepted(seed, "mixed", 20, false);
    }
}

#[test]
fn deaths_leave_unknown_outcomes_and_a_sound_queue_is_accepted() {
    for seed in 1..=15 {
        accepted(seed, "mixed", 20, true);
    }
}

#[test]
fn timers_at_their_edges_are_accepted() {
    for seed in 1..=12 {
        accepted(seed, "timers", 40, seed % 2 == 0);
    }
}

#[test]
fn a_busy_queue_is_accepted() {
    for seed in 1..=2 {
        accepted(seed, "busy", 10, true);
    }
}

#[test]
fn one_seed_gives_one_history() {
    let profile = Profile::named("mixed").expect("a profile");
    let play = || play(7, &profile, 10, true, Bug::None);
    assert_eq!(play(), play());
}

/// A long run: what grows with the history is its length alone.
#[test]
fn a_hundred_thousand_operations_are_decided() {
    let profile = Profile::named("busy").expect("a profile");
    let records = play(1, &profile, 110, false, Bug::None);
    let verdict = check(records).expect("a history");
    assert!(verdict.is_sound(), "{verdict}");
    assert!(verdict.coverage.operations >= 100_000, "{verdict}");
    println!("{verdict}");
}
