//! An asymmetric memory barrier: only the rare side pays for it.
//!
//! Two threads that each write one variable and then read the other's need a barrier in between, or both
//! may miss the other's write. Operations on a context run millions of times, its teardown once. So an
//! operation has a [`light`] barrier, which only keeps the compiler from reordering, and teardown a
//! [`heavy`] one: the kernel executes a barrier on every running thread of the process (`membarrier`,
//! Linux 4.14). Without that system call both are ordinary barriers.

use std::sync::Once;
use std::sync::atomic::compiler_fence;
use std::time::{Duration, Instant};

use crate::primitive::atomic::{AtomicBool, Ordering, fence};
use crate::process;

/// Whether `membarrier` works. Set before the first barrier, and never changed then.
static ASYMMETRIC: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

#[cfg(target_os = "linux")]
mod kernel {
    /// The commands of `membarrier`, which libc has no function for.
    pub(super) const REGISTER: libc::c_int = libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
    pub(super) const BARRIER: libc::c_int = libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED;

    pub(super) fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the system call takes numbers only, and accesses no memory of the process.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    pub(super) const REGISTER: i32 = 0;
    pub(super) const BARRIER: i32 = 1;

    pub(super) fn membarrier(_: i32) -> bool {
        false
    }
}

/// How long an exiting process [waits](wait_while).
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_millis(250);

/// Must be called before the first [`light`] or [`heavy`].
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // loom knows ordinary barriers only.
        if cfg!(cuguard_loom) {
            return;
        }
        let works = kernel::membarrier(kernel::REGISTER) && kernel::membarrier(kernel::BARRIER);
        ASYMMETRIC.store(works, Ordering::SeqCst);
    });
}

/// Whether [`light`] costs nothing.
pub fn is_asymmetric() -> bool {
    ASYMMETRIC.load(Ordering::Relaxed)
}

/// The barrier between a write and a read on the frequent side.
#[inline]
pub fn light() {
    if ASYMMETRIC.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// [`light`] for a caller that knows that it is asymmetric. Under loom, which knows ordinary barriers only, it is one of these.
#[inline(always)]
pub(crate) fn light_if_asymmetric() {
    match cfg!(cuguard_loom) {
        true => fence(Ordering::SeqCst),
        false => compiler_fence(Ordering::SeqCst),
    }
}

/// The barrier between a write and a read on the rare side.
pub fn heavy() {
    fence(Ordering::SeqCst);
    if ASYMMETRIC.load(Ordering::Relaxed) && !kernel::membarrier(kernel::BARRIER) {
        // It worked before: a seccomp filter may have been installed since. Store buffers drain within
        // nanoseconds, and a preempted thread's at the context switch, so this is long enough.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until another thread clears its flag. Called after a [`heavy`] barrier, so that thread sees what the
/// caller wrote, and it does nothing slow while the flag is set. Returns false if the flag stays set while
/// the process exits: a signal handler that calls `exit` may have interrupted that very thread.
pub fn wait_while(busy: &AtomicBool) -> bool {
    let mut turns = 0_u32;
    let mut since = None;
    while busy.load(Ordering::Acquire) {
        turns += 1;
        match turns {
            0..100 => std::hint::spin_loop(),
            100..200 => std::thread::yield_now(),
            // A thread with real-time priority may have preempted the other one, which runs only while
            // this one sleeps.
            _ => {
                let since = since.get_or_insert_with(Instant::now);
                if process::is_exiting() && since.elapsed() > EXIT_TIMEOUT {
                    return false;
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
    true
}

#[cfg(all(test, not(cuguard_loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
    use std::time::Duration;

    use super::{heavy, light, prepare, wait_while};

    /// Two threads write and then read: never do both miss the other's write.
    #[test]
    fn one_of_the_two_sees_the_other() {
        const ROUNDS: usize = 3_000;
        prepare();
        let (mine, other) = (AtomicU32::new(0), AtomicU32::new(0));
        // Spins, because both must start at the same moment.
        let arrived = AtomicU32::new(0);
        let rounds = |often: bool| {
            let (own, read) = if often {
                (&mine, &other)
            } else {
                (&other, &mine)
            };
            let mut seen = Vec::with_capacity(ROUNDS);
            for round in 1..=ROUNDS as u32 {
                arrived.fetch_add(1, Relaxed);
                while arrived.load(Relaxed) < 2 * round {
                    std::hint::spin_loop();
                }
                own.store(round, Relaxed);
                if often {
                    light()
                } else {
                    heavy()
                }
                seen.push(read.load(Relaxed) == round);
            }
            seen
        };
        let (often, seldom) = std::thread::scope(|scope| {
            let often = scope.spawn(|| rounds(true));
            let seldom = scope.spawn(|| rounds(false));
            (often.join().unwrap(), seldom.join().unwrap())
        });
        assert!(often.iter().zip(&seldom).all(|(one, two)| *one || *two));
    }

    #[test]
    fn a_flag_is_waited_for_however_long_it_is_set() {
        let busy = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                busy.store(false, Relaxed);
            });
            assert!(wait_while(&busy) && !busy.load(Relaxed));
        });
    }
}
