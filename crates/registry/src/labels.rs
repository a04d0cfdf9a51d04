//! Labels of records, interned, and freed when nothing uses them.
//!
//! A program may put the number of a request into a label, so there may be any number of them. A record has the number of its
//! label, which is not a counted reference: every allocation would change a counter that threads share. Instead, when there are
//! twice as many labels as were in use the last time, the registries are searched for those that records have, and all others
//! are freed: mark and sweep. Numbers are not reused, so the number of a label that was freed is that of no label.
//!
//! A label is not freed while it is the scope of a thread, nor if that or an interning of it was after the search began: what
//! the thread records then may be missed by the search.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, RwLock};

use cuguard_sync::process::is_forked;
use cuguard_sync::{read, try_lock, write};

use crate::hash::BuildMixHasher;
use crate::names::{self, NameId};

/// With fewer labels, none is freed.
const LEAST: usize = 1024;

/// A search finds at most this many labels of records for each new label.
const FOUND: usize = 8;

struct Labels {
    ids: HashMap<Arc<str>, NameId, BuildMixHasher>,
    labels: HashMap<NameId, Label, BuildMixHasher>,
    /// With this many, those that nothing uses are freed.
    limit: usize,
}

struct Label {
    text: Arc<str>,
    /// How many [`ActiveLabel`]s have it.
    active: AtomicUsize,
    /// Interned or active since the last search began.
    touched: AtomicBool,
}

static LABELS: LazyLock<RwLock<Labels>> = LazyLock::new(|| {
    RwLock::new(Labels {
        ids: HashMap::default(),
        labels: HashMap::default(),
        limit: LEAST,
    })
});

/// Whether there are as many labels as the limit.
static DUE: AtomicBool = AtomicBool::new(false);

/// Calls a function with each label that a record has, once or more often.
pub(crate) type Search = fn(&mut dyn FnMut(NameId));

/// Without one, no label is freed.
pub(crate) static SEARCH: OnceLock<Search> = OnceLock::new();

/// How many distinct labels are stored, in use or not.
///
/// ```
/// let _scope = cuguard_registry::label("training");
/// assert!(cuguard_registry::label_count() >= 1);
/// ```
#[must_use]
pub fn label_count() -> usize {
    let labels = read(&LABELS);
    labels.labels.len()
}

/// The number of a label, which `touch` gets. Equal texts have equal numbers; the empty text has none.
fn find(text: &str, touch: impl Fn(&Label)) -> NameId {
    if text.is_empty() {
        return 0;
    }
    let known = |labels: &Labels| {
        let id = *labels.ids.get(text)?;
        touch(labels.labels.get(&id)?);
        Some(id)
    };
    let labels = read(&LABELS);
    if let Some(id) = known(&labels) {
        return id;
    }
    drop(labels);
    let mut labels = write(&LABELS);
    // Another thread may have been faster.
    if let Some(id) = known(&labels) {
        return id;
    }
    let id = names::next_id();
    if id == 0 {
        return 0;
    }
    let label = Label {
        text: text.into(),
        active: AtomicUsize::new(0),
        touched: AtomicBool::new(false),
    };
    touch(&label);
    labels.ids.insert(label.text.clone(), id);
    labels.labels.insert(id, label);
    if labels.labels.len() >= labels.limit {
        DUE.store(true, Relaxed);
    }
    id
}

/// The number of a label that a record gets. The caller has locked the shard of the record until it has it.
pub(crate) fn intern(text: &str) -> NameId {
    find(text, |label| label.touched.store(true, Relaxed))
}

/// The label with this number.
pub(crate) fn text(id: NameId) -> Option<Arc<str>> {
    if id == 0 {
        return None;
    }
    let labels = read(&LABELS);
    labels.labels.get(&id).map(|label| label.text.clone())
}

/// A label that is not freed while this exists.
#[derive(Debug)]
pub(crate) struct ActiveLabel(NameId);

impl ActiveLabel {
    pub(crate) fn new(text: &str) -> Self {
        Self(find(text, |label| {
            label.touched.store(true, Relaxed);
            label.active.fetch_add(1, Relaxed);
        }))
    }

