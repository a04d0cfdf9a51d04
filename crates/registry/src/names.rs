//! Names that are never freed, interned: threads, the driver's functions and error names, holders. (Labels are in
//! `labels.rs`.)

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, RwLock};

use dashmap::DashMap;

use crate::hash::{BuildMixHasher, SHARDS};

/// The number of a name or a label; 0 is none.
pub(crate) type NameId = u32;

/// All numbers are below.
pub(crate) const END: NameId = 1 << 31;

/// A new number, for a name or a label; 0 if there are no more. Both have numbers of one range: recordings do not distinguish
/// them.
pub(crate) fn next_id() -> NameId {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let next = |last: NameId| last.checked_add(1).filter(|next| *next < END);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    last.map_or(0, |last| last + 1)
}

/// The names of the process, which are never freed: records hold their numbers.
struct Names {
    ids: DashMap<&'static str, NameId, BuildMixHasher>,
    /// By number. Locked for writing while a name is added.
    texts: RwLock<HashMap<NameId, &'static str, BuildMixHasher>>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| Names {
    ids: DashMap::with_hasher_and_shard_amount(BuildMixHasher::default(), SHARDS),
    texts: RwLock::default(),
});

/// The number of this name. Equal names have equal numbers; the empty name has none.
pub(crate) fn intern(text: &str) -> NameId {
    if text.is_empty() {
        return 0;
    }
    if let Some(id) = NAMES.ids.get(text) {
        return *id;
    }
    let mut texts = cuguard_sync::write(&NAMES.texts);
    // Another thread may have been faster.
    if let Some(id) = NAMES.ids.get(text) {
        return *id;
    }
    let id = next_id();
    if id == 0 {
        return 0;
    }
    let text: &'static str = Box::leak(text.into());
    texts.insert(id, text);
    NAMES.ids.insert(text, id);
    id
}

/// The name with this number.
pub(crate) fn text(id: NameId) -> Option<&'static str> {
    let texts = cuguard_sync::read(&NAMES.texts);
    texts.get(&id).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::{intern, text};

    #[test]
    fn equal_names_are_stored_once() {
        let id = intern("the first loader");
        assert_eq!(intern(&String::from("the first loader")), id);
        assert_ne!(intern("the second loader"), id);
        assert_eq!(text(id), Some("the first loader"));
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
