//! The audit library's own memory, and that of the driver, in one reserved address range.
//!
//! The search for device addresses must leave out the memory of the driver and of this library, because both hold every
//! address. So both allocate from one arena, and the search skips one range. The exported `malloc` family
//! compares the return address with the driver's libraries and serves their calls from the arena; all other calls
//! jump on to the next `malloc` (glibc's, jemalloc's, …) as if this library were not there. `free` compares the
//! pointer with the range, so memory may be freed and reallocated by whichever side.
//!
//! | file | |
//! |---|---|
//! | `lock` | a lock that is usable in `fork` handlers, and futex calls |
//! | `user` | who uses a block: the driver, or this library |
//! | `classes` | size classes |
//! | `range` | the reserved range and its table of units |
//! | `runs` | contiguous units: large blocks, and slabs |
//! | `slabs` | small blocks |
//! | `cache` | small blocks that a thread keeps |
//! | `arena` | allocate, free, reallocate |
//! | `early` | the library's first allocations, before the arena is reserved |
//! | `objects` | loaded ELF objects and their dynamic symbols |
//! | `driver` | address ranges of the driver's libraries |
//! | `next` | the functions behind the exported ones |
//! | `stubs`, `stubs_aarch64`, `family` | the exported functions |
//! | `threads` | threads of the driver and of this library |
//!
//! It knows nothing of CUDA calls, of the registry, or of the search.

mod arena;
mod cache;
mod classes;
pub(crate) mod driver;
mod early;
mod family;
pub(crate) mod lock;
mod next;
pub(crate) mod objects;
mod range;
mod runs;
mod slabs;
#[cfg_attr(target_arch = "aarch64", path = "stubs_aarch64.rs")]
mod stubs;
mod tables;
pub(crate) mod threads;
mod user;

use std::alloc::{GlobalAlloc, Layout};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use arena::is_inside;
pub(crate) use next::NextMalloc;
use user::User;

/// Finds the address ranges of the driver's libraries again. Call it when the driver was opened, and when it may have
/// loaded further libraries; without a change it costs a fraction of a microsecond.
pub(crate) fn driver_loaded() {
    driver::refresh();
}

/// The addresses of the arena. Empty before the first allocation.
pub(crate) fn range() -> Range<usize> {
    range::addresses()
}

/// The parts of the arena that are the driver's. For a search, while no thread allocates.
pub(crate) fn driver_memory() -> Vec<Range<usize>> {
    arena::driver_units()
}

/// Whether calls of `malloc` by the driver reach this library. Not so where the program, or a library that was
/// preloaded before this one, defines `malloc` itself, nor where the driver is a part of the program: then the driver's memory
/// cannot be told from the program's.
pub(crate) fn separates_driver() -> bool {
    next::first_malloc_is_ours() && !DRIVER_IN_PROGRAM.load(Ordering::Relaxed)
}

static DRIVER_IN_PROGRAM: AtomicBool = AtomicBool::new(false);

/// The driver is the simulated GPU in the program.
pub(crate) fn driver_is_in_program() {
    DRIVER_IN_PROGRAM.store(true, Ordering::Relaxed);
}

/// The file name of the object that holds the next `malloc`, such as `libc.so.6`.
pub(crate) fn next_malloc() -> NextMalloc {
    next::next_malloc()
}

/// No other thread holds a lock of the arena while this exists; threads may take blocks that they keep. The holder must not
/// allocate.
pub(crate) struct Frozen(());

/// Waits until no thread holds a lock of the arena, and keeps all from holding one.
pub(crate) fn freeze() -> Frozen {
    arena::lock_all();
    Frozen(())
}

impl Drop for Frozen {
    fn drop(&mut self) {
        arena::unlock_all();
    }
}

/// Allocates from the arena, and from the next `malloc` when the range is exhausted. Before the arena is reserved, from a
/// small area.
struct OwnAllocator;

impl OwnAllocator {
    fn early(layout: Layout) -> Option<*mut u8> {
        match range::is_reserved() {
            true => None,
            false => early::allocate(layout),
        }
    }
}

// SAFETY: the arena and the area hand out disjoint blocks of at least the size and alignment asked for, keep them until they
// are freed, and do not unwind.
unsafe impl GlobalAlloc for OwnAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::early(layout)
            .unwrap_or_else(|| arena::allocate(User::Library, layout.size(), layout.align()).cast())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match Self::early(layout) {
            Some(block) => {
                // SAFETY: the block has this size.
                unsafe { block.write_bytes(0, layout.size()) };
                block
            }
            None => arena::allocate_zeroed(User::Library, layout.size(), layout.align()).cast(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if early::contains(block) {
            return early::free(block, layout);
        }
        // SAFETY: the caller owns the block, which came from this allocator.
        unsafe { arena::free(block.cast()) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if early::contains(block) {
            // SAFETY: the caller's size is valid for this alignment.
            let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
            // SAFETY: the size is not zero, says the caller. Both blocks have at least the smaller size.
            unsafe {
                let to = self.alloc(new);
                if !to.is_null() {
                    to.copy_from_nonoverlapping(block, layout.size().min(size));
                    self.dealloc(block, layout);
                }
                return to;
            }
        }
        // SAFETY: the caller owns the block, which came from this allocator.
        unsafe { arena::reallocate(User::Library, block.cast(), size, layout.align()) }.cast()
    }
}

#[global_allocator]
static ALLOCATOR: OwnAllocator = OwnAllocator;

/// Runs when the library is loaded.
#[cfg_attr(not(test), used)]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
#[cfg_attr(test, allow(dead_code, reason = "tests initialise what they test"))]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct() {
        next::resolve();
        cache::prepare(arena::free);
        driver::refresh();
        objects::note_first();
        // SAFETY: the handlers are functions of this library, which is never unloaded: it is preloaded.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
        }
    }
    construct
};

extern "C" fn before_fork() {
    arena::lock_all();
}

extern "C" fn after_fork() {
    arena::unlock_all();
}

extern "C" fn in_child() {
    // While the locks are held: what allocates next finds none of the parent's threads.
    threads::forget_all();
    arena::unlock_all();
}
