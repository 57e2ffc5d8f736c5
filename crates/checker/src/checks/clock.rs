//! I12: the cluster's time never runs back, nor ahead of real time.

use crate::{
    Coverage, Finding, Invariant, Run,
    history::{Call, MILLI, Nanos, Reply, SECOND},
    partition::Plan,
    slice,
};

/// Samples of the nodes, ages of jobs, and waits that end.
pub(super) fn check(run: &Run, plan: &Plan, coverage: &mut Coverage) -> Vec<Finding> {
    let findings = [
        samples(run, coverage),
        ages(run, plan, coverage),
        waits(run),
    ];
    findings.into_iter().flatten().collect()
}

/// More applied, and yet an earlier time.
fn samples(run: &Run, coverage: &mut Coverage) -> Option<Finding> {
    let mut told: Vec<_> = run
        .samples
        .iter()
        .filter_map(|sample| Some((sample.applied, sample.now?, sample)))
        .collect();
    coverage.conditions.insert(
        "samples of the cluster's time".to_owned(),
        told.len() as u64,
    );
    told.sort_by_key(|(applied, now, _)| (*applied, *now));
    // A node reads index and time one after the other, while it goes on applying.
    let apart = run.header.bounds.late_ms;
    let mut latest = None;
    for (applied, now, sample) in told {
        if let Some((before, then, of)) = latest
            && now.saturating_add(apart) < then
        {
            let words = format!(
                "the cluster's time was {then} ms at applied index {before} and {now} ms at {applied}"
            );
            let lines = vec![line(run, of), line(run, sample)];
            return Some(Finding::new(run, Invariant::I12, sample.t, words, lines));
        }
        latest = Some((applied, now, sample));
    }
    None
}

fn line(run: &Run, sample: &crate::run::Sample) -> String {
    format!(
        "{} {}: applied {} at {} ms",
        slice::moment(run, sample.t),
        sample.node,
        sample.applied,
        sample.now.unwrap_or_default()
    )
}

/// A job is as old as the time since its put.
fn ages(run: &Run, plan: &Plan, coverage: &mut Coverage) -> Option<Finding> {
    let early = run.header.bounds.early_ms.saturating_mul(MILLI);
    let late = run.header.bounds.late_ms.saturating_mul(MILLI);
    let mut ages = 0;
    for job in &plan.jobs {
        let put = &run.ops[job.put];
        for at in &job.ops {
            let op = &run.ops[*at];
            let Some(Reply::JobStats(seen)) = op.answer() else {
                continue;
            };
            ages += 1;
            // Whole seconds, cut off.
            let least = seen.age.saturating_mul(SECOND);
            let most = seen.age.saturating_add(1).saturating_mul(SECOND);
            let longest = op.heard.saturating_sub(put.from).saturating_add(early);
            let put_at = if put.answer().is_some() {
                put.heard
            } else {
                op.from
            };
            // A second comes no sooner than the log moves.
            let until = run.standstill().put_off(put_at.saturating_add(most));
            if least > longest || until.saturating_add(late) < op.from {
                let words = format!(
                    "job {} is {} s old, and yet between {:.3} s and {:.3} s have gone by since its put",
                    job.facts.id,
                    seen.age,
                    seconds(op.from.saturating_sub(put_at)),
                    seconds(op.heard.saturating_sub(put.from)),
                );
                let slice = slice::lines(run, [job.put, *at]);
                return Some(Finding::new(run, Invariant::I12, op.heard, words, slice));
            }
        }
    }
    coverage.conditions.insert("ages of jobs".to_owned(), ages);
    None
}

fn seconds(time: Nanos) -> f64 {
    time as f64 / SECOND as f64
}

/// A wait does not time out before its time.
fn waits(run: &Run) -> Option<Finding> {
    let early = run.header.bounds.early_ms.saturating_mul(MILLI);
    run.ops.iter().enumerate().find_map(|(at, op)| {
        let Call::Reserve { timeout, .. } = &op.call else {
            return None;
        };
        if op.answer() != Some(&Reply::TimedOut) {
            return None;
        }
        let waited = op.heard - op.from;
        let words = match timeout {
            None => "a wait without an end timed out".to_owned(),
            Some(timeout) if waited.saturating_add(early) < timeout.as_ms() * MILLI => {
                format!(
                    "a wait of {} s timed out after {:.3} s",
                    timeout.0,
                    seconds(waited)
                )
            }
            Some(_) => return None,
        };
        let slice = slice::lines(run, [at]);
        Some(Finding::new(run, Invariant::I12, op.heard, words, slice))
    })
}
