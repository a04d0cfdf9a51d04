//! The bytes of an allocation. They stay allocated while work in flight may access them, even after
//! the program has freed the address.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use super::pages::{Address, Pages};

/// New and discarded memory is filled with this, so that reads of uninitialized memory stand out.
pub(crate) const FILL_BYTE: u8 = 0xA5;
/// Blocks up to this size come from the heap and are filled entirely. Larger ones have pages of
/// their own, of which only both ends are filled, so that a device can be filled without using as
/// much host memory.
const SMALL: usize = 64 << 10;
const FILL_EDGE: usize = 4096;
/// The host alignment of device memory. (Device addresses are unrelated, at multiples of 512.)
const HEAP_ALIGN: usize = 16;

/// Who owns the bytes of a block.
#[derive(Debug)]
enum Owner {
    Heap(Layout),
    Pages(Pages),
    /// The program, with `cuMemHostRegister`.
    Program,
    /// Another block, with mappings of physical memory and allocations from a pool of host memory:
    /// each has a block of its own, so that it is known which of them work in flight uses.
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

    /// New device memory, or `None` if the host is out of memory.
    pub(crate) fn allocate(len: usize) -> Option<Arc<Self>> {
        let block = Self::allocate_zeroed(len)?;
        // SAFETY: nothing else uses it yet.
        unsafe { block.fill_new() };
        Some(block)
    }

    /// New device memory that starts with `value`, as far as there is room. The rest is zero.
    pub(crate) fn allocate_with(len: usize, value: &[u8]) -> Option<Arc<Self>> {
        let block = Self::allocate_zeroed(len)?;
        block.set_new(value);
        Some(block)
    }

    /// The same in pages, for memory that the host accesses at the same address.
    pub(crate) fn allocate_pages_with(len: usize, value: &[u8]) -> Option<Arc<Self>> {
        let pages = Pages::new(len)?;
        let block = Self::new(pages.start(), len, Owner::Pages(pages));
        block.set_new(value);
        Some(block)
    }

    /// Sets the first bytes of a new block.
    fn set_new(&self, value: &[u8]) {
        // SAFETY: just allocated, so that nothing else uses it.
        unsafe { self.set(value) };
    }

    /// Sets the first bytes.
    ///
    /// # Safety
    ///
    /// No other thread may access the memory meanwhile.
    pub(crate) unsafe fn set(&self, value: &[u8]) {
        let bytes = value.len().min(self.len);
        let start = self.start.as_ptr();
        // SAFETY: within the `len` bytes, which nothing else uses by the caller's guarantee.
        unsafe { start.copy_from_nonoverlapping(value.as_ptr(), bytes) };
    }

