use std::collections::BTreeMap;

use super::tube::Tube;
use crate::TubeId;

/// All tubes by id, in pages of neighbouring ids.
///
/// With 30,000 tubes that are put into in turn nothing of a tube is in the processor's caches when
/// it is wanted, several times for each put. In a `BTreeMap` from id to tube the way down misses
/// them at each of its last levels; here the map of pages stays in them, and what is missed is a
/// place in a page and the tube. The price: the last tube of a page keeps all of it, half a KiB.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tubes {
    /// Never an empty page.
    pages: BTreeMap<u64, Page>,
    len: usize,
}

/// Ids per page.
const PAGE_IDS: u64 = 32;

type Page = [Option<Box<Tube>>; PAGE_IDS as usize];

impl Tubes {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, id: TubeId) -> Option<&Tube> {
        let page = self.pages.get(&page_of(id))?;
        page.get(slot_of(id))?.as_deref()
    }

    pub(super) fn get_mut(&mut self, id: TubeId) -> Option<&mut Tube> {
        let page = self.pages.get_mut(&page_of(id))?;
        page.get_mut(slot_of(id))?.as_deref_mut()
    }

    /// Adds a tube. False, and no change, if there is one of this id.
    pub(super) fn insert(&mut self, id: TubeId, tube: Tube) -> bool {
        let page = self.pages.entry(page_of(id)).or_default();
        match page.get_mut(slot_of(id)) {
            Some(slot @ None) => {
                *slot = Some(Box::new(tube));
                self.len = self.len.saturating_add(1);
                true
            }
            _ => false,
        }
    }

    pub(super) fn remove(&mut self, id: TubeId) -> Option<Tube> {
        let page = self.pages.get_mut(&page_of(id))?;
        let tube = page.get_mut(slot_of(id))?.take()?;
        self.len = self.len.saturating_sub(1);
        if page.iter().all(Option::is_none) {
            self.pages.remove(&page_of(id));
        }
        Some(*tube)
    }

    /// By id, that is in order of creation.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TubeId, &Tube)> {
        self.pages.iter().flat_map(|(page, slots)| {
            let first = page.saturating_mul(PAGE_IDS);
            (0..PAGE_IDS).zip(slots).filter_map(move |(slot, tube)| {
                Some((TubeId(first.saturating_add(slot)), tube.as_deref()?))
            })
        })
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Tube> {
        self.iter().map(|(_, tube)| tube)
    }
}

fn page_of(id: TubeId) -> u64 {
    id.0 / PAGE_IDS
}

fn slot_of(id: TubeId) -> usize {
    // Below 32.
    usize::try_from(id.0 % PAGE_IDS).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use trellis_types::TubeName;

    use super::*;

    fn tube(id: u64) -> Tube {
        Tube::new(TubeName::parse(format!("t{id}").as_bytes()).unwrap())
    }

    #[test]
    fn tubes_are_found_and_listed_by_id_whatever_the_order_of_arrival() {
        let mut tubes = Tubes::default();
        for id in [70, 3, 1, 32, 31, 64, 2, u64::MAX] {
            assert!(tubes.insert(TubeId(id), tube(id)));
        }
        assert!(!tubes.insert(TubeId(32), tube(33)), "an id names one tube");
        assert_eq!(tubes.get(TubeId(32)), Some(&tube(32)));
        let listed: Vec<u64> = tubes.iter().map(|(id, _)| id.0).collect();
        assert_eq!(listed, [1, 2, 3, 31, 32, 64, 70, u64::MAX]);
        assert_eq!(tubes.values().nth(3), Some(&tube(31)));

        assert_eq!(tubes.remove(TubeId(31)), Some(tube(31)));
        assert_eq!(tubes.remove(TubeId(31)), None);
        assert_eq!(tubes.get(TubeId(31)), None);
        assert_eq!(tubes.get(TubeId(30)), None, "never there");
        assert_eq!(tubes.get_mut(TubeId(32)), Some(&mut tube(32)));
        assert_eq!(tubes.len(), 7);
    }

    #[test]
    fn nothing_is_left_of_tubes_that_are_gone() {
        let mut tubes = Tubes::default();
        for id in 0..1_000 {
            tubes.insert(TubeId(id), tube(id));
        }
        for id in 0..1_000 {
            tubes.remove(TubeId(id));
        }
        assert_eq!(tubes, Tubes::default());
    }
}
