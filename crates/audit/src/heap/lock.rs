//! A spin lock without an owner: whoever holds it may release it in a `fork` handler, in parent and child.
//!
//! A futex lock would cost a second atomic operation at each release, and the arena's critical sections take some 10 ns. A
//! thread that waits longer, as while threads are stopped, sleeps between its attempts.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// The attempts after which a thread lets others run, and after which it sleeps.
const SPINS: u32 = 100;
const YIELDS: u32 = 120;
const SLEEP: Duration = Duration::from_micros(100);

pub(super) struct Lock(AtomicBool);

/// Releases the lock when dropped.
pub(super) struct Held<'a>(&'a Lock);

impl Lock {
    pub(super) const fn new() -> Lock {
        Lock(AtomicBool::new(false))
    }

    pub(super) fn hold(&self) -> Held<'_> {
        self.lock();
        Held(self)
    }

    pub(super) fn lock(&self) {
        if self.0.swap(true, Ordering::Acquire) {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        let mut attempts = 0_u32;
        while self.0.load(Ordering::Relaxed) || self.0.swap(true, Ordering::Acquire) {
            attempts = attempts.saturating_add(1);
            match attempts {
                0..SPINS => std::hint::spin_loop(),
                // The holder may have lost its processor.
                SPINS..YIELDS => std::thread::yield_now(),
                _ => sleep(),
            }
        }
    }

    /// Releases the lock, which the caller must hold.
    pub(super) fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// By a system call: the C library's function is a cancellation point, and `malloc` and `free` must not be one.
#[cold]
fn sleep() {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: SLEEP.subsec_nanos().into(),
    };
    // SAFETY: the time is valid, and what is left of it is not wanted.
    unsafe {
        libc::syscall(
            libc::SYS_nanosleep,
            &time,
            ptr::null_mut::<libc::timespec>(),
        )
    };
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Waits while the word has this value, at most for a time. May return early.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, limit: Option<Duration>) {
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
