//! Answers against their own questions: bodies (I20), ids and tubes (I7, I8, I17), warnings (I5).

use std::collections::{HashMap, HashSet};

use trellis_types::JobId;

use crate::{
    Coverage, Finding, Invariant, Run,
    history::{Body, Call, Reply},
    partition::Plan,
    slice,
};

/// Looks at each answer that shows a job, and at answers that fit no question.
pub(super) fn check(run: &Run, plan: &Plan, coverage: &mut Coverage) -> Vec<Finding> {
    let mut puts: HashMap<&str, (usize, &Body)> = HashMap::new();
    for (at, op) in run.ops.iter().enumerate() {
        if let Call::Put { body, .. } = &op.call
            && let Some(key) = &body.key
        {
            puts.insert(key, (at, body));
        }
    }
    let mut findings = Vec::new();
    let mut bodies = 0;
    let mut ids: HashMap<&str, (JobId, usize)> = HashMap::new();
    let mut warned = HashSet::new();
    let mut found = |invariant, at: usize, words: String, ops: Vec<usize>| {
        let slice = slice::lines(run, ops);
        findings.push(Finding::new(
            run,
            invariant,
            run.ops[at].heard,
            words,
            slice,
        ));
    };
    let mut hands: HashMap<u64, u64> = HashMap::new();
    for op in &run.ops {
        if let Some(Reply::Reserved { .. }) = op.answer() {
            let since = hands.entry(op.connection).or_insert(op.from);
            *since = (*since).min(op.from);
        }
    }
    for (at, op) in run.ops.iter().enumerate() {
        let Some(reply) = op.answer() else { continue };
        match (reply, &op.call) {
            (Reply::Inserted { job }, Call::Put { body, .. }) => {
                if let Some(key) = &body.key {
                    ids.entry(key).or_insert((*job, at));
                }
            }
            (Reply::Reserved { job, body } | Reply::Found { job, body }, call) => {
                bodies += 1;
                let Some((key, (put, whole))) =
                    body.key.as_deref().and_then(|key| puts.get_key_value(key))
                else {
                    let words = format!("job {job} has a body that nobody put");
                    let own = plan.by_id.get(&job.0).map(|job| plan.jobs[*job].put);
                    found(
                        Invariant::I20,
                        at,
                        words,
                        own.into_iter().chain([at]).collect(),
                    );
                    continue;
                };
                if body != *whole {
                    let words = format!(
                        "the body [{key}] of job {job} went in as {} bytes with CRC {:08x} and came out as {} bytes with CRC {:08x}",
                        whole.bytes, whole.crc, body.bytes, body.crc
                    );
                    found(Invariant::I20, at, words, vec![*put, at]);
                }
                let (known, first) = *ids.entry(key).or_insert((*job, at));
                if known != *job {
                    let words = format!("what was put as [{key}] has the ids {known} and {job}");
                    found(Invariant::I7, at, words, vec![*put, first, at]);
                }
                if call.job().is_some_and(|asked| asked != *job) {
                    let words = format!("another job was asked for than {job}");
                    found(Invariant::I17, at, words, vec![at]);
                }
                if let (Call::Reserve { tubes, .. }, Call::Put { tube, .. }) =
                    (call, &run.ops[*put].call)
                    && !tubes.contains(tube)
                {
                    let words = format!(
                        "job {job} of tube {tube} was delivered to one who does not watch it"
                    );
                    found(Invariant::I8, at, words, vec![*put, at]);
                }
            }
            (Reply::DeadlineSoon, Call::Reserve { .. }) => {
                let holds = hands
                    .get(&op.connection)
                    .is_some_and(|since| *since < op.heard);
                if !holds && warned.insert(op.connection) {
                    let words = "DEADLINE_SOON was said to one who never held a job".to_owned();
                    found(Invariant::I5, at, words, vec![at]);
                }
            }
            (Reply::JobStats(seen), Call::StatsJob { job }) => {
                if seen.job != *job {
                    let words = format!("another job was asked for than {}", seen.job);
                    found(Invariant::I17, at, words, vec![at]);
                }
            }
            (reply, call) => {
                if !fits(reply, call) {
                    let words = "the answer fits no such question".to_owned();
                    found(Invariant::I17, at, words, vec![at]);
                }
            }
        }
    }
    coverage
        .conditions
        .insert("bodies compared".to_owned(), bodies);
    findings
}

/// Whether the protocol has such an answer to such a question.
fn fits(reply: &Reply, call: &Call) -> bool {
    match reply {
        // What a server may say to anything.
        Reply::OutOfMemory | Reply::InternalError => true,
        Reply::Draining => matches!(call, Call::Put { .. }),
        Reply::NotFound => !matches!(
            call,
            Call::Put { .. } | Call::Reserve { .. } | Call::Kick { .. }
        ),
        Reply::TimedOut | Reply::DeadlineSoon => matches!(call, Call::Reserve { .. }),
        Reply::Deleted => matches!(call, Call::Delete { .. }),
        Reply::Released => matches!(call, Call::Release { .. }),
        Reply::Buried => matches!(call, Call::Bury { .. }),
        Reply::Touched => matches!(call, Call::Touch { .. }),
        Reply::Kicked { .. } => matches!(call, Call::Kick { .. }),
        Reply::KickedJob => matches!(call, Call::KickJob { .. }),
        Reply::Paused => matches!(call, Call::PauseTube { .. }),
        Reply::TubeStats(_) => matches!(call, Call::StatsTube { .. }),
        // Looked at before; here they stand beside a question that they do not fit.
        Reply::Inserted { .. }
        | Reply::Reserved { .. }
        | Reply::Found { .. }
        | Reply::JobStats(_)
        | Reply::Other { .. } => false,
    }
}
