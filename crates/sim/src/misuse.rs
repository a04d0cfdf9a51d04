//! What the simulation does when a program does what a real driver leaves undefined: use a
//! destroyed stream, give a length that wraps around the address space, ... A real driver may
//! crash then, or corrupt memory, or seem to work. The simulation always notices.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuguard_sys::CUresult;

use crate::os;

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
    /// One line on standard error says what was done, then the process aborts. The default: a
    /// real driver would crash here too, but not always, and without words.
    #[default]
    Abort,
    /// The line is kept for [`misuses`], and the call answers an error.
    Error,
}

/// How many lines are kept.
const MOST: usize = 1000;

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// What misuse was seen so far, in order: the first thousand cases in words. All are counted in
/// [`Counters::misuses`](crate::Counters::misuses). Only [`Misuse::Error`] leaves anything here.
///
/// ```
/// assert!(cuguard_sim::misuses().is_empty());
/// ```
#[must_use]
pub fn misuses() -> Vec<String> {
    // A forked child must not wait for a lock that a thread of its parent may have held.
    if crate::machine::is_forked() {
        return Vec::new();
    }
    SEEN.lock().unwrap_or_else(|e| e.into_inner()).clone()
}

pub(crate) fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Called where a program does the undefined. Returns what to answer, if it returns at all.
pub(crate) fn undefined(policy: Misuse, answer: CUresult, what: String) -> CUresult {
    match policy {
        Misuse::Abort => {
            os::say(&format!("misuse: {what}"));
            std::process::abort();
        }
        Misuse::Error => {
            COUNT.fetch_add(1, Ordering::Relaxed);
            let mut seen = SEEN.lock().unwrap_or_else(|e| e.into_inner());
            if seen.len() < MOST {
                seen.push(what);
            }
            answer
        }
    }
}
