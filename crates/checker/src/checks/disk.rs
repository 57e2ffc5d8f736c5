//! I19: a node that cannot write its disk stops answering.

use std::collections::HashMap;

use crate::{
    Coverage, Finding, Invariant, Run,
    history::{MILLI, Nanos, NodeEvent},
    slice,
};

/// How long after its disk has failed a node may answer what it had synced before, in
/// milliseconds.
const LAST_WORDS_MS: u64 = 1_000;

/// Nothing that went through the log is acknowledged by a node from a moment after its disk failed
/// until it was started again.
pub(super) fn check(run: &Run, coverage: &mut Coverage) -> Vec<Finding> {
    let mut dead: HashMap<&str, Vec<(Nanos, Nanos)>> = HashMap::new();
    for (t, node, event) in &run.node_events {
        let times = dead.entry(node).or_default();
        match event {
            NodeEvent::DiskFailed => times.push((*t, Nanos::MAX)),
            NodeEvent::Started | NodeEvent::Killed => {
                if let Some((_, to)) = times.last_mut() {
                    *to = (*to).min(*t);
                }
            }
        }
    }
    let count = dead.values().map(|times| times.len() as u64).sum();
    coverage.conditions.insert("failed disks".to_owned(), count);
    let mut findings = Vec::new();
    for (at, op) in run.ops.iter().enumerate() {
        if !op.is_acknowledged() || op.call.may_bypass_log() {
            continue;
        }
        let (_, node) = run.whose(op);
        let Some(times) = dead.get(node) else {
            continue;
        };
        let breach = times.iter().find(|(from, to)| {
            op.from > from.saturating_add(LAST_WORDS_MS * MILLI) && op.heard < *to
        });
        if let Some((from, _)) = breach {
            let words = format!(
                "{node} acknowledged a change although its disk had failed at {}",
                slice::moment(run, *from)
            );
            let slice = slice::lines(run, [at]);
            findings.push(Finding::new(run, Invariant::I19, op.heard, words, slice));
            break;
        }
    }
    findings
}
