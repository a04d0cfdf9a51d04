//! An allocator that counts what the calling thread has.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated, less those that it has freed: what another thread allocated may be freed here.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    /// The most of them since [`bounded`] began.
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

fn add(bytes: isize) {
    // A thread that ends may free when its variables are gone.
    let _ = LIVE.try_with(|live| {
        let now = live.get().wrapping_add(bytes);
        live.set(now);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now)));
    });
}

// SAFETY: all calls are passed on as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size().cast_signed());
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size().cast_signed());
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-layout.size().cast_signed());
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both exist while the contents are copied.
        add(size.cast_signed());
        add(-layout.size().cast_signed());
        // SAFETY: as the caller guarantees.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Whether this program's allocator is [`Counting`].
#[must_use]
pub fn is_counting() -> bool {
    let before = LIVE.get();
    let block = std::hint::black_box(vec![0_u8; 4096]);
    let after = LIVE.get();
    drop(block);
    after - before == 4096
}

/// Runs `work` on an input of `length` bytes.
///
/// # Panics
///
/// If the calling thread has more than `multiple * length + constant` bytes allocated at once.
pub fn bounded<T>(length: usize, multiple: usize, constant: usize, work: impl FnOnce() -> T) -> T {
    let before = LIVE.get();
    PEAK.set(before);
    let result = work();
    let most = PEAK.get().wrapping_sub(before);
    let limit = length.saturating_mul(multiple).saturating_add(constant);
    assert!(
        most <= limit.cast_signed(),
        "{most} bytes were allocated for an input of {length}; the limit is {multiple} times the input and {constant}"
    );
    result
}
