use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use trellis_types::{NodeId, Run};

use super::{DiskSpace, Known};

/// What a leader has seen of a member, as its answers to reports carry it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// What its disk must hold at least.
    pub known: Known,
    /// Its last applied index.
    pub applied: u64,
    /// Room on its volume.
    pub disk: DiskSpace,
    /// The highest feature level that its binary understands; 0 if it has not told.
    pub level: u32,
    /// The version of its binary.
    pub version: String,
    /// The peer address that its configuration names.
    pub address: String,
    /// Its state must not be relied upon.
    pub quarantined: bool,
}

/// The table of members that leaders spread: for each its run, highest term acknowledged, flushed
/// index, room on disk. Every node keeps the newest of what it was told, so that a member whose
/// volume was restored or went stale can be told so by whoever answers its hello.
///
/// Known figures never fall; the others are as of the newest report. Lost when the process ends.
///
/// Source: architecture, section 12, "Restored or stale volumes".
#[derive(Debug, Default)]
pub(crate) struct MemberTable {
    rows: Mutex<BTreeMap<NodeId, (Seen, Instant)>>,
}

impl MemberTable {
    /// Takes one row in; `age` is how old it was when it arrived.
    pub(crate) fn learn(&self, node: NodeId, seen: Seen, age: Duration) {
        let now = crate::now();
        let at = now.checked_sub(age).unwrap_or(now);
        let mut rows = self.rows.lock();
        match rows.get_mut(&node) {
            None => {
                rows.insert(node, (seen, at));
            }
            Some((old, old_at)) => {
                let known = newest(old.known, seen.known);
                if at >= *old_at {
                    (*old, *old_at) = (seen, at);
                }
                old.known = known;
            }
        }
    }

    /// What others must be told that this node's disk holds at least; zeros if nothing is known.
    pub(crate) fn known(&self, node: NodeId) -> Known {
        self.rows
            .lock()
            .get(&node)
            .map(|(seen, _)| seen.known)
            .unwrap_or_default()
    }

    /// The row of one node and its age.
    pub(crate) fn get(&self, node: NodeId) -> Option<(Seen, Duration)> {
        self.rows
            .lock()
            .get(&node)
            .map(|(seen, at)| (seen.clone(), crate::since(*at)))
    }

    /// All rows with their ages.
    pub(crate) fn all(&self) -> Vec<(NodeId, Seen, Duration)> {
        let rows = self.rows.lock();
        rows.iter()
            .map(|(node, (seen, at))| (*node, seen.clone(), crate::since(*at)))
            .collect()
    }

    /// Forgets nodes for which `keep` is false: the table is bounded by the membership.
    pub(crate) fn retain(&self, keep: impl Fn(NodeId) -> bool) {
        self.rows.lock().retain(|node, _| keep(*node));
    }
}

fn newest(old: Known, new: Known) -> Known {
    Known {
        run: Run(old.run.0.max(new.run.0)),
        term: old.term.max(new.term),
        flushed: old.flushed.max(new.flushed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(run: u64, flushed: u64, free: u64) -> Seen {
        Seen {
            known: Known {
                run: Run(run),
                term: 1,
                flushed,
            },
            disk: DiskSpace { free, total: 100 },
            ..Seen::default()
        }
    }

    #[test]
    fn what_a_disk_must_hold_never_falls_and_the_rest_is_the_newest() {
        let table = MemberTable::default();
        table.learn(NodeId(1), seen(3, 50, 10), Duration::ZERO);
        table.learn(NodeId(1), seen(2, 70, 99), Duration::from_secs(5));
        let (row, _) = table.get(NodeId(1)).unwrap_or_default();
        assert_eq!(
            row.known,
            Known {
                run: Run(3),
                term: 1,
                flushed: 70
            }
        );
        assert_eq!(row.disk.free, 10, "the later row was older");
        assert_eq!(table.known(NodeId(2)), Known::default());
    }
}
