//! A queue that does wrong is refused, and the right promise is named.

use trellis_checker::{Invariant, Invariant::*, check, workload::Profile};

use crate::queue::{Bug, play};

/// Whatever the seed it is refused, and what is found first, and what is found at all, is this.
fn refused(bug: Bug, profile: &str, first: &[Invariant], also: Invariant) {
    let profile = Profile::named(profile).expect("a profile");
    for seed in 1..=5 {
        // Unknown outcomes must not hide it.
        let deaths = seed % 2 == 0;
        println!("{bug:?}, seed {seed}, deaths {deaths}");
        let verdict = check(play(seed, &profile, 20, deaths, bug)).expect("a history");
        assert!(
            verdict.first().is_some_and(|found| first.contains(&found))
                && verdict
                    .findings
                    .iter()
                    .any(|finding| finding.invariant == also),
            "{bug:?}, seed {seed}:\n{verdict}"
        );
    }
}

#[test]
fn a_queue_that_loses_jobs() {
    refused(Bug::Loses, "mixed", &[I1], I1);
}

#[test]
fn a_queue_that_takes_holds_away() {
    // What was taken away is seen first by whoever looks first.
    refused(Bug::StealsHolds, "mixed", &[I3, I5, I10, I17], I5);
}

#[test]
fn a_queue_that_hurries_delays() {
    refused(Bug::HurriesDelays, "timers", &[I9, I10, I17], I9);
}

#[test]
fn a_queue_that_reads_an_old_state() {
    refused(Bug::ReadsOld, "mixed", &[I17, I10], I17);
}

#[test]
fn a_queue_whose_time_jumps_ahead() {
    refused(Bug::JumpsAhead, "timers", &[I12, I9, I5], I12);
}

#[test]
fn a_queue_that_brings_back_what_was_deleted() {
    refused(Bug::Resurrects, "mixed", &[I2], I2);
}

#[test]
fn a_queue_that_delivers_the_worse_job_first() {
    refused(Bug::Unordered, "mixed", &[I8, I17], I8);
}

#[test]
fn a_queue_that_hides_jobs_from_polls() {
    refused(Bug::HidesJobs, "mixed", &[I17], I17);
}

#[test]
fn a_queue_that_changes_a_byte() {
    refused(Bug::Corrupts, "mixed", &[I20], I20);
}

#[test]
fn nodes_that_differ() {
    refused(Bug::Diverges, "mixed", &[I11], I11);
}
