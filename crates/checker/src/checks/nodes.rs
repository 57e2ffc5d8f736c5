//! I10 and I11: nodes hold the same, and count what they hold.

use std::collections::{BTreeMap, HashMap};

use trellis_types::Priority;

use crate::{
    Coverage, Finding, Invariant, Run,
    history::{Call, FinalState, JobState, Nanos},
    slice,
};

/// Digests at equal indices, final states against each other, counters against jobs.
pub(super) fn check(run: &Run, coverage: &mut Coverage) -> Vec<Finding> {
    let mut findings = digests(run, coverage);
    for state in &run.finals {
        findings.extend(counters(run, state));
    }
    findings.extend(totals(run));
    findings.extend(alike(run));
    findings
}

fn digests(run: &Run, coverage: &mut Coverage) -> Vec<Finding> {
    let sampled = run
        .samples
        .iter()
        .map(|sample| (sample.t, &sample.node, sample.digest_at, &sample.digest));
    let last = run
        .finals
        .iter()
        .map(|state| (state.ended, &state.node, state.digest_at, &state.digest));
    let mut known: HashMap<u64, (&String, &String, Nanos)> = HashMap::new();
    let mut compared = 0;
    for (t, node, at, digest) in sampled.chain(last) {
        let (Some(at), Some(digest)) = (at, digest) else {
            continue;
        };
        let (other, expected, since) = *known.entry(at).or_insert((node, digest, t));
        compared += u64::from(other != node);
        if expected != digest {
            let words = format!("{other} and {node} differ at applied index {at}");
            let lines = vec![
                format!(
                    "{} {other}: digest {expected} at {at}",
                    slice::moment(run, since)
                ),
                format!("{} {node}: digest {digest} at {at}", slice::moment(run, t)),
            ];
            return vec![Finding::new(run, Invariant::I11, t, words, lines)];
        }
    }
    coverage
        .conditions
        .insert("digests compared".to_owned(), compared);
    Vec::new()
}

/// The tubes' counters against the jobs that are there.
fn counters(run: &Run, state: &FinalState) -> Option<Finding> {
    let mut counted: BTreeMap<&str, [u64; 5]> = BTreeMap::new();
    for job in &state.jobs {
        let counts = counted.entry(job.tube.as_str()).or_default();
        let place = match job.state {
            JobState::Ready => 0,
            JobState::Reserved => 1,
            JobState::Delayed => 2,
            JobState::Buried => 3,
        };
        counts[place] += 1;
        let urgent = job.state == JobState::Ready && job.priority.is_urgent();
        counts[4] += u64::from(urgent);
    }
    let told: BTreeMap<&str, [u64; 5]> = state
        .tubes
        .iter()
        .map(|tube| {
            let counts = [
                tube.ready,
                tube.reserved,
                tube.delayed,
                tube.buried,
                tube.urgent,
            ];
            (tube.tube.as_str(), counts)
        })
        .collect();
    let names = counted.keys().chain(told.keys());
    for name in names {
        let there = counted.get(name).copied().unwrap_or_default();
        let said = told.get(name).copied().unwrap_or_default();
        if there != said {
            let words = format!(
                "{} counts in tube {name} {said:?} jobs as ready, reserved, delayed, buried, ready below priority {}; there are {there:?}",
                state.node,
                Priority::URGENT_BELOW
            );
            return Some(Finding::new(
                run,
                Invariant::I10,
                state.ended,
                words,
                Vec::new(),
            ));
        }
    }
    None
}

/// `total-jobs` against the puts.
fn totals(run: &Run) -> Option<Finding> {
    let is_put = |call: &Call| matches!(call, Call::Put { .. });
    let puts = run.ops.iter().filter(|op| is_put(&op.call));
    let (mut least, mut most) = (0, 0);
    for put in puts {
        least += u64::from(put.is_acknowledged());
        most += u64::from(put.is_acknowledged() || put.answer().is_none());
    }
    run.finals.iter().find_map(|state| {
        let total = state.total_jobs?;
        let words = format!(
            "{} counts {total} jobs put; {least} puts were acknowledged and {} more may have happened",
            state.node,
            most - least
        );
        (!(least..=most).contains(&total))
            .then(|| Finding::new(run, Invariant::I10, state.ended, words, Vec::new()))
    })
}

/// All nodes show the same jobs once everything is over, but for what runs with time.
fn alike(run: &Run) -> Option<Finding> {
    let (first, others) = run.finals.split_first()?;
    let shown = |state: &FinalState| -> BTreeMap<u64, String> {
        let told = state.jobs.iter().map(|job| {
            let mut job = job.clone();
            (job.age, job.time_left) = (0, 0);
            (job.job.0, format!("{job:?}"))
        });
        told.collect()
    };
    // Nothing that time moves by itself between two readings.
    let still = |state: &FinalState| {
        let moves = |job_state| matches!(job_state, JobState::Reserved | JobState::Delayed);
        !state.jobs.iter().any(|job| moves(job.state))
    };
    let expected = shown(first);
    for state in others {
        if !still(first) || !still(state) || state.up_to != first.up_to {
            continue;
        }
        let there = shown(state);
        if there != expected {
            let differs = |id: &&u64| there.get(id) != expected.get(id);
            let id = expected.keys().chain(there.keys()).find(differs);
            let id = id.copied().unwrap_or_default();
            let words = format!("{} and {} differ in job {id}", first.node, state.node);
            let line = |node: &str, jobs: &BTreeMap<u64, String>| {
                format!(
                    "{node}: {}",
                    jobs.get(&id).map_or("it does not exist", |job| job)
                )
            };
            let lines = vec![line(&first.node, &expected), line(&state.node, &there)];
            return Some(Finding::new(run, Invariant::I11, state.ended, words, lines));
        }
    }
    None
}
