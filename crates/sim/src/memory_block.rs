//! The bytes behind an address: memory that stays alive for as long as work in flight may touch
//! it, also after the program has freed the address.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crate::os::Pages;

/// What fresh memory is filled with, so that a program that reads what it never wrote sees
/// something that stands out.
const FRESH: u8 = 0xA5;
/// Blocks up to this size come from the heap and are filled whole. Larger ones are pages of their
/// own, and only both ends are filled, so that a card can be filled without taking as much host
/// memory.
const SMALL: usize = 64 << 10;
const FILL_EDGE: usize = 4096;
/// How the memory behind device memory is aligned. (Device addresses are numbers of their own, at
/// multiples of 512.)
const HEAP_ALIGN: usize = 16;

/// A pointer that may be used on any thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address(NonNull<u8>);

// SAFETY: the pointer itself is a number. What is done with it is up to the functions that use it,
// which say what they need.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    pub(crate) fn new(pointer: *mut u8) -> Option<Self> {
        NonNull::new(pointer).map(Self)
    }

    pub(crate) fn as_ptr(self) -> *mut u8 {
        self.0.as_ptr()
    }
}

/// Where a block's memory goes back to.
#[derive(Debug)]
enum Owner {
    Heap(Layout),
    Pages(Pages),
    /// The memory belongs to the program, as with `cuMemHostRegister`.
    Program,
    /// The memory is another block's, as with mappings of physical memory: each has its own block,
    /// so that it can be told which of them work in flight uses.
    Block {
        _keep: Arc<MemoryBlock>,
    },
}

/// Bytes that device work reads and writes.
#[derive(Debug)]
pub(crate) struct MemoryBlock {
    start: Address,
    len: usize,
    owner: Owner,
    /// Whether device work has used it, which moves managed memory to the device.
    used: AtomicBool,
}

impl MemoryBlock {
    fn new(start: Address, len: usize, owner: Owner) -> Arc<Self> {
        Arc::new(Self {
            start,
            len,
            owner,
            used: AtomicBool::new(false),
        })
    }

    /// Fresh memory for a device, or `None` if the host has no more.
    pub(crate) fn fresh(len: usize) -> Option<Arc<Self>> {
        if len > SMALL
            && let Some(block) = Self::fresh_pages(len)
        {
            return Some(block);
        }
        // Also where no pages are to be had, as a process can have only so many mappings.
        let layout = Layout::from_size_align(len.max(1), HEAP_ALIGN).ok()?;
        // SAFETY: the layout has at least one byte.
        let start = Address::new(unsafe { alloc_zeroed(layout) })?;
        let block = Self::new(start, len, Owner::Heap(layout));
        block.fill_fresh();
        Some(block)
    }

    /// Fresh pages, for memory that the host sees under the same address.
    pub(crate) fn fresh_pages(len: usize) -> Option<Arc<Self>> {
        let pages = Pages::new(len)?;
        let block = Self::new(pages.start(), len, Owner::Pages(pages));
        block.fill_fresh();
        Some(block)
    }

    fn fill_fresh(&self) {
        let edge = if self.len <= SMALL {
            self.len
        } else {
            FILL_EDGE
        };
        let start = self.start.as_ptr();
        // SAFETY: both ranges lie within the `len` bytes just allocated, which nobody else knows.
        unsafe {
            start.write_bytes(FRESH, edge);
            start.add(self.len - edge).write_bytes(FRESH, edge);
        }
    }

    /// Memory that belongs to the program.
    pub(crate) fn borrowed(start: Address, len: usize) -> Arc<Self> {
        Self::new(start, len, Owner::Program)
    }

    /// Another block for the same memory.
    pub(crate) fn view(of: &Arc<Self>) -> Arc<Self> {
        Self::new(of.start, of.len, Owner::Block { _keep: of.clone() })
    }

    pub(crate) fn start(&self) -> Address {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Notes that device work uses it; says whether it is the first time.
    pub(crate) fn mark_used(&self) -> bool {
        !self.used.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn was_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Gives the memory back and lets whoever uses the address fault. Only the addresses stay.
    pub(crate) fn seal(&self) {
        if let Owner::Pages(pages) = &self.owner {
            pages.seal();
        }
    }
}

impl Drop for MemoryBlock {
    fn drop(&mut self) {
        if let Owner::Heap(layout) = self.owner {
            // SAFETY: allocated in `fresh` with this layout; the last `Arc` is going.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// Whether nobody holds a block but the range it belongs to: no work in flight will touch it.
pub(crate) fn is_unused(block: &Arc<MemoryBlock>) -> bool {
    let alone = Arc::strong_count(block) == 1;
    if alone {
        // What was done through the holders that are gone has happened before this.
        fence(Ordering::Acquire);
    }
    alone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_memory_stands_out_at_both_ends() {
        for len in [1, 100, SMALL, SMALL + 1, 40 << 20] {
            let block = MemoryBlock::fresh(len).unwrap();
            for at in [0, len - 1] {
                // SAFETY: within the block.
                assert_eq!(unsafe { block.start().as_ptr().add(at).read() }, FRESH);
            }
        }
        assert!(MemoryBlock::fresh(usize::MAX).is_none());
    }

    #[test]
    fn a_large_block_that_comes_back_is_not_cleared_byte_by_byte() {
        // The heap would hand the memory out again and clear all of it: 20 ms and more.
        let taken = |_| {
            let start = std::time::Instant::now();
            drop(MemoryBlock::fresh(256 << 20).unwrap());
            start.elapsed()
        };
        let quickest = (0..5).map(taken).min().unwrap();
        assert!(quickest.as_millis() < 10, "{quickest:?}");
    }

    #[test]
    fn a_holder_is_seen() {
        let block = MemoryBlock::fresh(1).unwrap();
        assert!(is_unused(&block));
        let other = block.clone();
        assert!(!is_unused(&block));
        drop(other);
        assert!(is_unused(&block));
    }
}
