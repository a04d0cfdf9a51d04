//! Threads that the driver or this library created: the search leaves their stacks out.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use super::arena;
use super::next::{self, Start};
use super::user::User;
use super::{driver, objects};

/// More threads than a driver has; further ones are taken for the program's.
const CAPACITY: usize = 1024;

struct Known {
    /// The number in the kernel; zero where the slot is free.
    id: AtomicI32,
    /// `pthread_self()`
    pointer: AtomicUsize,
}

static THREADS: [Known; CAPACITY] = [const {
    Known {
        id: AtomicI32::new(0),
        pointer: AtomicUsize::new(0),
    }
}; CAPACITY];

/// What the new thread runs.
struct Request {
    start: Start,
    argument: *mut c_void,
}

/// `pthread_create`, with the return address of the call.
///
/// # Safety
/// As `pthread_create`.
pub(super) unsafe extern "C" fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
    caller: usize,
) -> c_int {
    if !driver::contains(caller) && !is_own(caller) {
        // SAFETY: as promised by the caller.
        return unsafe { next::create_thread(thread, attributes, start, argument) };
    }
    let request = arena::allocate(User::Library, size_of::<Request>(), align_of::<Request>());
    let request = request.cast::<Request>();
    if request.is_null() {
        return libc::EAGAIN;
    }
    // SAFETY: the request is valid memory; the new thread frees it, or this one where there is none.
    unsafe {
        request.write(Request { start, argument });
        let code = next::create_thread(thread, attributes, begin, request.cast());
        if code != 0 {
            arena::free(request.cast());
        }
        code
    }
}

/// First and last address of this library; zero before the first use.
static OWN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Whether the address is code of this library.
pub(crate) fn is_own(address: usize) -> bool {
    if OWN[1].load(Ordering::Acquire) == 0 {
        let own = objects::own_address();
        objects::for_each(|object| {
            if !object.contains(own) {
                return true;
            }
            let segments = || object.segments(0);
            let start = segments().map(|segment| segment.start).min();
            let end = segments().map(|segment| segment.end).max();
            OWN[0].store(start.unwrap_or(0), Ordering::Relaxed);
            OWN[1].store(end.unwrap_or(0), Ordering::Release);
            false
        });
    }
    (OWN[0].load(Ordering::Relaxed)..OWN[1].load(Ordering::Relaxed)).contains(&address)
}

/// The first function of a thread of the driver or of this library.
extern "C" fn begin(request: *mut c_void) -> *mut c_void {
    let request = request.cast::<Request>();
    // SAFETY: `create` wrote the request for this thread alone.
    let Request { start, argument } = unsafe { request.read() };
    // SAFETY: allocated by `create`.
    unsafe { arena::free(request.cast()) };
    enter();
    start(argument)
}

/// Removes the thread's number when the thread ends, by whichever function.
struct Entered(Cell<Option<usize>>);

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(slot) = self.0.get() {
            THREADS[slot].id.store(0, Ordering::Release);
        }
    }
}

thread_local! {
    static ENTERED: Entered = const { Entered(Cell::new(None)) };
}

/// The calling thread belongs to this library or the driver, until it ends.
pub(crate) fn enter() {
    if ENTERED.try_with(|entered| entered.0.get().is_some()) != Ok(false) {
        return;
    }
    let own = thread_id();
    let slot = THREADS.iter().position(|known| {
        known
            .id
            .compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    });
    if let Some(slot) = slot {
        // SAFETY: no requirements.
        let pointer = unsafe { libc::pthread_self() } as usize;
        THREADS[slot].pointer.store(pointer, Ordering::Release);
    }
    let _ = ENTERED.try_with(|entered| entered.0.set(slot));
}

/// `pthread_self()` of the thread, if it was created by the driver or by this library.
pub(crate) fn left_out(thread: i32) -> Option<usize> {
    THREADS
        .iter()
        .find(|known| known.id.load(Ordering::Acquire) == thread)
        .map(|known| known.pointer.load(Ordering::Acquire))
}

/// In a child after `fork`: none of them exists there.
pub(crate) fn forget_all() {
    for known in &THREADS {
        known.id.store(0, Ordering::Relaxed);
    }
}

/// The calling thread's number in the kernel.
pub(crate) fn thread_id() -> i32 {
    cuguard_sync::own_thread::id()
}

/// `pthread_self()` of all threads that were created by the driver or by this library.
pub(crate) fn all_left_out() -> Vec<u64> {
    let known = THREADS.iter();
    let known = known.filter(|known| known.id.load(Ordering::Acquire) != 0);
    known
        .map(|known| known.pointer.load(Ordering::Acquire) as u64)
        .collect()
}
