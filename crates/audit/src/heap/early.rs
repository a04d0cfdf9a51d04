//! The library's first allocations, in a small static area.
//!
//! The constructor runs in every program that is started, and most never use CUDA. The arena is reserved when the driver, or
//! more than this area has room for, needs it: its addresses count against a limit that such a program sets for itself.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

const BYTES: usize = 32 << 10;

#[repr(C, align(64))]
struct Area(UnsafeCell<[u8; BYTES]>);

// SAFETY: only handed-out blocks are used, which do not overlap.
unsafe impl Sync for Area {}

static AREA: Area = Area(UnsafeCell::new([0; BYTES]));

/// Where the next block begins, from the start of the area.
static TOP: AtomicUsize = AtomicUsize::new(0);

/// A block, while there is room.
pub(super) fn allocate(layout: Layout) -> Option<*mut u8> {
    if layout.align() > align_of::<Area>() {
        return None;
    }
    let end = |top: usize| {
        let start = top.next_multiple_of(layout.align());
        Some(start.checked_add(layout.size())?).filter(|end| *end <= BYTES)
    };
    let top = TOP
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, end)
        .ok()?;
    let start = top.next_multiple_of(layout.align());
    // SAFETY: in the area.
    Some(unsafe { AREA.0.get().cast::<u8>().add(start) })
}

/// Whether a block is in the area.
#[inline]
pub(super) fn contains(block: *const u8) -> bool {
    block.addr().wrapping_sub(AREA.0.get().addr()) < BYTES
}

/// Frees a block of the area: the last one can be allocated again.
pub(super) fn free(block: *mut u8, layout: Layout) {
    let start = block.addr() - AREA.0.get().addr();
    let end = start + layout.size();
    let _ = TOP.compare_exchange(end, start, Ordering::AcqRel, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_disjoint_until_there_is_no_room() {
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        let one = allocate(layout(3, 1)).unwrap();
        let two = allocate(layout(100, 64)).unwrap();
        assert!(contains(one) && contains(two));
        assert_eq!(two.addr() % 64, 0);
        assert!(two.addr() >= one.addr() + 3);
        // The last one is reused, and one below it is not.
        free(two, layout(100, 64));
        assert_eq!(allocate(layout(100, 64)), Some(two));
        free(one, layout(3, 1));
        let next = allocate(layout(1, 1)).unwrap();
        assert_eq!(next.addr(), two.addr() + 100);
        assert_eq!(allocate(layout(BYTES, 1)), None);
        assert_eq!(allocate(layout(isize::MAX as usize - 63, 64)), None);
        assert_eq!(allocate(layout(8, 128)), None);
        assert!(!contains((&raw const TOP).cast()));
    }
}
