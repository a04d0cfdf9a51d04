//! Misuse: what a real driver leaves undefined, such as the use of a destroyed stream or a length
//! that wraps around the address space. A real driver may crash, corrupt memory, or seem to work.
//! The simulation detects the cases that the guide lists in its chapter about testing without a GPU.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuguard_sys::CUresult;

use crate::functions::Function;
use crate::process::lock_unless_forked;
use crate::stderr;

/// What happens on misuse.
///
/// ```
/// use cuguard_sim::{Config, Misuse};
///
/// let config = Config::new().misuse(Misuse::Error);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// Prints one line with the call and a description on standard error and aborts the process. The
    /// default: a real driver may crash here too, but not reliably and without a message.
    #[default]
    Abort,
    /// Records the call and the description for [`misuses`], and the call fails.
    Error,
}

/// How many descriptions are kept.
const MAX_RECORDED: usize = 1000;

static RECORDED: Mutex<Vec<String>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The driver function that the thread is in.
    static CALL: Cell<Option<Function>> = const { Cell::new(None) };
}

/// Runs the body of a driver function. Misuse in it is reported with the function's name.
pub(crate) fn in_call<T>(function: Function, body: impl FnOnce() -> T) -> T {
    CALL.set(Some(function));
    let result = body();
    // A thread of the driver may run work next, which is part of no call.
    CALL.set(None);
    result
}

/// Descriptions of the first thousand cases of misuse, in order, each after the name of the function.
/// [`Counters::misuses`](crate::Counters::misuses) counts all. Always empty with [`Misuse::Abort`].
///
/// ```
/// assert!(cuguard_sim::misuses().is_empty());
/// ```
#[must_use]
pub fn misuses() -> Vec<String> {
    let recorded = lock_unless_forked(&RECORDED);
    recorded.map_or_else(Vec::new, |recorded| recorded.clone())
}

pub(crate) fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Aborts, or records the description and returns `error`, which the call is to fail with.
pub(crate) fn report(policy: Misuse, error: CUresult, description: String) -> CUresult {
    let call = CALL.get().map(Function::name);
    match policy {
        Misuse::Abort => {
            let place = call.map_or_else(String::new, |name| format!(" in {name}"));
            stderr::print_line(&format!("misuse{place}: {description}"));
            std::process::abort();
        }
        Misuse::Error => {
            COUNT.fetch_add(1, Ordering::Relaxed);
            if let Some(mut recorded) = lock_unless_forked(&RECORDED)
                && recorded.len() < MAX_RECORDED
            {
                recorded.push(match call {
                    Some(name) => format!("{name}: {description}"),
                    None => description,
                });
            }
            error
        }
    }
}
