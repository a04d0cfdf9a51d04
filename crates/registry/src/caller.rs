//! What is known of the caller without being passed: its thread, the time, and its label scope.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use cuguard_sync::clock;

use crate::names::{self, NameId};

thread_local! {
    // Both without a destructor, so that they can be read while the thread's locals are dropped.
    static THREAD: Cell<NameId> = const { Cell::new(0) };
    static SCOPE: Cell<NameId> = const { Cell::new(0) };
}

/// Marks the id of a thread without a name. Its number is not interned, because interned names are
/// never freed and a program may start a thread for each task.
const NUMBERED: NameId = 1 << 31;

/// The calling thread, for [`thread_name`].
#[inline]
pub(crate) fn thread() -> NameId {
    match THREAD.get() {
        0 => find_thread(),
        known => known,
    }
}

#[cold]
#[inline(never)]
fn find_thread() -> NameId {
    let thread = thread::current();
    let id = match thread.name() {
        Some(name) => names::intern(name),
        None => numbered(thread.id()),
    };
    THREAD.set(id);
    id
}

/// Names the calling thread in reports, in place of the name that the standard library has: programs in other languages
/// name their threads by other means. Each distinct name is kept for the life of the process.
///
/// ```
/// cuguard_registry::name_thread("loader");
/// ```
pub fn name_thread(name: &str) {
    let _ = THREAD.try_with(|thread| thread.set(names::intern(name)));
}

fn numbered(id: ThreadId) -> NameId {
    // `ThreadId::as_u64` is unstable; `Debug` is the only access to the number.
    let text = format!("{id:?}");
    let digits = text.trim_matches(|letter: char| !letter.is_ascii_digit());
    match digits.parse() {
        Ok(number) if number < NUMBERED && number_text(number) == text => NUMBERED | number,
        _ => names::intern(&text),
    }
}

fn number_text(number: NameId) -> String {
    format!("ThreadId({number})")
}

/// The name of a thread, or its number as `ThreadId` prints it.
pub(crate) fn thread_name(id: NameId) -> Option<&'static str> {
    match id & NUMBERED {
        0 => names::text(id),
        _ => names::text(names::intern(&number_text(id & !NUMBERED))),
    }
}

/// The text of a label or the name of a thread, without interning anything.
pub(crate) fn name_text(id: NameId) -> Option<String> {
    match id & NUMBERED {
        0 => names::text(id).map(str::to_owned),
        _ => Some(number_text(id & !NUMBERED)),
    }
}

/// The label scope of the calling thread.
#[inline]
pub(crate) fn scope() -> NameId {
    SCOPE.get()
}

/// The time since the process created its first registry.
pub(crate) fn now() -> Duration {
    Duration::from_nanos(clock::nanoseconds())
}

/// When the exit of the process began, in nanoseconds; 0 before.
static EXIT: AtomicU64 = AtomicU64::new(0);

/// Records that the process exits now. All later snapshots have this time, so that the ages in the
/// reports of several contexts agree.
pub fn note_exit() {
    let now = clock::nanoseconds().max(1);
    let _ = EXIT.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
}

/// The time of a snapshot that is taken now.
pub(crate) fn snapshot_time() -> Duration {
    Duration::from_nanos(snapshot_nanoseconds())
}

/// [`snapshot_time`] in nanoseconds.
pub(crate) fn snapshot_nanoseconds() -> u64 {
    match EXIT.load(Ordering::Relaxed) {
        0 => clock::nanoseconds(),
        exit => exit,
    }
}

/// Labels everything that this thread allocates until the returned scope is dropped.
///
/// Labels show in reports and keep groups apart. Nested scopes join their labels with a slash, and the
/// name of a single buffer comes last: `training/step/weights`. Each distinct label is kept for the
/// life of the process, so put no counters into them.
///
/// ```
/// let _training = cuguard::label("training");
/// {
///     let _step = cuguard::label("step"); // allocations here are labelled training/step
/// }
/// // and here training again
/// ```
pub fn in_label(label: &str) -> LabelScope {
    let outer = scope();
    let label = Some(label).filter(|label| !label.is_empty());
    let inner = join(names::text(outer), label).map_or(0, |text| names::intern(&text));
    let _ = SCOPE.try_with(|scope| scope.set(inner));
    LabelScope {
        outer,
        _not_send: PhantomData,
    }
}

/// Joins a scope and a name to a label.
pub(crate) fn join(scope: Option<&str>, name: Option<&str>) -> Option<String> {
    match (scope, name) {
        (Some(scope), Some(name)) => Some(format!("{scope}/{name}")),
        (one, other) => one.or(other).map(str::to_owned),
    }
}

/// A label scope of the calling thread, which ends when this is dropped; see [`label`](in_label).
///
/// It is not `Send`. Scopes must end in the reverse order of their creation, as local variables do.
///
/// ```
/// let scope: cuguard::snapshot::LabelScope = cuguard::label("loading");
/// drop(scope);
/// ```
#[derive(Debug)]
#[must_use = "the label applies until this is dropped"]
pub struct LabelScope {
    outer: NameId,
    /// The scope belongs to one thread.
    _not_send: PhantomData<*const ()>,
}

impl Drop for LabelScope {
    fn drop(&mut self) {
        let _ = SCOPE.try_with(|scope| scope.set(self.outer));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{in_label, join, names, now, scope, thread_name};

    fn current() -> Option<&'static str> {
        names::text(scope())
    }

    #[test]
    fn scopes_nest_and_end_also_while_a_panic_unwinds() {
        assert_eq!(current(), None);
        let _outer = in_label("outer");
        assert_eq!(current(), Some("outer"));
        let panicked = std::panic::catch_unwind(|| {
            let _inner = in_label("inner");
            assert_eq!(current(), Some("outer/inner"));
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(panicked.is_err());
        assert_eq!(current(), Some("outer"));
        let _nothing = in_label("");
        assert_eq!(current(), Some("outer"));
    }

    #[test]
    fn a_scope_is_a_threads_own() {
        let _here = in_label("here");
        thread::spawn(|| assert_eq!(current(), None))
            .join()
            .unwrap();
    }

    #[test]
    fn threads_have_their_name_or_their_number() {
        let named = thread::Builder::new().name("worker 7".into());
        let name = named
            .spawn(|| thread_name(super::thread()))
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(name, Some("worker 7"));
        let number = thread::spawn(|| (super::thread(), thread::current().id()));
        let (thread, id) = number.join().unwrap();
        // Only who asks for the name has it kept.
        assert_eq!(names::text(thread), None);
        assert_eq!(thread_name(thread), Some(format!("{id:?}").as_str()));
        assert_eq!(thread_name(0), None);
    }

    #[test]
    fn labels_join() {
        assert_eq!(join(None, None), None);
        assert_eq!(join(Some("a"), None).as_deref(), Some("a"));
        assert_eq!(join(None, Some("b")).as_deref(), Some("b"));
        assert_eq!(join(Some("a"), Some("b")).as_deref(), Some("a/b"));
    }

    #[test]
    fn time_goes_on() {
        let before = now();
        assert!(now() >= before);
    }
}
