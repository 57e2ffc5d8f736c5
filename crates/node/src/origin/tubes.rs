#[cfg(feature = "model")]
mod model;

use std::collections::HashMap;

use trellis_types::TubeName;

/// The tubes that this node's sessions use or watch, and what the machine knows of that.
///
/// A tube exists while it has jobs or references; the machine keeps (origin, tube). Each node
/// tells only its own 0 → 1 and 1 → 0. Source: architecture, section 7, "Tube lifetime".
#[derive(Clone, Debug, Default)]
pub(crate) struct Tubes(HashMap<TubeName, Interest>);

#[derive(Clone, Copy, Debug, Default, Hash)]
struct Interest {
    using: u32,
    watching: u32,
    /// TubeRefs of this tube, set or clear, that are not applied yet.
    outstanding: u32,
    /// What the last applied one said.
    referenced: bool,
}

/// How a session is interested in a tube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Uses,
    Watches,
}

impl Tubes {
    /// Whether a `use` or `watch` of the tube may be answered at once: the reference is applied
    /// and nothing is under way that could take it back.
    pub(crate) fn is_sure(&self, tube: &TubeName) -> bool {
        tube.is_default()
            || self
                .0
                .get(tube)
                .is_some_and(|interest| interest.referenced && interest.outstanding == 0)
    }

    pub(crate) fn add(&mut self, tube: &TubeName, way: Way) {
        let interest = self.0.entry(tube.clone()).or_default();
        match way {
            Way::Uses => interest.using += 1,
            Way::Watches => interest.watching += 1,
        }
    }

    /// Whether this was the last interest, so that the reference is to be cleared.
    pub(crate) fn remove(&mut self, tube: &TubeName, way: Way) -> bool {
        let Some(interest) = self.0.get_mut(tube) else {
            return false;
        };
        match way {
            Way::Uses => interest.using = interest.using.saturating_sub(1),
            Way::Watches => interest.watching = interest.watching.saturating_sub(1),
        }
        let last = interest.using + interest.watching == 0;
        if tube.is_default() {
            return false;
        }
        if last && interest.outstanding == 0 && !interest.referenced {
            // It never came to a reference.
            self.0.remove(tube);
            return false;
        }
        last
    }

    /// A TubeRef is on its way.
    pub(crate) fn sent(&mut self, tube: &TubeName) {
        self.0.entry(tube.clone()).or_default().outstanding += 1;
    }

    /// A TubeRef was applied; `held` says whether the machine has the reference now.
    pub(crate) fn applied(&mut self, tube: &TubeName, held: bool) {
        let Some(interest) = self.0.get_mut(tube) else {
            return;
        };
        interest.outstanding = interest.outstanding.saturating_sub(1);
        interest.referenced = held;
        if interest.using + interest.watching + interest.outstanding == 0 && !held {
            self.0.remove(tube);
        }
    }

    /// Sessions that use and that watch the tube.
    pub(crate) fn counts(&self, tube: &TubeName) -> (u64, u64) {
        self.0.get(tube).map_or((0, 0), |interest| {
            (interest.using.into(), interest.watching.into())
        })
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
