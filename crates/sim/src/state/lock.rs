//! The lock around the driver's state: how it is acquired, waited under and released.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use super::driver_state::DriverState;
use crate::graph::HostFunction;
use crate::memory::Cleanup;
use crate::{stderr, thread_state};

static STATE: LazyLock<Mutex<DriverState>> = LazyLock::new(Mutex::default);

/// The locked state.
pub(crate) struct StateGuard {
    /// `None` only inside the functions below.
    state: Option<MutexGuard<'static, DriverState>>,
    /// Whether the thread was already unwinding when it took the lock: a program may free its
    /// memory while it unwinds.
    was_panicking: bool,
}

/// A panic has left the state inconsistent, or a stream without its worker thread. To continue
/// would be to deadlock or to return wrong results.
pub(crate) fn abort_after_panic() -> ! {
    stderr::print_line("panic in the simulated driver; aborting");
    std::process::abort();
}

fn lock_state() -> MutexGuard<'static, DriverState> {
    STATE.lock().unwrap_or_else(|_| abort_after_panic())
}

pub(crate) fn lock() -> StateGuard {
    StateGuard {
        state: Some(lock_state()),
        was_panicking: std::thread::panicking(),
    }
}

/// What is to be done without the lock.
struct Pending {
    cleanups: Vec<Cleanup>,
    /// User objects whose last reference was released.
    objects: Vec<HostFunction>,
}

impl Pending {
    fn of(state: &mut DriverState) -> Self {
        Self {
            cleanups: std::mem::take(&mut state.cleanups),
            objects: std::mem::take(&mut state.destroyed_objects),
        }
    }

    fn is_empty(&self) -> bool {
        self.cleanups.is_empty() && self.objects.is_empty()
    }

    fn run(self) {
        self.cleanups.into_iter().for_each(Cleanup::run);
        for HostFunction { function, data } in self.objects {
            // SAFETY: the program passed the function with the argument to call it with.
            thread_state::run_host_function(|| unsafe { function(data) });
        }
    }
}

impl StateGuard {
    /// Runs the pending cleanups, and the destructors of user objects, without the lock.
    pub(crate) fn clean_up(&mut self) {
        let pending = Pending::of(self);
        if !pending.is_empty() {
            self.state = None;
            pending.run();
            self.state = Some(lock_state());
        }
    }

    /// Waits on `condvar` until a condition holds, or for `limit`.
    pub(crate) fn wait(
        mut self,
        condvar: &Condvar,
        limit: Option<Duration>,
        mut holds: impl FnMut(&DriverState) -> bool,
    ) -> Self {
        self.clean_up();
        let limit = limit.unwrap_or(Duration::MAX);
        self.state = self.state.take().map(|state| {
            let waited = condvar.wait_timeout_while(state, limit, |state| !holds(state));
            waited.unwrap_or_else(|_| abort_after_panic()).0
        });
        self
    }
}

impl Deref for StateGuard {
    type Target = DriverState;

    fn deref(&self) -> &DriverState {
        self.state.as_ref().expect("the lock is held")
    }
}

impl DerefMut for StateGuard {
    fn deref_mut(&mut self) -> &mut DriverState {
        self.state.as_mut().expect("the lock is held")
    }
}

impl Drop for StateGuard {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            abort_after_panic();
        }
        let pending = Pending::of(self);
        self.state = None;
        pending.run();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs a test of this binary in a process of its own and returns its standard error.
    fn stderr_of(name: &str) -> String {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env("CHILD", "1")
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn is_child() -> bool {
        std::env::var_os("CHILD").is_some()
    }

    #[test]
    fn a_panic_under_the_lock_ends_the_process_with_a_line() {
        if is_child() {
            let _guard = lock();
            panic!("on purpose");
        }
        let stderr =
            stderr_of("state::lock::tests::a_panic_under_the_lock_ends_the_process_with_a_line");
        assert!(stderr.contains("cuguard-sim: panic in"), "{stderr}");
    }

    #[test]
    fn a_panic_while_work_runs_ends_the_process_with_a_line() {
        if is_child() {
            crate::state::start().unwrap();
            let mut state = lock();
            let context = state.device(0).primary;
            state.open_context(context, 0, 0).unwrap();
            let legacy = state.contexts[&context].legacy;
            let run = Box::new(|| panic!("on purpose"));
            state.submit(legacy, None, Some(run), None).unwrap();
            drop(state);
            std::thread::sleep(Duration::from_secs(60));
        }
        let stderr =
            stderr_of("state::lock::tests::a_panic_while_work_runs_ends_the_process_with_a_line");
        assert!(stderr.contains("cuguard-sim: panic in"), "{stderr}");
    }

    #[test]
    fn a_thread_that_unwinds_may_take_the_lock() {
        struct OnDrop;
        impl Drop for OnDrop {
            fn drop(&mut self) {
                drop(lock());
            }
        }
        let unwound = std::panic::catch_unwind(|| {
            let _on_drop = OnDrop;
            panic!("on purpose");
        });
        assert!(unwound.is_err());
    }
}
