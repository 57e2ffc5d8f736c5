use std::collections::{BTreeMap, BTreeSet};

use trellis_consensus::Membership;
use trellis_types::NodeId;

use super::DigestSample;

/// Whose state is wrong, as far as digests at equal indexes tell: a value, so that it can be tried
/// out. Promise P7.
///
/// Two that differ at an index can't both be right. The one that a majority of the voters equals,
/// there or later, is: whoever was equal to it after the difference had the same history. Without
/// such a majority nobody can tell, and the leader's word stands (ADR 0005).
#[derive(Debug, Default)]
pub(crate) struct Jury {
    pairs: BTreeMap<(NodeId, NodeId), Pair>,
    /// The newest samples of each member: they share indexes with other members', too.
    samples: BTreeMap<NodeId, Vec<DigestSample>>,
}

/// What two nodes' digests say of each other.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    /// The newest index at which they were equal.
    equal: Option<u64>,
    /// The first one at which they differed after that.
    different: Option<u64>,
}

/// What is to be thought of one node's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Nothing speaks against it.
    Sound,
    /// It differs from another's, and no majority tells which one is right.
    Undecided {
        /// Where.
        index: u64,
        /// From whom.
        from: NodeId,
    },
    /// It differs from what a majority has.
    Wrong {
        /// Where.
        index: u64,
        /// From whom, among them.
        from: NodeId,
    },
}

/// A difference that was not known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Where.
    pub index: u64,
    /// Between this one
    pub one: NodeId,
    /// and that one.
    pub other: NodeId,
}

impl Jury {
    /// Takes one node's samples in. `me` is the leader, and `own` its digest at an index, if it
    /// still has it. Returns what is new.
    pub(crate) fn hear(
        &mut self,
        node: NodeId,
        samples: Vec<DigestSample>,
        me: NodeId,
        own: impl Fn(u64) -> Option<u64>,
    ) -> Vec<Difference> {
        let mut found = Vec::new();
        for sample in &samples {
            found.extend(self.note(node, me, sample, own(sample.index)));
        }
        let others: Vec<(NodeId, Vec<DigestSample>)> = self
            .samples
            .iter()
            .filter(|(other, _)| **other != node && **other != me)
            .map(|(other, theirs)| (*other, theirs.clone()))
            .collect();
        for (other, theirs) in others {
            for sample in &samples {
                let there = theirs.iter().find(|it| it.index == sample.index);
                found.extend(self.note(node, other, sample, there.map(|it| it.digest)));
            }
        }
        self.samples.insert(node, samples);
        found
    }

    fn note(
        &mut self,
        one: NodeId,
        other: NodeId,
        sample: &DigestSample,
        there: Option<u64>,
    ) -> Option<Difference> {
        let there = there?;
        if one == other {
            return None;
        }
        let index = sample.index;
        let pair = self.pairs.entry(ordered(one, other)).or_default();
        if there == sample.digest {
            pair.equal = pair.equal.max(Some(index));
            // One of the two was rebuilt, or what differed is gone from both.
            pair.different = pair.different.filter(|different| *different > index);
            return None;
        }
        if pair.equal >= Some(index) || pair.different.is_some() {
            return None;
        }
        pair.different = Some(index);
        Some(Difference { index, one, other })
    }

    /// What is to be thought of `node`.
    pub(crate) fn judge(&self, node: NodeId, me: NodeId, membership: &Membership) -> Judgement {
        let quarrels = self.pairs.iter().filter_map(|((one, other), pair)| {
            let from = match (*one == node, *other == node) {
                (true, _) => *other,
                (_, true) => *one,
                _ => return None,
            };
            Some((from, pair.different?))
        });
        let mut undecided = Judgement::Sound;
        for (from, index) in quarrels {
            let most = self.backing(from, node, index, membership);
            let again = |other: &NodeId| self.are_equal(node, *other, index + 1);
            if membership.is_majority(&most) && !most.iter().any(again) {
                return Judgement::Wrong { index, from };
            }
            let backed = membership.is_majority(&self.backing(node, from, index, membership));
            if !backed && (from == me || node == me) {
                undecided = Judgement::Undecided { index, from };
            }
        }
        undecided
    }

    /// Who of the voters has, from `index` on, what `node` has; not asking `against`.
    fn backing(
        &self,
        node: NodeId,
        against: NodeId,
        index: u64,
        membership: &Membership,
    ) -> BTreeSet<NodeId> {
        let equal = |other: &NodeId| *other == node || self.are_equal(node, *other, index);
        let voters = membership.all_voters().into_iter();
        voters
            .filter(|other| *other != against && equal(other))
            .collect()
    }

    /// Whether the two were equal at `index` or later, and did not differ since.
    fn are_equal(&self, one: NodeId, other: NodeId, index: u64) -> bool {
        let pair = self.pairs.get(&ordered(one, other));
        pair.is_some_and(|pair| pair.different.is_none() && pair.equal >= Some(index))
    }

    /// Forgets nodes for which `keep` is false: bounded by the membership.
    pub(crate) fn retain(&mut self, keep: impl Fn(NodeId) -> bool) {
        self.pairs
            .retain(|(one, other), _| keep(*one) && keep(*other));
        self.samples.retain(|node, _| keep(*node));
    }
}

