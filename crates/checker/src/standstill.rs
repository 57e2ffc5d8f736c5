use std::collections::HashMap;

use crate::{
    Connection, Operation,
    history::{Call, CloseSide, Nanos},
};

/// Time in which nothing came through the log although somebody wanted it: what falls due then is
/// seen undone for as long as nobody can commit that its moment has come, however long that is.
///
/// An operation that was acknowledged shows that the cluster's time had come to the moment of its
/// question before its answer was heard. An idle cluster does not stand still, nor does one of which a
/// part goes on; and only what was carried out counts: a leader may answer reads again before its log
/// has moved.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    /// Moments of questions, ascending, and when the first was answered that was asked then or later.
    moves: Vec<(Nanos, Nanos)>,
    /// Times in which somebody waited for an answer, or had lost a connection and not yet asked again,
    /// ascending and apart.
    awaited: Vec<Awaited>,
}

#[derive(Clone, Copy, Debug)]
struct Awaited {
    from: Nanos,
    to: Nanos,
    /// How long all those before are together.
    before: Nanos,
}

impl Standstill {
    /// `ops` by the moment of their questions.
    pub(crate) fn new(ops: &[Operation], connections: &HashMap<u64, Connection>) -> Self {
        let logged = || ops.iter().filter(|op| !op.call.may_bypass_log());
        let mut moves: Vec<_> = logged()
            .filter(|op| op.is_acknowledged())
            .map(|op| (op.from, op.heard))
            .collect();
        let mut first = Nanos::MAX;
        for (_, heard) in moves.iter_mut().rev() {
            first = first.min(*heard);
            *heard = first;
        }
        // A reserve may wait for a job, and what the history leaves open for anything.
        let mut times: Vec<_> = logged()
            .filter(|op| !matches!(op.call, Call::Reserve { .. }) && op.heard < Nanos::MAX)
            .map(|op| (op.from, op.heard))
            .collect();
        times.extend(away(ops, connections));
        times.sort_unstable();
        let mut awaited: Vec<Awaited> = Vec::new();
        for (from, to) in times {
            match awaited.last_mut() {
                Some(last) if from <= last.to => last.to = last.to.max(to),
                last => {
                    let before = last.map_or(0, |last| last.before + (last.to - last.from));
                    awaited.push(Awaited { from, to, before });
                }
            }
        }
        Self { moves, awaited }
    }

    /// `due`, and as much later as the log stood still from then on.
    pub(crate) fn put_off(&self, due: Nanos) -> Nanos {
        let next = self.moves.partition_point(|(from, _)| *from < due);
        let until = self.moves.get(next).map_or(Nanos::MAX, |(_, heard)| *heard);
        due.saturating_add(self.awaited_before(until) - self.awaited_before(due))
    }

    /// For how long until `moment` somebody was waiting.
    fn awaited_before(&self, moment: Nanos) -> Nanos {
        let next = self.awaited.partition_point(|time| time.from < moment);
        let last = next.checked_sub(1).and_then(|at| self.awaited.get(at));
        last.map_or(0, |last| last.before + (last.to.min(moment) - last.from))
    }
}

/// From when to when clients had lost a connection and not yet asked on the next: nobody listens, or
/// nobody answers what comes before the first question.
fn away(ops: &[Operation], connections: &HashMap<u64, Connection>) -> Vec<(Nanos, Nanos)> {
    let mut asked: HashMap<u32, Vec<Nanos>> = HashMap::new();
    for op in ops {
        if let Some(connection) = connections.get(&op.connection) {
            asked.entry(connection.client).or_default().push(op.from);
        }
    }
    let time = |connection: &Connection| {
        let (lost, by) = connection.closed?;
        let asked = asked.get(&connection.client)?;
        let again = asked.get(asked.partition_point(|from| *from < lost))?;
        (by != CloseSide::Client).then_some((lost, *again))
    };
    connections.values().filter_map(time).collect()
}
