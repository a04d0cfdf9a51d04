//! A barrier that only one side pays for.
//!
//! Two threads that each write one thing and then read the other's need a barrier between, or both
//! may miss what the other wrote. An operation that passes the [gate](crate::Gate) happens millions
//! of times, teardown once. So the operation has a [`light`] barrier, which costs nothing and only
//! keeps the compiler from reordering, and teardown a [`heavy`] one: the kernel then puts a barrier
//! into every thread of the process that is running (`membarrier`, Linux 4.14). Where the kernel
//! does not do that, both are ordinary barriers.

use std::sync::Once;
use std::sync::atomic::compiler_fence;
use std::time::{Duration, Instant};

use crate::primitive::atomic::{AtomicBool, Ordering, fence};
use crate::process;

/// Whether the kernel takes part. Set before the first gate is made, and then never changed.
static ASYMMETRIC: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

#[cfg(target_os = "linux")]
mod kernel {
    /// The commands of `membarrier`, which libc has no function for.
    pub(super) const REGISTER: libc::c_int = libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
    pub(super) const BARRIER: libc::c_int = libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED;

    pub(super) fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: a system call that takes numbers only and touches no memory of ours.
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
const PATIENCE: Duration = Duration::from_millis(250);

/// To be called before the first [`light`] or [`heavy`].
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // loom knows ordinary barriers only.
        if cfg!(loom) {
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

/// Between a write and a read on the side that is often taken.
#[inline]
pub fn light() {
    if ASYMMETRIC.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// Between a write and a read on the side that is seldom taken.
pub fn heavy() {
    fence(Ordering::SeqCst);
    if ASYMMETRIC.load(Ordering::Relaxed) && !kernel::membarrier(kernel::BARRIER) {
        // It worked before; a filter for system calls may have been put up since. What a processor
        // has not yet written when a thread is interrupted, it has after this long.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a thread clears its flag, after a [`heavy`] barrier: it will see what the caller wrote
/// before that, and does nothing under the flag that takes long. False where it stays set while the
/// process is exiting: a signal handler that calls `exit` may have interrupted the thread it waits for.
pub fn wait_while(busy: &AtomicBool) -> bool {
    let mut turns = 0_u32;
    let mut since = None;
    while busy.load(Ordering::Acquire) {
        turns += 1;
        match turns {
            0..100 => std::hint::spin_loop(),
            100..200 => std::thread::yield_now(),
            // With a real-time priority this thread may have preempted the other one, which runs again
            // only while this one sleeps.
            _ => {
                let since = since.get_or_insert_with(Instant::now);
                if process::is_exiting() && since.elapsed() > PATIENCE {
                    return false;
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
    true
}

#[cfg(all(test, not(loom)))]
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
        // A barrier that lets both go in the same moment, which a sleeping one does not.
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
