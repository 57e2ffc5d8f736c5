use std::hash::{Hash, Hasher};

use super::Tubes;

impl Tubes {
    pub(crate) fn fingerprint(&self, hash: &mut impl Hasher) {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_unstable_by_key(|(tube, _)| *tube);
        for (tube, interest) in all {
            tube.hash(hash);
            interest.hash(hash);
        }
    }

    /// Breaks a rule: every reference is believed to be set, whatever is under way.
    pub(crate) fn trust(&mut self) {
        for interest in self.0.values_mut() {
            interest.referenced = true;
            interest.outstanding = 0;
        }
    }
}
