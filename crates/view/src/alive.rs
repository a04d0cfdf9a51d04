//! What is alive while events are paired: by context, kind and address.

use std::collections::{BTreeSet, HashMap};

/// A kind and an address.
pub(crate) type Key = (u8, u64);

/// The allocations that are alive, by their index. No event costs more than the logarithm of their number, but for the end of
/// a context, which costs what it had.
#[derive(Debug, Default)]
pub(crate) struct Alive {
    /// By context, and whether the kind outlives it.
    maps: HashMap<(u32, bool), HashMap<Key, u32>>,
    /// Which contexts have a key. Made when a free is of another context than its allocation, which is rare.
    holders: Option<BTreeSet<(Key, u32, bool)>>,
}

impl Alive {
    /// Adds an allocation; returns the older one at its address.
    pub(crate) fn insert(
        &mut self,
        context: u32,
        outlives: bool,
        key: Key,
        index: u32,
    ) -> Option<u32> {
        if let Some(holders) = &mut self.holders {
            holders.insert((key, context, outlives));
        }
        let map = self.maps.entry((context, outlives)).or_default();
        map.insert(key, index)
    }

    /// Removes what was allocated in this context, or else in any: contexts of a thread may have changed in between.
    pub(crate) fn remove(&mut self, context: u32, outlives: bool, key: Key) -> Option<u32> {
        let own = (context, outlives);
        if self
            .maps
            .get(&own)
            .is_some_and(|map| map.contains_key(&key))
        {
            return self.remove_from(own, key);
        }
        let maps = &self.maps;
        let holders = self.holders.get_or_insert_with(|| {
            let keys = maps.iter().flat_map(|((context, outlives), map)| {
                map.keys().map(move |key| (*key, *context, *outlives))
            });
            keys.collect()
        });
        // The lowest context, so that two readings of a recording are equal.
        let first = holders.range((key, 0, false)..).next();
        let (_, context, outlives) = *first.filter(|(held, ..)| *held == key)?;
        self.remove_from((context, outlives), key)
    }

    fn remove_from(&mut self, (context, outlives): (u32, bool), key: Key) -> Option<u32> {
        if let Some(holders) = &mut self.holders {
            holders.remove(&(key, context, outlives));
        }
        self.maps.get_mut(&(context, outlives))?.remove(&key)
    }

    /// Removes what a context had, but for the kinds that outlive it.
    pub(crate) fn end_context(&mut self, context: u32) -> impl Iterator<Item = u32> + use<> {
        let ended = self.maps.remove(&(context, false)).unwrap_or_default();
        if let Some(holders) = &mut self.holders {
            for key in ended.keys() {
                holders.remove(&(*key, context, false));
            }
        }
        ended.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::Alive;

    #[test]
    fn a_free_of_another_context_is_that_of_the_lowest() {
        let mut alive = Alive::default();
        for context in [3, 2, 5] {
            assert_eq!(alive.insert(context, false, (0, 0x10), context), None);
        }
        assert_eq!(alive.insert(5, false, (0, 0x10), 6), Some(5));
        assert_eq!(alive.remove(3, false, (0, 0x10)), Some(3));
        assert_eq!(alive.remove(3, false, (0, 0x10)), Some(2));
        assert_eq!(alive.insert(1, false, (0, 0x10), 1), None);
        assert_eq!(alive.remove(0, false, (0, 0x20)), None);
        assert_eq!(alive.remove(0, false, (1, 0x10)), None);
        assert_eq!(alive.remove(0, false, (0, 0x10)), Some(1));
        assert_eq!(alive.end_context(5).collect::<Vec<_>>(), [6]);
        assert_eq!(alive.remove(0, false, (0, 0x10)), None);
    }

    #[test]
    fn what_outlives_a_context_is_found_after_it() {
        let mut alive = Alive::default();
        alive.insert(1, true, (1, 0x10), 7);
        alive.insert(1, false, (0, 0x10), 8);
        assert_eq!(alive.end_context(1).collect::<Vec<_>>(), [8]);
        assert_eq!(alive.end_context(1).count(), 0);
        assert_eq!(alive.remove(1, true, (1, 0x10)), Some(7));
    }
}
