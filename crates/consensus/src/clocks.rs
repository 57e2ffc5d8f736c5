use std::{collections::BTreeMap, sync::Arc, time::Instant};

use parking_lot::Mutex;
use trellis_rpc::pb;
use trellis_types::NodeId;

/// Tells what this node knows of time, for its answers to vote requests.
pub type ClockSource = Arc<dyn Fn() -> pb::Clock + Send + Sync>;

/// What a voter told of time, and when its answer arrived here: a slow disk may lie between that and
/// taking office, and its clock runs on meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct VoterClock {
    /// Who told.
    pub node: NodeId,
    /// What it told.
    pub clock: pb::Clock,
    /// When that arrived, on this node's monotonic clock.
    pub heard: Instant,
}

/// Terms of which answers are kept: a candidate asks for one at a time.
const TERMS_KEPT: usize = 4;

/// What others tell of time when they are asked for their vote, and what this node tells them.
///
/// Source: architecture, sections 4 and 15.
#[derive(Default)]
pub(crate) struct Clocks {
    own: Mutex<Option<ClockSource>>,
    heard: Mutex<BTreeMap<u64, BTreeMap<NodeId, VoterClock>>>,
}

impl Clocks {
    pub(crate) fn tell_with(&self, source: ClockSource) {
        *self.own.lock() = Some(source);
    }

    pub(crate) fn tell(&self) -> Option<pb::Clock> {
        let source = self.own.lock().clone();
        source.map(|source| source())
    }

    /// `node` told this just now.
    pub(crate) fn heard(&self, term: u64, node: NodeId, clock: pb::Clock) {
        let told = VoterClock {
            node,
            clock,
            heard: tokio::time::Instant::now().into_std(),
        };
        let mut heard = self.heard.lock();
        heard.entry(term).or_default().insert(node, told);
        while heard.len() > TERMS_KEPT {
            heard.pop_first();
        }
    }

    pub(crate) fn of_term(&self, term: u64) -> Vec<VoterClock> {
        let heard = self.heard.lock();
        let told = heard.get(&term).into_iter().flat_map(BTreeMap::values);
        told.copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_terms_are_kept() {
        let clocks = Clocks::default();
        for term in 1..=10 {
            clocks.heard(
                term,
                NodeId(1),
                pb::Clock {
                    sampled: term,
                    ..Default::default()
                },
            );
        }
        assert!(clocks.of_term(6).is_empty());
        assert_eq!(clocks.of_term(10)[0].clock.sampled, 10);
        assert!(clocks.tell().is_none());
    }
}