fn ordered(one: NodeId, other: NodeId) -> (NodeId, NodeId) {
    (one.min(other), one.max(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: NodeId = NodeId(1);

    /// A cluster of so many voters; node 1 leads, and its digest at index i is 10 i.
    struct Court(Jury, Membership);

    impl Court {
        fn of(voters: u64) -> Self {
            let voters = (1..=voters).map(NodeId).collect();
            let membership = Membership {
                voters: vec![voters],
                ..Membership::default()
            };
            Self(Jury::default(), membership)
        }

        fn hear(&mut self, node: u64, samples: &[(u64, u64)]) -> usize {
            let samples = samples
                .iter()
                .map(|(index, digest)| DigestSample {
                    index: *index,
                    digest: *digest,
                })
                .collect();
            self.0
                .hear(NodeId(node), samples, LEADER, |index| Some(index * 10))
                .len()
        }

        fn judge(&self, node: u64) -> Judgement {
            self.0.judge(NodeId(node), LEADER, &self.1)
        }
    }

    fn wrong(index: u64, from: u64) -> Judgement {
        let from = NodeId(from);
        Judgement::Wrong { index, from }
    }

    #[test]
    fn the_one_that_differs_from_two_equal_ones_is_wrong() {
        let mut court = Court::of(3);
        assert_eq!(court.hear(2, &[(5, 50), (7, 70)]), 0);
        assert_eq!(court.hear(3, &[(5, 50), (7, 71)]), 2, "from either");
        assert_eq!(court.judge(3), wrong(7, 1));
        assert_eq!(court.judge(1), Judgement::Sound);
        assert_eq!(court.judge(2), Judgement::Sound);
        assert_eq!(court.hear(3, &[(9, 91)]), 0, "counted once");
    }

    #[test]
    fn a_leader_is_wrong_if_the_others_equal_each_other() {
        let mut court = Court::of(3);
        court.hear(2, &[(7, 71)]);
        assert!(matches!(court.judge(1), Judgement::Undecided { .. }));
        court.hear(3, &[(7, 71)]);
        assert_eq!(court.judge(1), wrong(7, 2));
        assert_eq!(court.judge(2), Judgement::Sound);
        assert_eq!(court.judge(3), Judgement::Sound);
    }

    /// The third has agreed, but before the two parted: it knows nothing of their quarrel.
    #[test]
    fn an_old_agreement_tells_nothing_of_a_later_difference() {
        let mut court = Court::of(3);
        court.hear(3, &[(5, 50)]);
        court.hear(2, &[(5, 50), (8, 81)]);
        let index = 8;
        let undecided = |from| Judgement::Undecided { index, from };
        assert_eq!(court.judge(2), undecided(LEADER));
        assert_eq!(court.judge(1), undecided(NodeId(2)));
        assert_eq!(court.judge(3), Judgement::Sound);
        court.hear(3, &[(9, 90)]);
        assert_eq!(court.judge(2), wrong(8, 1));
    }

    #[test]
    fn of_two_voters_nobody_can_tell() {
        let mut court = Court::of(2);
        court.hear(2, &[(7, 71)]);
        assert!(matches!(court.judge(1), Judgement::Undecided { .. }));
        assert!(matches!(court.judge(2), Judgement::Undecided { .. }));
    }

    #[test]
    fn three_different_states_condemn_nobody() {
        let mut court = Court::of(3);
        court.hear(2, &[(7, 71)]);
        court.hear(3, &[(7, 72)]);
        for node in 1..=3 {
            let judgement = court.judge(node);
            assert!(
                matches!(judgement, Judgement::Undecided { index: 7, .. }),
                "{node}: {judgement:?}"
            );
        }
    }

    #[test]
    fn two_wrong_ones_of_five_are_found_even_if_they_equal_each_other() {
        let mut court = Court::of(5);
        for node in [2, 3] {
            court.hear(node, &[(7, 70)]);
        }
        for node in [4, 5] {
            court.hear(node, &[(7, 71)]);
        }
        assert_eq!(court.judge(4), wrong(7, 1));
        assert_eq!(court.judge(5), wrong(7, 1));
        for node in 1..=3 {
            assert_eq!(court.judge(node), Judgement::Sound);
        }
    }

    #[test]
    fn who_was_rebuilt_is_sound_again_and_who_left_is_forgotten() {
        let mut court = Court::of(3);
        court.hear(2, &[(7, 70)]);
        court.hear(3, &[(7, 71)]);
        court.hear(3, &[(20, 200)]);
        assert_eq!(court.judge(3), Judgement::Sound);
        assert_eq!(court.hear(3, &[(7, 71)]), 0, "news from before");
        assert_eq!(court.hear(3, &[(30, 301)]), 1);
        court.0.retain(|node| node != NodeId(3));
        assert_eq!(court.judge(3), Judgement::Sound);
    }

    #[test]
    fn a_learner_has_no_voice() {
        let mut court = Court::of(2);
        court.hear(9, &[(7, 71)]);
        court.hear(2, &[(7, 71)]);
        assert!(matches!(court.judge(1), Judgement::Undecided { .. }));
        court.hear(2, &[(8, 80)]);
        assert_eq!(court.judge(1), Judgement::Sound);
        assert!(matches!(court.judge(9), Judgement::Wrong { .. }));
    }
}
