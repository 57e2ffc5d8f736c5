//! Operations as people read them.

use crate::{
    Outcome, Run,
    history::{MILLI, Nanos, SECOND},
};

/// A moment since the first question, in seconds.
pub(crate) fn moment(run: &Run, t: Nanos) -> String {
    if t == Nanos::MAX {
        return "…".to_owned();
    }
    let t = t.saturating_sub(run.start());
    format!("{}.{:06}s", t / SECOND, t % SECOND / 1_000)
}

/// One operation: when, whose, what, and what was answered.
pub(crate) fn line(run: &Run, at: usize) -> String {
    let op = &run.ops[at];
    let (client, node) = run.whose(op);
    let said = match &op.outcome {
        Outcome::Said(reply) => reply.to_string(),
        Outcome::Unknown(why) => format!("unknown ({why})"),
    };
    format!(
        "{} +{:.3}ms  #{} client {client} connection {} at {node}: {} → {said}",
        moment(run, op.from),
        op.heard.saturating_sub(op.from) as f64 / MILLI as f64,
        op.op,
        op.connection,
        op.call
    )
}

/// Several, by time.
pub(crate) fn lines(run: &Run, ops: impl IntoIterator<Item = usize>) -> Vec<String> {
    let mut ops: Vec<_> = ops.into_iter().collect();
    ops.sort_unstable();
    ops.dedup();
    ops.into_iter().map(|at| line(run, at)).collect()
}
