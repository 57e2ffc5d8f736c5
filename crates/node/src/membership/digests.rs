use std::collections::VecDeque;

use parking_lot::Mutex;

/// Samples that are kept: a follower's report is compared while its index is still among them.
const SAMPLES_MAX: usize = 4_096;

/// The newest samples that a report tells of.
const NEWEST_TOLD: usize = 4;

/// And the newest at a multiple of each of these: two nodes that are apart by less than half of one
/// most likely tell of the same.
const ROUND_STEPS: [u64; 4] = [16, 128, 1_024, 2_048];

/// The state's digest behind an applied entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DigestSample {
    /// The entry.
    pub index: u64,
    /// The digest.
    pub digest: u64,
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

    /// What a report tells, oldest first: the newest, and some at round indexes, of which another
    /// node that is not at the very same place tells, too.
    pub(crate) fn telling(&self) -> Vec<DigestSample> {
        let samples = self.samples.lock();
        let round = |step: u64| {
            let mut newest_first = samples.iter().rev();
            newest_first.find(|sample| sample.index.is_multiple_of(step))
        };
        let newest = samples.iter().rev().take(NEWEST_TOLD);
        let mut told: Vec<DigestSample> = ROUND_STEPS
            .into_iter()
            .filter_map(round)
            .chain(newest)
            .copied()
            .collect();
        told.sort_by_key(|sample| sample.index);
        told.dedup();
        told
    }

    /// This node's digest behind `index`, if it is still known.
    pub(crate) fn at(&self, index: u64) -> Option<u64> {
        let samples = self.samples.lock();
        let place = samples
            .binary_search_by_key(&index, |sample| sample.index)
            .ok()?;
        samples.get(place).map(|sample| sample.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(index: u64, digest: u64) -> DigestSample {
        DigestSample { index, digest }
    }

    #[test]
    fn two_busy_nodes_tell_of_an_index_in_common() {
        let (one, other) = (Digests::default(), Digests::default());
        (1..=3_000).for_each(|index| one.note(index, index));
        (1..=3_900).for_each(|index| other.note(index, index));
        let told = one.telling();
        assert!(told.len() <= 8, "{told:?}");
        assert!(told.contains(&sample(3_000, 3_000)), "the newest: {told:?}");
        let common = |it: &DigestSample| other.telling().contains(it);
        assert!(told.iter().any(common), "{told:?}, {:?}", other.telling());
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
