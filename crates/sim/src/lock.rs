//! The one lock around the machine: how it is taken, waited under and left.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use crate::machine::Machine;
use crate::memory_block::MemoryBlock;
use crate::os;

static MACHINE: LazyLock<Mutex<Machine>> = LazyLock::new(Mutex::default);

/// What is left to do for memory that is no longer in use. Under the lock that would hold up
/// everybody else: large blocks take their time to go.
#[derive(Debug)]
pub(crate) enum Leftover {
    Drop(Arc<MemoryBlock>),
    /// Nobody may use the addresses any more, but they stay taken.
    Seal(Arc<MemoryBlock>),
}

fn clean_up(leftovers: Vec<Leftover>) {
    for leftover in leftovers {
        match leftover {
            Leftover::Drop(block) => drop(block),
            Leftover::Seal(block) => block.seal(),
        }
    }
}

/// The machine, locked.
pub(crate) struct Guard {
    /// `None` only within the functions below.
    machine: Option<MutexGuard<'static, Machine>>,
    /// Whether the thread was unwinding when it took the lock: a program may well free its memory
    /// while it does.
    was_panicking: bool,
}

/// A panic has left the machine half changed, or a stream without the thread that does its work.
/// To go on would be to wait for ever, or to answer nonsense.
pub(crate) fn broken() -> ! {
    os::say("a panic within the simulated driver; it cannot go on");
    std::process::abort();
}

pub(crate) fn lock() -> Guard {
    Guard {
        machine: Some(MACHINE.lock().unwrap_or_else(|_| broken())),
        was_panicking: std::thread::panicking(),
    }
}

impl Guard {
    /// Cleans up, without the lock, what was left over so far.
    pub(crate) fn clean_up(&mut self) {
        let leftovers = std::mem::take(&mut self.leftovers);
        if !leftovers.is_empty() {
            self.machine = None;
            clean_up(leftovers);
            self.machine = Some(MACHINE.lock().unwrap_or_else(|_| broken()));
        }
    }

    /// Waits until a condition holds; `on` is told whenever it may have come about.
    pub(crate) fn wait(mut self, on: &Condvar, mut holds: impl FnMut(&Machine) -> bool) -> Self {
        self.clean_up();
        self.machine = self.machine.take().map(|guard| {
            on.wait_while(guard, |machine| !holds(machine))
                .unwrap_or_else(|_| broken())
        });
        self
    }

    /// The same for so long at most.
    pub(crate) fn wait_for(
        mut self,
        on: &Condvar,
        limit: Duration,
        mut holds: impl FnMut(&Machine) -> bool,
    ) -> Self {
        self.clean_up();
        self.machine = self.machine.take().map(|guard| {
            on.wait_timeout_while(guard, limit, |machine| !holds(machine))
                .unwrap_or_else(|_| broken())
                .0
        });
        self
    }
}

impl Deref for Guard {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        match &self.machine {
            Some(machine) => machine,
            None => unreachable!("the lock is held"),
        }
    }
}

impl DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut Machine {
        match &mut self.machine {
            Some(machine) => machine,
            None => unreachable!("the lock is held"),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            broken();
        }
        let leftovers = match &mut self.machine {
            Some(machine) => std::mem::take(&mut machine.leftovers),
            None => Vec::new(),
        };
        self.machine = None;
        clean_up(leftovers);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs a test of this binary in a process of its own and returns what it said when it died.
    fn last_words(name: &str) -> String {
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
        let words = last_words("lock::tests::a_panic_under_the_lock_ends_the_process_with_a_line");
        assert!(words.contains("cuguard-sim: a panic within"), "{words}");
    }

    #[test]
    fn a_panic_while_work_runs_ends_the_process_with_a_line() {
        if is_child() {
            crate::machine::start().unwrap();
            let mut machine = lock();
            let context = machine.on(0).primary;
            machine.open_context(context, 0, 0).unwrap();
            let legacy = machine.contexts[&context].legacy;
            let run = Box::new(|| panic!("on purpose"));
            machine.submit(legacy, None, Some(run), None).unwrap();
            drop(machine);
            std::thread::sleep(Duration::from_secs(60));
        }
        let words = last_words("lock::tests::a_panic_while_work_runs_ends_the_process_with_a_line");
        assert!(words.contains("cuguard-sim: a panic within"), "{words}");
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
