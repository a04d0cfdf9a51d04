//! What is known about the caller without being told: its thread, the time, and the label scope
//! that it is in.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::names::{self, NameId};
use cuguard_sync::clock;

thread_local! {
    // Both without a destructor, so that they can be read while a thread's locals go.
    static THREAD: Cell<NameId> = const { Cell::new(0) };
    static SCOPE: Cell<NameId> = const { Cell::new(0) };
}

/// Marks the number of a thread that has no name. It does not go among the names, which stay for
/// good: a program may have a new thread for each piece of its work.
const NUMBERED: NameId = 1 << 31;

/// Which thread the calling one is, for [`thread_name`].
pub(super) fn thread() -> NameId {
    THREAD
        .try_with(|known| {
            if known.get() == 0 {
                let thread = thread::current();
                known.set(match thread.name() {
                    Some(name) => names::intern(name),
                    None => numbered(thread.id()),
                });
            }
            known.get()
        })
        .unwrap_or(0)
}

fn numbered(id: ThreadId) -> NameId {
    // There is no other way to the number.
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

/// The name of a thread, or its number as Rust prints it.
pub(super) fn thread_name(id: NameId) -> Option<&'static str> {
    match id & NUMBERED {
        0 => names::text(id),
        _ => names::text(names::intern(&number_text(id & !NUMBERED))),
    }
}

/// The label scope that the calling thread is in.
pub(super) fn scope() -> NameId {
    SCOPE.try_with(Cell::get).unwrap_or(0)
}

/// The time since the process made its first registry.
pub(super) fn now() -> Duration {
    Duration::from_nanos(clock::nanoseconds())
}

/// When the exit of the process began, in nanoseconds; 0 before.
static EXIT: AtomicU64 = AtomicU64::new(0);

/// Notes that the process exits now. All snapshots from then on are of this moment, so that the ages in
/// the reports of several contexts agree.
pub fn note_exit() {
    let now = clock::nanoseconds().max(1);
    let _ = EXIT.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
}

/// The time of a snapshot that is taken now.
pub(super) fn snapshot_time() -> Duration {
    match EXIT.load(Ordering::Relaxed) {
        0 => now(),
        exit => Duration::from_nanos(exit),
    }
}

/// Gives a label to everything that this thread makes from now on, until the answer goes.
///
/// Labels show in reports and keep groups apart. Scopes inside each other join their labels with a
/// slash, and a name that a single buffer gets comes last: `training/step/weights`. Each distinct
/// label is kept for the life of the process, so put no counters into them.
///
/// ```
/// let _training = cuguard::label("training");
/// {
///     let _step = cuguard::label("step"); // what is made here is labelled training/step
/// }
/// // and here training again
/// ```
pub fn in_label(label: &str) -> LabelScope {
    let outer = scope();
    let inner = join(
        names::text(outer),
        Some(label).filter(|label| !label.is_empty()),
    );
    let inner = inner.map_or(0, |text| names::intern(&text));
    let _ = SCOPE.try_with(|scope| scope.set(inner));
    LabelScope {
        outer,
        _this_thread: PhantomData,
    }
}

/// A scope and a name as one label.
pub(super) fn join(scope: Option<&str>, name: Option<&str>) -> Option<String> {
    match (scope, name) {
        (Some(scope), Some(name)) => Some(format!("{scope}/{name}")),
        (one, other) => one.or(other).map(str::to_owned),
    }
}

/// What this thread makes has a label until this goes; see [`label`](crate::label).
///
/// It cannot go to another thread. Scopes end in the reverse order of their beginning, as local
/// variables do by themselves.
///
/// ```
/// let scope: cuguard::snapshot::LabelScope = cuguard::label("loading");
/// drop(scope);
/// ```
#[derive(Debug)]
#[must_use = "the label holds only as long as this is kept"]
pub struct LabelScope {
    outer: NameId,
    /// The scope is a thread's own.
    _this_thread: PhantomData<*const ()>,
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
