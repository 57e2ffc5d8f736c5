use std::collections::{BTreeMap, BTreeSet};

use trellis_types::{
    ConnectionId, JobId, NodeId, OriginId, SessionId,
    seeded::{Bug, planted},
};

use super::{Machine, by_name::ByName, session::Session};
use crate::{Event, Key, OriginRow, Outcome, TubeId};

/// An open origin: what its node's clients hold, wait for and refer to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Live {
    /// The last batch that was carried out.
    pub(super) last_seq: u64,
    /// Its waiters are passed over.
    pub(super) suspended: bool,
    pub(super) sessions: BTreeMap<ConnectionId, Session>,
    /// Its waiters in line for each tube. Lines are kept per origin so that those of a suspended
    /// one cost nothing to pass over and those of a resumed one are found at once.
    pub(super) lines: ByName<Line>,
    /// Tubes that it refers to.
    pub(super) references: BTreeSet<TubeId>,
}

/// Who waits, by place in line: one sequence over all tubes and origins.
pub(super) type Line = BTreeMap<u64, ConnectionId>;

impl Machine {
    /// Opens a run of a node. Ignored unless above the highest known of that node, so that neither
    /// a late nor a repeated proposal does harm; a higher one ends the earlier run.
    ///
    /// Source: architecture, section 7.
    pub(super) fn open_origin(&mut self, origin: OriginId, out: &mut Outcome) {
        let highest = self.runs.get(&origin.node).copied();
        if self.is_retired(origin.node) || highest.is_some_and(|highest| origin.run <= highest) {
            return;
        }
        if let Some(run) = highest {
            self.end_origin(
                OriginId {
                    node: origin.node,
                    run,
                },
                out,
            );
        }
        self.touch(Key::Origin(origin.node));
        self.runs.insert(origin.node, origin.run);
        self.origins.insert(origin, Live::default());
        out.events.push(Event::Opened(origin));
    }

    /// The node is away: its waiters are passed over from now on. Does nothing to another run.
    pub(super) fn suspend_origin(&mut self, origin: OriginId) {
        self.set_suspended(origin, true);
    }

    /// The node is back: its waiters are offered what has become ready meanwhile.
    pub(super) fn resume_origin(&mut self, origin: OriginId, out: &mut Outcome) {
        if self.set_suspended(origin, false) && !planted(Bug::ResumeOffersNothing) {
            self.offer_to_origin(origin, out);
        }
    }

    /// Whether that was a change.
    fn set_suspended(&mut self, origin: OriginId, suspended: bool) -> bool {
        if self
            .origins
            .get(&origin)
            .is_none_or(|live| live.suspended == suspended)
        {
            return false;
        }
        self.touch(Key::Origin(origin.node));
        if let Some(live) = self.origins.get_mut(&origin) {
            live.suspended = suspended;
        }
        true
    }

    /// Ends an open origin: all its waits go before any hold returns, so that none of its sessions
    /// gets a job of another; then the holds return in order of reservation; its references go.
    ///
    /// Source: architecture, section 7; the order was checked exhaustively as a small model.
    pub(super) fn end_origin(&mut self, origin: OriginId, out: &mut Outcome) {
        let Some(live) = self.origins.get(&origin) else {
            return;
        };
        let mut connections: Vec<ConnectionId> = live.sessions.keys().copied().collect();
        let holds: BTreeMap<u64, JobId> = live
            .sessions
            .values()
            .flat_map(|session| {
                session
                    .holds
                    .iter()
                    .map(|(sequence, job)| (*sequence, *job))
            })
            .collect();

        let mut late = Vec::new();
        if planted(Bug::HoldsBeforeWaits) {
            late = std::mem::take(&mut connections);
        }
        self.touch(Key::Origin(origin.node));
        for connection in connections {
            self.unpark(SessionId { origin, connection });
        }
        for job in holds.into_values() {
            self.make_ready(job, out);
        }
        for connection in late {
            self.unpark(SessionId { origin, connection });
        }
        let references = self
            .origins
            .remove(&origin)
            .map(|live| live.references)
            .unwrap_or_default();
        for tube in references {
            self.touch(Key::Tube(tube));
            if let Some(tube) = self.tubes.get_mut(tube) {
                tube.forget(origin);
            }
            self.reap_tube(tube);
        }
        out.events.push(Event::Ended(origin));
    }

    /// The node is out of the cluster for ever: its origin ends, its id is never accepted again.
    ///
    /// Source: architecture, section 12.
    pub(super) fn retire_node(&mut self, node: NodeId, out: &mut Outcome) {
        let Err(at) = self.meta.retired.binary_search(&node) else {
            return;
        };
        if let Some(run) = self.runs.get(&node).copied() {
            self.end_origin(OriginId { node, run }, out);
        }
        self.meta.retired.insert(at, node);
        out.events.push(Event::Retired(node));
    }

    pub(super) fn origin_row(&self, node: NodeId) -> Option<OriginRow> {
        let highest_run = *self.runs.get(&node)?;
        let live = self.origins.get(&OriginId {
            node,
            run: highest_run,
        });
        Some(OriginRow {
            node,
            highest_run,
            open: live.is_some(),
            last_seq: live
                .filter(|_| !planted(Bug::DedupeNotInSnapshot))
                .map_or(0, |live| live.last_seq),
            suspended: live.is_some_and(|live| live.suspended),
        })
    }
}
