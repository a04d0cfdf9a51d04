//! Threads that work on the parts of a job together.
//!
//! They are created before other threads are stopped, and their stacks lie in the arena, which is not searched.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::{self, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use crate::heap::lock::{futex_wait, futex_wake};
use crate::heap::threads;

/// Bytes of a worker's stack. It holds the thread-local variables of all libraries, too; pages that are not touched
/// cost nothing.
const STACK: usize = 1 << 20;

/// Where `struct pthread` has the address of the thread's stack, which its size follows; zero: not known. Learned
/// from a thread whose stack is known, since the structure differs from version to version.
static STACK_FIELD: AtomicUsize = AtomicUsize::new(0);

/// The distance from a thread's `pthread_self()` to the words that hold its stack's lowest address and size.
pub(super) fn stack_field() -> Option<u64> {
    match STACK_FIELD.load(Ordering::Relaxed) {
        0 => None,
        field => Some(field as u64),
    }
}

type Job<'a> = dyn Fn(usize) + Sync + 'a;

struct Shared {
    /// Incremented for each job.
    round: AtomicU32,
    quit: AtomicBool,
    /// The job of this round.
    job: UnsafeCell<*const Job<'static>>,
    next: AtomicUsize,
    count: AtomicUsize,
    /// Workers that did not finish the round yet.
    busy: AtomicU32,
    /// A part panicked: the result is incomplete.
    failed: AtomicBool,
}

// SAFETY: the job is written while no worker reads it: before the round is incremented, after all were finished.
unsafe impl Sync for Shared {}

struct Worker {
    thread: libc::pthread_t,
    stack: *mut u8,
}

pub(super) struct Workers {
    shared: Box<Shared>,
    threads: Vec<Worker>,
}

fn stack_layout() -> Layout {
    Layout::from_size_align(STACK, 4096).expect("a power of two")
}

impl Workers {
    /// Creates threads, as many of these as the system allows.
    pub(super) fn new(count: usize) -> Workers {
        let shared = Box::new(Shared {
            round: AtomicU32::new(0),
            quit: AtomicBool::new(false),
            job: UnsafeCell::new(ptr::null::<fn(usize)>() as *const Job<'static>),
            next: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            busy: AtomicU32::new(0),
            failed: AtomicBool::new(false),
        });
        let mut workers = Workers {
            shared,
            threads: Vec::with_capacity(count),
        };
        let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the sets are valid. Workers inherit the mask, so no handler of the program runs on them.
        unsafe {
            libc::sigfillset(signals.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, signals.as_ptr(), before.as_mut_ptr());
        }
        for _ in 0..count {
            if !workers.add() {
                break;
            }
        }
        // SAFETY: `before` was filled above.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        }
        // Each must be known as a thread of this library before others are stopped.
        workers.wait();
        workers
    }

    fn add(&mut self) -> bool {
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        // SAFETY: the stack and what the thread shares are freed after it was joined.
        unsafe {
            let stack = alloc(stack_layout());
            if stack.is_null() || libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
                return false;
            }
            libc::pthread_attr_setstack(attributes.as_mut_ptr(), stack.cast(), STACK);
            // Ready when it is no longer busy.
            self.shared.busy.fetch_add(1, Ordering::Relaxed);
            let shared = (&raw const *self.shared).cast_mut().cast();
            let mut thread = 0;
            let code = libc::pthread_create(&mut thread, attributes.as_ptr(), work, shared);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            if code != 0 {
                self.shared.busy.fetch_sub(1, Ordering::Relaxed);
                dealloc(stack, stack_layout());
                return false;
            }
            self.threads.push(Worker { thread, stack });
            learn_stack_field(thread as usize, stack.addr());
        }
        true
    }

