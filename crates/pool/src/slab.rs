//! Values behind small keys. A key has a type of its own for each kind of value.

use std::fmt;
use std::marker::PhantomData;

pub(crate) type FrameId = Key<OfFrame>;
pub(crate) type WindowId = Key<OfWindow>;
pub(crate) type RangeId = Key<OfRange>;

#[derive(Debug)]
pub(crate) enum OfFrame {}

#[derive(Debug)]
pub(crate) enum OfWindow {}

#[derive(Debug)]
pub(crate) enum OfRange {}

/// The key of a value in a [`Slab`]. Reused after the value is removed.
pub(crate) struct Key<K> {
    index: u32,
    of: PhantomData<fn() -> K>,
}

impl<K> Clone for Key<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Key<K> {}

impl<K> Key<K> {
    /// Orders before every other key.
    pub(crate) const MIN: Self = Self {
        index: 0,
        of: PhantomData,
    };
}

impl<K> PartialEq for Key<K> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl<K> Eq for Key<K> {}

impl<K> PartialOrd for Key<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Key<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.index.cmp(&other.index)
    }
}

impl<K> std::hash::Hash for Key<K> {
    #[inline]
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.index));
    }
}

impl<K> fmt::Debug for Key<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.index)
    }
}

#[derive(Debug)]
pub(crate) struct Slab<K, T> {
    values: Vec<Option<T>>,
    vacant: Vec<u32>,
    of: PhantomData<fn() -> K>,
}

impl<K, T> Slab<K, T> {
    pub(crate) fn new() -> Self {
        Self {
            values: Vec::new(),
            vacant: Vec::new(),
            of: PhantomData,
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> Key<K> {
        let index = match self.vacant.pop() {
            Some(index) => {
                self.values[index as usize] = Some(value);
                index
            }
            None => {
                self.values.push(Some(value));
                (self.values.len() - 1) as u32
            }
        };
        Key {
            index,
            of: PhantomData,
        }
    }

    /// Removes a value that is there.
    pub(crate) fn remove(&mut self, key: Key<K>) -> T {
        let value = self.values[key.index as usize].take();
        self.vacant.push(key.index);
        value.expect("a key is of a value that is there")
    }

    pub(crate) fn get(&self, key: Key<K>) -> Option<&T> {
        self.values.get(key.index as usize)?.as_ref()
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len() - self.vacant.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key<K>, &T)> {
        self.values.iter().enumerate().filter_map(|(index, value)| {
            let key = Key {
                index: index as u32,
                of: PhantomData,
            };
            Some((key, value.as_ref()?))
        })
    }

    pub(crate) fn keys(&self) -> Vec<Key<K>> {
        self.iter().map(|(key, _)| key).collect()
    }
}

impl<K, T> std::ops::Index<Key<K>> for Slab<K, T> {
    type Output = T;

    #[inline]
    fn index(&self, key: Key<K>) -> &T {
        self.values[key.index as usize]
            .as_ref()
            .expect("a key is of a value that is there")
    }
}

impl<K, T> std::ops::IndexMut<Key<K>> for Slab<K, T> {
    #[inline]
    fn index_mut(&mut self, key: Key<K>) -> &mut T {
        self.values[key.index as usize]
            .as_mut()
            .expect("a key is of a value that is there")
    }
}