    pub(crate) fn id(&self) -> NameId {
        self.0
    }
}

impl Drop for ActiveLabel {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist may hold the lock.
        if self.0 != 0 && !is_forked() {
            let labels = read(&LABELS);
            if let Some(label) = labels.labels.get(&self.0) {
                label.active.fetch_sub(1, Relaxed);
            }
        }
    }
}

/// Frees the labels that nothing uses, if there are many. The caller holds no lock.
#[inline]
pub(crate) fn free_unused() {
    if DUE.load(Relaxed) {
        mark_and_sweep();
    }
}

#[cold]
fn mark_and_sweep() {
    static ALONE: Mutex<()> = Mutex::new(());
    let Some(search) = SEARCH.get() else {
        return;
    };
    // Else another thread does it.
    let Some(_alone) = try_lock(&ALONE) else {
        return;
    };
    if is_forked() || !DUE.swap(false, Relaxed) {
        return;
    }
    let mut labels = write(&LABELS);
    for label in labels.labels.values_mut() {
        *label.touched.get_mut() = *label.active.get_mut() != 0;
    }
    drop(labels);
    let (mut used, mut found) = (HashSet::<_, BuildMixHasher>::default(), 0);
    search(&mut |label| {
        used.insert(label);
        found += 1;
    });
    let mut labels = write(&LABELS);
    let Labels { ids, labels, limit } = &mut *labels;
    labels.retain(|id, label| {
        *label.active.get_mut() != 0 || *label.touched.get_mut() || used.contains(id)
    });
    ids.retain(|_, id| labels.contains_key(id));
    *limit = LEAST.max(2 * labels.len()).max(found / FOUND);
    labels.shrink_to(*limit);
    ids.shrink_to(*limit);
}

/// The texts of labels of records that are being visited: a record may be removed, and its label freed, before the text is
/// needed.
#[derive(Debug, Default)]
pub(crate) struct LabelTexts(HashMap<(NameId, NameId), String, BuildMixHasher>);

impl LabelTexts {
    /// Reads the label of a record that is visited, by its scope and its name.
    pub(crate) fn read(&mut self, scope: NameId, name: NameId) {
        if (scope, name) != (0, 0)
            && !self.0.contains_key(&(scope, name))
            && let Some(text) = joined(scope, name)
        {
            self.0.insert((scope, name), text);
        }
    }

    pub(crate) fn get(&self, scope: NameId, name: NameId) -> Option<String> {
        self.0.get(&(scope, name)).cloned()
    }
}

/// The label of a record with this scope and this name.
pub(crate) fn joined(scope: NameId, name: NameId) -> Option<String> {
    match (text(scope), text(name)) {
        (Some(scope), Some(name)) => Some(format!("{scope}/{name}")),
        (one, other) => one.or(other).map(|text| text.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::{intern, joined, text};

    #[test]
    fn equal_labels_are_stored_once() {
        let id = intern("weights of the first layer");
        assert_eq!(intern(&String::from("weights of the first layer")), id);
        let other = intern("weights of the second layer");
        assert_ne!(other, id);
        assert_eq!(text(id).as_deref(), Some("weights of the first layer"));
        assert_eq!((intern(""), text(0), text(u32::MAX)), (0, None, None));
        assert_eq!(joined(0, 0), None);
        let first = Some("weights of the first layer");
        assert_eq!(joined(id, 0).as_deref(), first);
        assert_eq!(joined(0, id).as_deref(), first);
        let both = "weights of the first layer/weights of the second layer";
        assert_eq!(joined(id, other).as_deref(), Some(both));
    }

    #[test]
    fn threads_that_intern_the_same_labels_agree() {
        let all: Vec<Vec<u32>> = thread::scope(|scope| {
            let intern_all = || (0..200).map(|i| intern(&format!("agreed {i}"))).collect();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(intern_all)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        assert_eq!(all[0].iter().collect::<HashSet<_>>().len(), 200);
    }
}
