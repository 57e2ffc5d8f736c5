//! What is left when all is over: nothing stuck (I6), and nothing that nobody put (I7).

use std::collections::HashSet;

use crate::{
    Coverage, Finding, Invariant, Run,
    history::{JobState, Reply},
    partition::Plan,
    slice,
};

/// The last phase and the final states.
pub(super) fn check(run: &Run, plan: &Plan, coverage: &mut Coverage) -> Vec<Finding> {
    let mut findings = Vec::new();
    let left = run.finals.iter().map(|state| state.jobs.len() as u64).max();
    coverage
        .conditions
        .insert("jobs left at the end".to_owned(), left.unwrap_or_default());
    if let Some(liveness) = &run.liveness {
        if !liveness.drained {
            let words = format!("what was to drain did not: {}", liveness.left);
            findings.push(Finding::new(
                run,
                Invariant::I6,
                liveness.ended,
                words,
                Vec::new(),
            ));
        } else if let Some(finding) = stuck(run, plan) {
            findings.push(finding);
        }
    }
    findings.extend(strangers(run, plan));
    findings
}

/// Everything was drained; so nothing can be left.
fn stuck(run: &Run, plan: &Plan) -> Option<Finding> {
    run.finals.iter().find_map(|state| {
        let job = state.jobs.first()?;
        let words = format!(
            "everything had been drained, and yet {} holds {} jobs, the first of them {} ({})",
            state.node,
            state.jobs.len(),
            job.job,
            job.state
        );
        let ops = plan
            .by_id
            .get(&job.job.0)
            .map(|job| plan.jobs[*job].ops.clone());
        let mut lines = slice::lines(run, ops.unwrap_or_default());
        lines.push(format!(
            "{} at the end, on {}: {}",
            slice::moment(run, state.t),
            state.node,
            Reply::JobStats(job.clone())
        ));
        if job.state == JobState::Reserved {
            lines.push("nobody is left who could hold it".to_owned());
        }
        Some(Finding::new(run, Invariant::I6, state.ended, words, lines))
    })
}

/// Jobs that were seen at the end, and that no put can have made.
fn strangers(run: &Run, plan: &Plan) -> Option<Finding> {
    let unseen: usize = plan.tubes.values().map(|tube| tube.strangers.len()).sum();
    run.finals.iter().find_map(|state| {
        let strange: HashSet<u64> = state
            .jobs
            .iter()
            .map(|job| job.job.0)
            .filter(|id| !plan.by_id.contains_key(id))
            .collect();
        let words = format!(
            "{} holds {} jobs that nobody put, job {} among them; {unseen} puts have an unknown outcome",
            state.node,
            strange.len(),
            strange.iter().min()?
        );
        (strange.len() > unseen)
            .then(|| Finding::new(run, Invariant::I7, state.ended, words, Vec::new()))
    })
}