    fn allocate_zeroed(len: usize) -> Option<Arc<Self>> {
        if len > SMALL
            && let Some(pages) = Pages::new(len)
        {
            return Some(Self::new(pages.start(), len, Owner::Pages(pages)));
        }
        // Also if there are no pages, since the number of mappings is limited.
        let layout = Layout::from_size_align(len.max(1), HEAP_ALIGN).ok()?;
        // SAFETY: the layout has at least one byte.
        let start = Address::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self::new(start, len, Owner::Heap(layout)))
    }

    /// New pages, for memory that the host accesses at the same address.
    pub(crate) fn allocate_pages(len: usize) -> Option<Arc<Self>> {
        let pages = Pages::new(len)?;
        let block = Self::new(pages.start(), len, Owner::Pages(pages));
        // SAFETY: nothing else uses it yet.
        unsafe { block.fill_new() };
        Some(block)
    }

    /// Fills newly allocated memory.
    ///
    /// # Safety
    ///
    /// No other thread may access the memory meanwhile.
    pub(crate) unsafe fn fill_new(&self) {
        let small = self.len <= SMALL;
        let edge = if small { self.len } else { FILL_EDGE };
        let start = self.start.as_ptr();
        // SAFETY: both ranges are within the `len` bytes, which nothing else uses by the caller's
        // guarantee.
        unsafe {
            start.write_bytes(FILL_BYTE, edge);
            start.add(self.len - edge).write_bytes(FILL_BYTE, edge);
        }
    }

    /// Memory of the program.
    pub(crate) fn borrowed(start: Address, len: usize) -> Arc<Self> {
        Self::new(start, len, Owner::Program)
    }

    /// A second block with the same bytes.
    pub(crate) fn view(of: &Arc<Self>) -> Arc<Self> {
        Self::new(of.start, of.len, Owner::Block { _keep: of.clone() })
    }

    /// A part of a larger block. Earlier work may still use the memory: the work that allocates it
    /// on its stream must call [`fill_new`](Self::fill_new).
    ///
    /// # Panics
    ///
    /// If it is not within the block.
    pub(crate) fn within(of: &Arc<Self>, offset: usize, len: usize) -> Arc<Self> {
        assert!(
            offset <= of.len && len <= of.len - offset,
            "within the block"
        );
        let start = Address::new(of.start.as_ptr().wrapping_add(offset));
        let owner = Owner::Block { _keep: of.clone() };
        Self::new(start.unwrap_or(of.start), len, owner)
    }

    /// Releases the host memory of pages that nothing uses; they stay mapped.
    pub(crate) fn release_pages(&self, offset: usize, len: usize) {
        if let Owner::Pages(pages) = &self.owner {
            pages.release(offset, len);
        }
    }

    pub(crate) fn start(&self) -> Address {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Notes that device work uses it; returns whether this is the first time.
    pub(crate) fn mark_used(&self) -> bool {
        !self.used.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn was_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }
}

impl Drop for MemoryBlock {
    fn drop(&mut self) {
        if let Owner::Heap(layout) = self.owner {
            // SAFETY: allocated in `allocate` with this layout; this was the last `Arc`.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// Whether only its range references a block: no work in flight accesses it.
pub(crate) fn is_unused(block: &Arc<MemoryBlock>) -> bool {
    let unique = Arc::strong_count(block) == 1;
    if unique {
        // Accesses through references that were dropped happen before this.
        fence(Ordering::Acquire);
    }
    unique
}

/// What is done with a freed block after the state's lock is released, since it is slow for large
/// blocks.
#[derive(Debug)]
pub(crate) enum Cleanup {
    Drop(Arc<MemoryBlock>),
    /// Makes the addresses inaccessible, but does not reuse them, unless work that was in flight when
    /// the memory was freed still uses it.
    Seal(Arc<MemoryBlock>),
}

impl Cleanup {
    pub(crate) fn run(self) {
        match self {
            Self::Drop(block) => drop(block),
            Self::Seal(block) => {
                // One reference is here, one in the quarantine.
                let unused = Arc::strong_count(&block) <= 2;
                if let Owner::Pages(pages) = &block.owner
                    && unused
                {
                    pages.seal();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_memory_stands_out_at_both_ends() {
        for len in [1, 100, SMALL, SMALL + 1, 40 << 20] {
            let block = MemoryBlock::allocate(len).unwrap();
            for at in [0, len - 1] {
                // SAFETY: within the block.
                assert_eq!(unsafe { block.start().as_ptr().add(at).read() }, FILL_BYTE);
            }
        }
        assert!(MemoryBlock::allocate(usize::MAX).is_none());
    }

    #[test]
    fn a_large_block_is_not_cleared_byte_by_byte() {
        /// The page faults of this thread.
        fn page_faults() -> libc::c_long {
            // SAFETY: all zeros is a value of the structure, which is valid to write to.
            unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
                usage.ru_minflt
            }
        }
        let before = page_faults();
        let block = MemoryBlock::allocate(256 << 20).unwrap();
        let faults = page_faults() - before;
        // To write all of it takes 128 in pages of 2 MiB.
        assert!(faults < 64, "{faults}");
        // The heap would reuse what was freed, and clear it.
        assert!(matches!(block.owner, Owner::Pages(_)));
    }

    #[test]
    fn a_holder_is_seen() {
        let block = MemoryBlock::allocate(1).unwrap();
        assert!(is_unused(&block));
        let other = block.clone();
        assert!(!is_unused(&block));
        drop(other);
        assert!(is_unused(&block));
    }
}
