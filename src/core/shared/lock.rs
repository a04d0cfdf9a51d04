//! Locks and thread-local flags.

use std::cell::Cell;
use std::thread::LocalKey;
use std::time::Duration;

pub(crate) use cuguard_sync::{lock, try_lock};

/// How often [`within_patience`] attempts it, a millisecond apart.
const ATTEMPTS: u32 = 100;

/// Repeats an attempt that fails while another thread holds a lock. That thread may wait for the calling one, or be the calling
/// one.
pub(crate) fn within_patience<T>(attempt: impl Fn() -> Option<T>) -> Option<T> {
    (0..ATTEMPTS).find_map(|number| {
        if number != 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        attempt()
    })
}

/// Sets a thread-local flag until dropped, and restores its value then.
pub(crate) struct FlagGuard {
    flag: &'static LocalKey<Cell<bool>>,
    /// Whether it was set before.
    pub(crate) was_set: bool,
}

impl FlagGuard {
    pub(crate) fn set(flag: &'static LocalKey<Cell<bool>>) -> Self {
        let was_set = flag.replace(true);
        Self { flag, was_set }
    }
}

impl Drop for FlagGuard {
    fn drop(&mut self) {
        self.flag.set(self.was_set);
    }
}
