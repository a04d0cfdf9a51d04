//! The heap of the test program, with an observer: a program has one global allocator, and several modules count blocks.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;

static OBSERVER: OnceLock<fn(Layout, isize)> = OnceLock::new();

#[global_allocator]
static HEAP: Observed = Observed;

struct Observed;

/// From now on calls `observer` for each block: with 1 when it is allocated, with -1 when it is freed. The observer must
/// not allocate. Each module has a process, and one observer.
pub fn observe(observer: fn(Layout, isize)) {
    let _ = OBSERVER.set(observer);
}

fn observed(layout: Layout, change: isize) {
    if let Some(observer) = OBSERVER.get() {
        observer(layout, change);
    }
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Observed {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        observed(layout, 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        observed(layout, 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        observed(layout, -1);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(start, layout) }
    }
}
