//! Misuse: what a real driver leaves undefined, such as the use of a destroyed stream or a length
//! that wraps around the address space. A real driver may crash, corrupt memory, or seem to work.
//! The simulation always detects it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuguard_sys::CUresult;

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
    /// Prints one line that describes it on standard error and aborts the process. The default: a
    /// real driver may crash here too, but not reliably and without a message.
    #[default]
    Abort,
    /// Records the description for [`misuses`], and the call fails.
    Error,
}

/// How many descriptions are kept.
const MAX_RECORDED: usize = 1000;

static RECORDED: Mutex<Vec<String>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Descriptions of the first thousand cases of misuse, in order.
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
    match policy {
        Misuse::Abort => {
            stderr::print_line(&format!("misuse: {description}"));
            std::process::abort();
        }
        Misuse::Error => {
            COUNT.fetch_add(1, Ordering::Relaxed);
            if let Some(mut recorded) = lock_unless_forked(&RECORDED)
                && recorded.len() < MAX_RECORDED
            {
                recorded.push(description);
            }
            error
        }
    }
}