    /// Calls the function with each number below `count`, on all workers and this thread. False if a call
    /// panicked.
    pub(super) fn run(&self, count: usize, job: &Job<'_>) -> bool {
        // One part is done sooner than a thread is woken.
        if count <= 1 {
            return self.run_here(count, job);
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes; all workers are finished with it before this function returns, and none
        // reads it now.
        unsafe { *shared.job.get() = mem::transmute::<*const Job<'_>, *const Job<'static>>(job) };
        shared.next.store(0, Ordering::Relaxed);
        shared.count.store(count, Ordering::Relaxed);
        let workers = self.threads.len() as u32;
        shared.busy.store(workers, Ordering::Relaxed);
        shared.round.fetch_add(1, Ordering::Release);
        futex_wake(&shared.round, i32::MAX);
        shared.take_part(job);
        self.wait();
        !shared.failed.load(Ordering::Relaxed)
    }

    /// The same on this thread alone, for parts that are done sooner than threads are woken.
    pub(super) fn run_here(&self, count: usize, job: &Job<'_>) -> bool {
        let shared = &*self.shared;
        // No worker looks at these before the next round.
        shared.next.store(0, Ordering::Relaxed);
        shared.count.store(count, Ordering::Relaxed);
        shared.take_part(job);
        !shared.failed.load(Ordering::Relaxed)
    }

    /// Waits until no worker is busy.
    fn wait(&self) {
        loop {
            let busy = self.shared.busy.load(Ordering::Acquire);
            if busy == 0 {
                return;
            }
            futex_wait(&self.shared.busy, busy, Some(Duration::from_millis(100)));
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::Relaxed);
        self.shared.round.fetch_add(1, Ordering::Release);
        futex_wake(&self.shared.round, i32::MAX);
        for worker in &self.threads {
            // SAFETY: the thread was created by this workers and not joined yet; nothing uses its stack then.
            unsafe {
                libc::pthread_join(worker.thread, ptr::null_mut());
                dealloc(worker.stack, stack_layout());
            }
        }
    }
}

impl Shared {
    fn take_part(&self, job: &Job<'_>) {
        let count = self.count.load(Ordering::Relaxed);
        loop {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= count {
                return;
            }
            if catch_unwind(AssertUnwindSafe(|| job(part))).is_err() {
                self.failed.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    fn finish(&self) {
        if self.busy.fetch_sub(1, Ordering::Release) == 1 {
            futex_wake(&self.busy, i32::MAX);
        }
    }
}

extern "C" fn work(shared: *mut c_void) -> *mut c_void {
    // SAFETY: the owner joins this thread before it frees what they share.
    let shared = unsafe { &*shared.cast::<Shared>() };
    threads::enter();
    let mut round = shared.round.load(Ordering::Acquire);
    shared.finish();
    loop {
        while shared.round.load(Ordering::Acquire) == round {
            futex_wait(&shared.round, round, None);
        }
        round = shared.round.load(Ordering::Acquire);
        if shared.quit.load(Ordering::Relaxed) {
            return ptr::null_mut();
        }
        // SAFETY: written before the round began, and valid until this worker finishes.
        shared.take_part(unsafe { &**shared.job.get() });
        shared.finish();
    }
}

/// Looks for the two words in the structure of a thread whose stack is known.
fn learn_stack_field(thread: usize, stack: usize) {
    if STACK_FIELD.load(Ordering::Relaxed) != 0 {
        return;
    }
    let memory = super::memory::Memory::open();
    let mut words = [0_u64; 256];
    let read = memory.read(thread as u64, super::memory::bytes_of(&mut words)) / 8;
    let pair = [stack as u64, STACK as u64];
    let found = words[..read].windows(2).position(|words| words == pair);
    if let Some(found) = found {
        STACK_FIELD.store(found * 8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn each_part_is_done_once() {
        let workers = Workers::new(3);
        assert_eq!(workers.threads.len(), 3);
        for count in [0, 1, 2, 1000] {
            let parts: Vec<_> = (0..count).map(|_| AtomicU32::new(0)).collect();
            assert!(workers.run(count, &|part| {
                parts[part].fetch_add(1, Ordering::Relaxed);
            }));
            assert!(parts.iter().all(|part| part.load(Ordering::Relaxed) == 1));
        }
        assert!(
            stack_field().is_some(),
            "the C library's structure has no stack address"
        );
    }

    #[test]
    fn parts_are_done_here() {
        let workers = Workers::new(3);
        let here = thread::current().id();
        for count in [0, 1, 2, 1000] {
            let parts: Vec<_> = (0..count).map(|_| AtomicU32::new(0)).collect();
            assert!(workers.run_here(count, &|part| {
                assert_eq!(thread::current().id(), here);
                parts[part].fetch_add(1, Ordering::Relaxed);
            }));
            assert!(parts.iter().all(|part| part.load(Ordering::Relaxed) == 1));
        }
        // The workers take part in the next job, as before.
        let both = Barrier::new(2);
        assert!(workers.run(2, &|_| {
            both.wait();
        }));
        assert!(!workers.run_here(2, &|_| panic!("a part fails")));
    }

    #[test]
    fn a_panic_makes_the_job_fail() {
        let workers = Workers::new(1);
        assert!(!workers.run(10, &|part| assert_ne!(part, 5)));
    }
}
