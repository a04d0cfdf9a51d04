//! A futex lock without an owner: whoever holds it may release it in a `fork` handler, in parent and child.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may wait in the kernel.
const CONTENDED: u32 = 2;

/// How often a thread looks again before it waits in the kernel. The arena's critical sections take some 10 ns.
const SPINS: u32 = 100;

pub(super) struct Lock(AtomicU32);

/// Releases the lock when dropped.
pub(super) struct Held<'a>(&'a Lock);

impl Lock {
    pub(super) const fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    pub(super) fn hold(&self) -> Held<'_> {
        self.lock();
        Held(self)
    }

    pub(super) fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended();
        }
    }

    fn try_lock(&self) -> bool {
        self.0
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn lock_contended(&self) {
        for _ in 0..SPINS {
            if self.0.load(Ordering::Relaxed) == FREE && self.try_lock() {
                return;
            }
            std::hint::spin_loop();
        }
        while self.0.swap(CONTENDED, Ordering::Acquire) != FREE {
            futex_wait(&self.0, CONTENDED, None);
        }
    }

    /// Releases the lock, which the caller must hold.
    pub(super) fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == CONTENDED {
            futex_wake(&self.0, 1);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Waits while the word has this value, at most for a time. May return early.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, limit: Option<std::time::Duration>) {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().cast_signed(),
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word and the time outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            limit,
        );
    }
}

/// Wakes threads that wait for the word.
pub(crate) fn futex_wake(word: &AtomicU32, count: i32) {
    // SAFETY: the word outlives the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            count,
        );
    }
}
