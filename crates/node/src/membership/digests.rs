use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use trellis_types::NodeId;

/// Samples that are kept: a follower's report is compared while its index is still among them.
const SAMPLES_MAX: usize = 4_096;

/// The state's digest behind an applied entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DigestSample {
    /// The entry.
    pub index: u64,
    /// The digest.
    pub digest: u64,
}

/// What two nodes' samples say of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// Equal at this index.
    Equal(u64),
    /// Different at this index: one of the two states is wrong.
    Different {
        /// The first index found.
        index: u64,
        /// The digest here.
        ours: u64,
        /// The digest there.
        theirs: u64,
    },
    /// No index in common.
    Unknown,
}

/// The newest digests of this node. Promise P7: the same applied index means the same state, and
/// a digest proves it all the time.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    samples: Mutex<VecDeque<DigestSample>>,
}

impl Digests {
    /// Notes the digest behind the entry `index`. Indexes ascend; an older one starts afresh
    /// (a snapshot replaced the state).
    pub(crate) fn note(&self, index: u64, digest: u64) {
        let mut samples = self.samples.lock();
        match samples.back() {
            Some(last) if last.index == index => return,
            Some(last) if last.index > index => samples.clear(),
            _ => {}
        }
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(DigestSample { index, digest });
    }

    /// The newest samples, at most `count`, oldest first.
    pub(crate) fn newest(&self, count: usize) -> Vec<DigestSample> {
        let samples = self.samples.lock();
        samples
            .iter()
            .skip(samples.len().saturating_sub(count))
            .copied()
            .collect()
    }

    /// This node's digest behind `index`, if it is still known.
    pub(crate) fn at(&self, index: u64) -> Option<u64> {
        let samples = self.samples.lock();
        let place = samples
            .binary_search_by_key(&index, |sample| sample.index)
            .ok()?;
        samples.get(place).map(|sample| sample.digest)
    }

    /// Compares with another node's samples.
    pub(crate) fn compare(&self, theirs: &[DigestSample]) -> Comparison {
        let mut verdict = Comparison::Unknown;
        for DigestSample { index, digest } in theirs {
            match self.at(*index) {
                Some(ours) if ours == *digest => verdict = Comparison::Equal(*index),
                Some(ours) => {
                    return Comparison::Different {
                        index: *index,
                        ours,
                        theirs: *digest,
                    };
                }
                None => {}
            }
        }
        verdict
    }
}

/// Members whose state differs from this node's, and where that was first seen.
#[derive(Debug, Default)]
pub(crate) struct Quarrels(BTreeMap<NodeId, u64>);

impl Quarrels {
    /// Takes one comparison in; whether it is a new difference. Two that are equal again, because
    /// one of them was rebuilt, have no quarrel any more.
    pub(crate) fn note(&mut self, node: NodeId, comparison: Comparison) -> bool {
        match comparison {
            Comparison::Different { index, .. } => self.0.insert(node, index).is_none(),
            Comparison::Equal(_) => {
                self.0.remove(&node);
                false
            }
            Comparison::Unknown => false,
        }
    }

    /// Where the difference from `node` was last seen, if there is one.
    pub(crate) fn with(&self, node: NodeId) -> Option<u64> {
        self.0.get(&node).copied()
    }

    /// Where this node's state differs from those of most of the `others` members.
    pub(crate) fn with_most(&self, others: usize) -> Option<u64> {
        let most = self.0.len() * 2 > others;
        self.0.values().next().copied().filter(|_| most)
    }

    /// Forgets nodes for which `keep` is false.
    pub(crate) fn retain(&mut self, keep: impl Fn(NodeId) -> bool) {
        self.0.retain(|node, _| keep(*node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(index: u64, digest: u64) -> DigestSample {
        DigestSample { index, digest }
    }

    #[test]
    fn states_are_compared_only_at_equal_indexes() {
        let digests = Digests::default();
        digests.note(5, 50);
        digests.note(9, 90);
        assert_eq!(
            digests.compare(&[sample(6, 1), sample(10, 2)]),
            Comparison::Unknown
        );
        assert_eq!(
            digests.compare(&[sample(5, 50), sample(10, 2)]),
            Comparison::Equal(5)
        );
        assert_eq!(
            digests.compare(&[sample(5, 50), sample(9, 91)]),
            Comparison::Different {
                index: 9,
                ours: 90,
                theirs: 91
            }
        );
    }

    #[test]
    fn the_odd_one_out_is_the_one_that_differs_from_most() {
        let different = |index| Comparison::Different {
            index,
            ours: 1,
            theirs: 2,
        };
        let mut quarrels = Quarrels::default();
        assert!(quarrels.note(NodeId(2), different(7)));
        assert!(!quarrels.note(NodeId(2), different(8)), "counted once");
        assert_eq!(
            quarrels.with_most(2),
            None,
            "one of two others: it is that one"
        );
        assert_eq!(quarrels.with_most(1), Some(8), "of two nobody can tell");
        assert!(quarrels.note(NodeId(3), different(9)));
        assert!(
            quarrels.with_most(2).is_some(),
            "both others: it is this one"
        );
        quarrels.note(NodeId(2), Comparison::Unknown);
        assert_eq!(quarrels.with(NodeId(2)), Some(8));
        quarrels.note(NodeId(2), Comparison::Equal(20));
        assert_eq!(quarrels.with(NodeId(2)), None, "it was rebuilt");
        quarrels.retain(|node| node != NodeId(3));
        assert_eq!(quarrels.with_most(2), None);
    }

    #[test]
    fn a_state_that_was_replaced_starts_afresh_and_memory_is_bounded() {
        let digests = Digests::default();
        digests.note(100, 1);
        digests.note(7, 2);
        assert_eq!(digests.newest(9), vec![sample(7, 2)]);
        for index in 8..10_000 {
            digests.note(index, index);
        }
        assert_eq!(digests.newest(usize::MAX).len(), SAMPLES_MAX);
        assert_eq!(digests.at(7), None);
        assert_eq!(digests.at(9_999), Some(9_999));
    }
}
