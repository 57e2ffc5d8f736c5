use std::collections::{BTreeMap, btree_map::Entry};

use trellis_types::TubeName;

use super::digest::Hash;

/// A map by tube name that is fast with many names.
///
/// Its order is that of a hash, and of the names where two hashes are equal. On the way down a plain
/// `BTreeMap` of 30,000 names compares some twenty of them, each somewhere else in memory; here these
/// are numbers in the nodes themselves, and only the name that is found is looked at. Names that were
/// chosen to have the same hash make it a plain map again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ByName<V>(BTreeMap<(u64, TubeName), V>);

impl<V> ByName<V> {
    pub(super) fn get(&self, name: &TubeName) -> Option<&V> {
        // Each put asks who waits for its tube; mostly nobody waits for any.
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&key_of(name))
    }

    pub(super) fn contains(&self, name: &TubeName) -> bool {
        self.0.contains_key(&key_of(name))
    }

    /// What stood there before.
    pub(super) fn insert(&mut self, name: TubeName, value: V) -> Option<V> {
        self.0.insert((hash_of(&name), name), value)
    }

    pub(super) fn entry(&mut self, name: &TubeName) -> Entry<'_, (u64, TubeName), V> {
        self.0.entry(key_of(name))
    }

    pub(super) fn remove(&mut self, name: &TubeName) -> Option<V> {
        self.0.remove(&key_of(name))
    }

    /// All names, in an order that means nothing but is the same on every node.
    pub(super) fn names(&self) -> impl Iterator<Item = &TubeName> {
        self.0.keys().map(|(_, name)| name)
    }
}

/// By hand, because a derived one would ask for `V: Default`.
impl<V> Default for ByName<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

fn key_of(name: &TubeName) -> (u64, TubeName) {
    (hash_of(name), name.clone())
}

fn hash_of(name: &TubeName) -> u64 {
    let mut hash = Hash::of_kind(0);
    hash.text(name.as_str());
    hash.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> TubeName {
        TubeName::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn each_name_has_its_own_value() {
        let names: Vec<_> = (0..1_000)
            .map(|number| name(&format!("t{number}")))
            .collect();
        let mut map = ByName::default();
        for (number, name) in names.iter().enumerate() {
            assert_eq!(map.insert(name.clone(), number), None);
        }
        assert_eq!(map.insert(name("t7"), 70), Some(7));
        assert_eq!(map.remove(&name("t8")), Some(8));
        assert_eq!(map.remove(&name("t8")), None);
        *map.entry(&name("t9")).or_default() += 1;
        *map.entry(&name("new")).or_default() += 5;

        assert_eq!(map.get(&name("t7")), Some(&70));
        assert_eq!(map.get(&name("t9")), Some(&10));
        assert_eq!(map.get(&name("new")), Some(&5));
        assert!(!map.contains(&name("t8")));
        assert_eq!(map.names().count(), 1_000);
    }

    #[test]
    fn two_names_of_one_hash_are_two() {
        let (one, other) = (name("collide-one-hash"), name("nameahghATVa-HVW"));
        assert_eq!(hash_of(&one), hash_of(&other), "not the names to test with");
        let mut map = ByName::default();
        map.insert(one.clone(), 1);
        assert_eq!(map.get(&other), None);
        map.insert(other.clone(), 2);
        assert_eq!((map.get(&one), map.get(&other)), (Some(&1), Some(&2)));
        assert_eq!(map.remove(&one), Some(1));
        assert_eq!((map.get(&one), map.get(&other)), (None, Some(&2)));
    }
}
