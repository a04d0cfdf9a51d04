//! Names that many records share, interned: labels, threads, the driver's functions and error names.

use std::sync::{LazyLock, PoisonError, RwLock};

use dashmap::DashMap;

use crate::hash::{BuildMixHasher, SHARDS};

/// The number of a name; 0 is no name.
pub(crate) type NameId = u32;

/// The names of the process, which are never freed: records hold their numbers.
struct Names {
    ids: DashMap<&'static str, NameId, BuildMixHasher>,
    /// By number, from 1. Locked for writing while a name is added.
    texts: RwLock<Vec<&'static str>>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| Names {
    ids: DashMap::with_hasher_and_shard_amount(BuildMixHasher::default(), SHARDS),
    texts: RwLock::new(Vec::new()),
});

/// The number of this name. Equal names have equal numbers; the empty name has none.
pub(crate) fn intern(text: &str) -> NameId {
    if text.is_empty() {
        return 0;
    }
    if let Some(id) = NAMES.ids.get(text) {
        return *id;
    }
    let mut texts = NAMES.texts.write().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have been faster.
    if let Some(id) = NAMES.ids.get(text) {
        return *id;
    }
    let Ok(id) = NameId::try_from(texts.len() + 1) else {
        return 0;
    };
    let text: &'static str = Box::leak(text.into());
    texts.push(text);
    NAMES.ids.insert(text, id);
    id
}

/// The name with this number.
pub(crate) fn text(id: NameId) -> Option<&'static str> {
    let index = (id as usize).checked_sub(1)?;
    let texts = NAMES.texts.read().unwrap_or_else(PoisonError::into_inner);
    texts.get(index).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::{intern, text};

    #[test]
    fn equal_names_are_stored_once() {
        let id = intern("weights of the first layer");
        assert_eq!(intern(&String::from("weights of the first layer")), id);
        assert_ne!(intern("weights of the second layer"), id);
        assert_eq!(text(id), Some("weights of the first layer"));
        assert_eq!((intern(""), text(0), text(u32::MAX)), (0, None, None));
    }

    #[test]
    fn threads_that_intern_the_same_names_agree() {
        let all: Vec<Vec<u32>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..200).map(|i| intern(&format!("agreed {i}"))).collect()))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        assert_eq!(all[0].iter().collect::<HashSet<_>>().len(), 200);
    }
}
