//! The label scopes of a thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::marker::PhantomData;

use cuguard_sync::process::is_forked;

use crate::labels::{self, ActiveLabel};
use crate::names::NameId;

/// Of more nested scopes, this many of the outermost and of the innermost are in a label: scopes that are never dropped do
/// not make labels ever longer.
const SHOWN: usize = 8;

thread_local! {
    /// Without a destructor, so that it can be read while the thread's locals are dropped. Every allocation reads it.
    static SCOPE: Cell<NameId> = const { Cell::new(0) };
    static SCOPES: RefCell<Scopes> = const { RefCell::new(Scopes::NONE) };
}

/// The label scope of the calling thread.
#[inline]
pub(crate) fn scope() -> NameId {
    SCOPE.get()
}

/// The scopes of a thread that have not ended.
struct Scopes {
    /// Their names, by number: the outermost first.
    names: BTreeMap<u64, Box<str>>,
    /// The number of the last one.
    last: u64,
    /// The label of all of them: that of [`SCOPE`].
    label: Option<ActiveLabel>,
}

impl Scopes {
    const NONE: Self = Self {
        names: BTreeMap::new(),
        last: 0,
        label: None,
    };

    fn begin(&mut self, name: &str) -> u64 {
        self.last += 1;
        self.names.insert(self.last, name.into());
        self.update();
        self.last
    }

    fn end(&mut self, number: u64) {
        self.names.remove(&number);
        self.update();
    }

    fn update(&mut self) {
        let names = || self.names.values().map(|name| &**name);
        let label: Vec<&str> = match self.names.len() {
            count if count <= 2 * SHOWN => names().collect(),
            _ => {
                let mut inner: Vec<&str> = names().rev().take(SHOWN).collect();
                inner.reverse();
                names().take(SHOWN).chain(["…"]).chain(inner).collect()
            }
        };
        let label = ActiveLabel::new(&label.join("/"));
        SCOPE.set(label.id());
        // The old one is in use until here.
        self.label = Some(label);
    }
}

impl Drop for Scopes {
    fn drop(&mut self) {
        SCOPE.set(0);
    }
}

/// Labels everything that this thread allocates until the returned scope is dropped.
///
/// Labels show in reports and keep groups apart. Nested scopes join their labels with a slash, and the
/// name of a single buffer comes last: `training/step/weights`. Of more than 16 nested scopes, the outermost
/// and the innermost eight are shown.
///
/// ```
/// let _training = cuguard::label("training");
/// {
///     let _step = cuguard::label("step"); // allocations here are labelled training/step
/// }
/// // and here training again
/// ```
pub fn label(label: &str) -> LabelScope {
    let mut number = 0;
    // In a forked child a thread that does not exist may hold a lock. While the thread's locals are dropped, there may be no
    // scopes any more.
    if !label.is_empty() && !is_forked() {
        let begun = SCOPES.try_with(|scopes| scopes.borrow_mut().begin(label));
        number = begun.unwrap_or(0);
        labels::free_unused();
    }
    LabelScope {
        number,
        _not_send: PhantomData,
    }
}

/// A label scope of the calling thread, which ends when this is dropped; see [`label`](label).
///
/// It is not `Send`. Scopes may end in any order: each takes its own name out of the label.
///
/// ```
/// let scope: cuguard::snapshot::LabelScope = cuguard::label("loading");
/// drop(scope);
/// ```
#[derive(Debug)]
#[must_use = "the label applies until this is dropped"]
pub struct LabelScope {
    /// 0 for none.
    number: u64,
    /// The scope belongs to one thread.
    _not_send: PhantomData<*const ()>,
}

impl Drop for LabelScope {
    fn drop(&mut self) {
        if self.number != 0 && !is_forked() {
            let _ = SCOPES.try_with(|scopes| scopes.borrow_mut().end(self.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{SHOWN, label, scope};
    use crate::labels;

    fn current() -> Option<String> {
        labels::text(scope()).map(|text| text.to_string())
    }

    #[track_caller]
    fn is(label: &str) {
        assert_eq!(
            current().as_deref(),
            Some(label).filter(|label| !label.is_empty())
        );
    }

    #[test]
    fn scopes_nest_and_end_also_while_a_panic_unwinds() {
        is("");
        let _outer = label("outer");
        is("outer");
        let panicked = std::panic::catch_unwind(|| {
            let _inner = label("inner");
            is("outer/inner");
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(panicked.is_err());
        is("outer");
        let _nothing = label("");
        is("outer");
    }

    #[test]
    fn scopes_end_in_any_order() {
        let [one, two, three] = ["one", "two", "three"].map(label);
        drop(two);
        is("one/three");
        drop(one);
        is("three");
        let four = label("four");
        is("three/four");
        drop(three);
        is("four");
        drop(four);
        is("");
    }

    #[test]
    fn a_scope_is_a_threads_own() {
        let _here = label("here");
        thread::spawn(|| is("")).join().unwrap();
    }

    /// Scopes that are forgotten, or kept, make neither the label nor the number of labels grow.
    #[test]
    fn labels_of_many_scopes_are_short() {
        let names = thread::spawn(|| {
            let mut kept = Vec::new();
            let mut seen = std::collections::HashSet::new();
            for _ in 0..1000 {
                kept.push(label("kept"));
                std::mem::forget(label("forgotten"));
                seen.extend(current());
            }
            let pairs = ["kept/forgotten"; SHOWN / 2].join("/");
            is(&format!("{pairs}/…/{pairs}"));
            // From the outermost on.
            drop(kept);
            let forgotten = ["forgotten"; SHOWN].join("/");
            is(&format!("{forgotten}/…/{forgotten}"));
            seen.len()
        });
        assert_eq!(names.join().unwrap(), SHOWN + 1);
    }
}
