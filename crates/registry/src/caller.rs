//! What is known of the caller without being passed: its thread, and the time.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use cuguard_sync::clock;

use crate::labels;
use crate::names::{self, NameId};

thread_local! {
    // Without a destructor, so that it can be read while the thread's locals are dropped.
    static THREAD: Cell<NameId> = const { Cell::new(0) };
}

/// Marks the id of a thread without a name. Its number is not interned, because interned names are
/// never freed and a program may start a thread for each task.
const NUMBERED: NameId = names::END;

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
    let digits = text.trim_matches(|character: char| !character.is_ascii_digit());
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
        0 => match names::text(id) {
            Some(name) => Some(name.to_owned()),
            None => labels::text(id).map(|label| label.to_string()),
        },
        _ => Some(number_text(id & !NUMBERED)),
    }
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{names, now, thread_name};

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
    fn time_goes_on() {
        let before = now();
        assert!(now() >= before);
    }
}
