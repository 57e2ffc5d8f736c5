//! I8 and I17 without a search: what was surely ready all the while somebody was served something
//! worse, or nothing.

use std::collections::{BTreeMap, BTreeSet};

use trellis_types::{Seconds, TubeName};

use crate::{
    Coverage, Finding, Invariant, Run,
    history::{Call, Nanos, Reply},
    partition::{Plan, TubeFile},
    slice,
};

/// A time in which a job was ready whatever order one chooses.
#[derive(Clone, Copy, Debug)]
struct Ready {
    from: Nanos,
    to: Nanos,
    key: (u32, u64),
    job: usize,
    by: usize,
}

/// Holds each delivery, and each `TIMED_OUT`, against what was surely ready.
pub(super) fn check(
    run: &Run,
    plan: &Plan,
    broken: &BTreeSet<TubeName>,
    coverage: &mut Coverage,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut looked = 0;
    for (name, tube) in plan
        .tubes
        .iter()
        .filter(|(name, _)| !broken.contains(*name))
    {
        let ready = surely_ready(run, plan, tube);
        let pauses = pauses(run, tube);
        let served = served(run, plan, tube);
        looked += served.len() as u64;
        if let Some(finding) = first_breach(run, plan, name, &ready, &pauses, &served) {
            findings.push(finding);
        }
    }
    coverage
        .conditions
        .insert("reserves against what was surely ready".to_owned(), looked);
    findings
}

/// Reserves of a tube by the moment of their questions, with what they got of it.
fn served(run: &Run, plan: &Plan, tube: &TubeFile) -> Vec<(usize, Option<usize>)> {
    let mut served = Vec::new();
    for job in &tube.jobs {
        for op in &plan.jobs[*job].ops {
            let reserve = matches!(run.ops[*op].call, Call::Reserve { .. });
            if reserve && matches!(run.ops[*op].answer(), Some(Reply::Reserved { .. })) {
                served.push((*op, Some(*job)));
            }
        }
    }
    for op in &tube.ops {
        let operation = &run.ops[*op];
        let reserve = matches!(operation.call, Call::Reserve { .. });
        if reserve && run.is_firm(operation) {
            served.push((*op, None));
        }
    }
    served.sort_unstable();
    served
}

fn surely_ready(run: &Run, plan: &Plan, tube: &TubeFile) -> Vec<Ready> {
    let mut times = Vec::new();
    for job in &tube.jobs {
        let file = &plan.jobs[*job];
        for by in &file.ops {
            let op = &run.ops[*by];
            let priority = match (&op.call, op.answer()) {
                (
                    Call::Put {
                        priority,
                        delay: Seconds(0),
                        ..
                    },
                    Some(Reply::Inserted { .. }),
                )
                | (
                    Call::Release {
                        priority,
                        delay: Seconds(0),
                        ..
                    },
                    Some(Reply::Released),
                ) => priority.0,
                _ => continue,
            };
            // Whatever else may have changed it, not surely before it became ready.
            let others = file.ops.iter().filter(|other| **other != *by);
            let to = others
                .map(|other| &run.ops[*other])
                .filter(|other| !other.call.is_read() && other.to() >= op.from)
                .map(|other| other.from)
                .min()
                .unwrap_or(Nanos::MAX);
            // So may reserves without an answer.
            let ghosts = tube.ghosts.first().copied().unwrap_or(Nanos::MAX);
            let to = to.min(ghosts);
            if to > op.heard {
                times.push(Ready {
                    from: op.heard,
                    to,
                    key: (priority, file.facts.id),
                    job: *job,
                    by: *by,
                });
            }
        }
    }
    times.sort_by_key(|ready| ready.from);
    times
}

/// Times in which the tube may have been paused.
fn pauses(run: &Run, tube: &TubeFile) -> Vec<(Nanos, Nanos)> {
    let late = run.header.bounds.late_ms.saturating_mul(1_000_000);
    let of = |op: &usize| {
        let operation = &run.ops[*op];
        let Call::PauseTube { delay, .. } = &operation.call else {
            return None;
        };
        let pause = delay.as_ms().saturating_mul(1_000_000);
        let over = run
            .standstill()
            .put_off(operation.to().saturating_add(pause));
        (delay.0 > 0).then(|| (operation.from, over.saturating_add(late)))
    };
    tube.ops.iter().filter_map(of).collect()
}

fn first_breach(
    run: &Run,
    plan: &Plan,
    name: &TubeName,
    ready: &[Ready],
    pauses: &[(Nanos, Nanos)],
    served: &[(usize, Option<usize>)],
) -> Option<Finding> {
    let mut coming = ready.iter().peekable();
    let mut there: BTreeMap<(u32, u64), Ready> = BTreeMap::new();
    for (at, got) in served {
        let op = &run.ops[*at];
        while let Some(ready) = coming.next_if(|ready| ready.from <= op.from) {
            there.insert(ready.key, *ready);
        }
        there.retain(|_, ready| ready.to > op.from);
        if pauses
            .iter()
            .any(|(from, to)| *from <= op.heard && *to >= op.from)
        {
            continue;
        }
        // A job's priority when it was taken is that of the last put or release before.
        let key = match got {
            None => None,
            Some(job) => Some((priority_at(run, plan, *job, *at)?, plan.jobs[*job].facts.id)),
        };
        let better = there
            .values()
            .take_while(|ready| key.is_none_or(|key| ready.key < key))
            .find(|ready| ready.to > op.heard && Some(ready.job) != *got);
        let Some(better) = better else { continue };
        let waiting = plan.name(run, better.job);
        let (invariant, words) = match got {
            Some(job) => (
                Invariant::I8,
                format!(
                    "{} was delivered while {waiting} was ready and better",
                    plan.name(run, *job)
                ),
            ),
            None => (
                Invariant::I17,
                format!("nothing was ready in tube {name}, somebody was told, while {waiting} was"),
            ),
        };
        let put = got.map(|job| plan.jobs[job].put);
        let slice = slice::lines(run, [better.by, *at].into_iter().chain(put));
        return Some(Finding::new(run, invariant, op.heard, words, slice));
    }
    None
}

/// The largest priority that a job can have had when operation `taken` took it.
fn priority_at(run: &Run, plan: &Plan, job: usize, taken: usize) -> Option<u32> {
    let taken = &run.ops[taken];
    let best = plan.jobs[job]
        .ops
        .iter()
        .map(|op| &run.ops[*op])
        .filter(|op| op.from <= taken.heard)
        .filter_map(|op| match &op.call {
            Call::Put { priority, .. }
            | Call::Release { priority, .. }
            | Call::Bury { priority, .. } => Some(priority.0),
            _ => None,
        });
    // The most urgent of them: only what beats that was surely better.
    best.min()
}
