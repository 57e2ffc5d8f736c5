//! I7: ids are unique and increase in the order of commits.

use std::collections::HashMap;

use crate::{
    Coverage, Finding, Invariant, Run,
    history::{Call, Reply},
    slice,
};

/// Two puts never get one id, and who puts after another was answered gets the larger id.
pub(super) fn check(run: &Run, coverage: &mut Coverage) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut puts = Vec::new();
    let mut owner: HashMap<u64, usize> = HashMap::new();
    for (at, op) in run.ops.iter().enumerate() {
        if !matches!(op.call, Call::Put { .. }) {
            continue;
        }
        let Some(Reply::Inserted { job }) = op.answer() else {
            continue;
        };
        if let Some(first) = owner.insert(job.0, at) {
            findings.push(Finding::new(
                run,
                Invariant::I7,
                op.heard,
                format!("two puts were given the id {job}"),
                slice::lines(run, [first, at]),
            ));
        }
        puts.push((at, job.0));
    }
    coverage
        .conditions
        .insert("ids in order".to_owned(), puts.len() as u64);

    // Puts are sorted by their questions; those answered so far by their answers.
    let mut answered = puts.clone();
    answered.sort_by_key(|(at, _)| run.ops[*at].heard);
    let mut answered = answered.into_iter().peekable();
    let mut largest: Option<(usize, u64)> = None;
    for (at, id) in puts {
        while let Some((before, largest_id)) =
            answered.next_if(|(before, _)| run.ops[*before].heard < run.ops[at].from)
        {
            if largest.is_none_or(|(_, id)| id < largest_id) {
                largest = Some((before, largest_id));
            }
        }
        if let Some((before, larger)) = largest
            && larger > id
        {
            findings.push(Finding::new(
                run,
                Invariant::I7,
                run.ops[at].heard,
                format!("a later put was given the smaller id {id}, after {larger}"),
                slice::lines(run, [before, at]),
            ));
            break;
        }
    }
    findings
}
