//! The bytes behind an address: heap memory that stays alive for as long as work in flight may
//! touch it, also after the program has freed the address.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What fresh memory is filled with, so that a program that reads what it never wrote sees
/// something that stands out.
const FRESH: u8 = 0xA5;
/// Blocks up to this size are filled whole; of larger ones only both ends, so that a card can be
/// filled without taking as much host memory.
const FILL_WHOLE: usize = 64 << 10;
const FILL_EDGE: usize = 4096;
/// What every heap allocation is a multiple of.
const HEAP_ALIGN: usize = 16;

/// A pointer that may be used on any thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address(NonNull<u8>);

// SAFETY: the pointer itself is a number. What is done with it is up to the functions below, which
// say what they need.
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

/// Bytes that device work reads and writes.
#[derive(Debug)]
pub(crate) struct MemoryBlock {
    start: Address,
    len: usize,
    /// What to give back to the heap. `None`: the memory belongs to the program, as with
    /// `cuMemHostRegister`.
    owned: Option<(Address, Layout)>,
    /// Whether device work has used it, which moves managed memory to the device.
    used: AtomicBool,
}

impl MemoryBlock {
    /// Fresh memory at a multiple of `align`, or `None` if the host has no more.
    pub(crate) fn fresh(len: usize, align: usize) -> Option<Arc<Self>> {
        // The heap hands out large blocks without touching them, but only where it is not asked
        // for an alignment; so that is made here.
        let layout = Layout::from_size_align(len.checked_add(align)?, HEAP_ALIGN).ok()?;
        // SAFETY: the layout has at least one byte, as `align` is not 0.
        let heap = Address::new(unsafe { alloc_zeroed(layout) })?;
        let gap = heap.as_ptr().align_offset(align);
        // SAFETY: the gap is less than `align`, so `len` bytes remain behind it.
        let start = Address::new(unsafe { heap.as_ptr().add(gap) })?;
        let edge = if len <= FILL_WHOLE { len } else { FILL_EDGE };
        // SAFETY: both ranges lie within the `len` bytes just allocated, which nobody else knows.
        unsafe {
            start.as_ptr().write_bytes(FRESH, edge);
            start.as_ptr().add(len - edge).write_bytes(FRESH, edge);
        }
        Some(Arc::new(Self {
            start,
            len,
            owned: Some((heap, layout)),
            used: AtomicBool::new(false),
        }))
    }

    /// Memory that belongs to the program.
    pub(crate) fn borrowed(start: Address, len: usize) -> Arc<Self> {
        Arc::new(Self {
            start,
            len,
            owned: None,
            used: AtomicBool::new(false),
        })
    }

    /// No memory at all, for a range that is only to be released.
    pub(crate) fn empty() -> Arc<Self> {
        Self::borrowed(Address(NonNull::dangling()), 0)
    }

    pub(crate) fn start(&self) -> Address {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn was_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }
}

impl Drop for MemoryBlock {
    fn drop(&mut self) {
        if let Some((heap, layout)) = self.owned {
            // SAFETY: allocated in `fresh` with this layout; the last `Arc` is going.
            unsafe { dealloc(heap.as_ptr(), layout) };
        }
    }
}

/// A run of bytes that a copy or a fill works on.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    start: Address,
    len: usize,
    /// Keeps simulated memory alive until the work is done. `None`: pageable host memory, which
    /// the caller promised to keep.
    _keep: Option<Arc<MemoryBlock>>,
}

impl Span {
    /// `len` bytes from `offset` of a block.
    ///
    /// # Panics
    ///
    /// If they do not lie within the block: the address map must have checked that.
    pub(crate) fn within(block: &Arc<MemoryBlock>, offset: usize, len: usize) -> Self {
        assert!(
            offset <= block.len() && len <= block.len() - offset,
            "a span of {len} bytes from {offset} is not within a block of {}",
            block.len()
        );
        block.used.store(true, Ordering::Relaxed);
        // SAFETY: `offset` is within the block, so the sum stays within one allocation.
        let start = unsafe { NonNull::new_unchecked(block.start().as_ptr().add(offset)) };
        Self {
            start: Address(start),
            len,
            _keep: Some(block.clone()),
        }
    }

    /// Pageable host memory.
    pub(crate) fn pageable(start: Address, len: usize) -> Self {
        Self {
            start,
            len,
            _keep: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The part of this span from `offset`, of `len` bytes.
    pub(crate) fn part(&self, offset: usize, len: usize) -> Self {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: `offset` is within the span.
        let start = unsafe { NonNull::new_unchecked(self.start.as_ptr().add(offset)) };
        Self {
            start: Address(start),
            len,
            _keep: self._keep.clone(),
        }
    }

    /// Copies as many bytes as both have room for.
    ///
    /// # Safety
    ///
    /// Pageable memory must be valid for its length, and no other thread may touch either side
    /// meanwhile, as a driver asks of its callers. (Simulated memory keeps itself alive.)
    pub(crate) unsafe fn copy_from(&self, source: &Span) {
        let len = self.len.min(source.len);
        // SAFETY: both sides are valid for `len` bytes: simulated memory by `_keep`, pageable
        // memory by the caller's promise. They may overlap, which `copy` allows.
        unsafe { source.start.as_ptr().copy_to(self.start.as_ptr(), len) };
    }

    /// Fills with a pattern of one, two or four bytes.
    ///
    /// # Safety
    ///
    /// As for [`copy_from`](Self::copy_from).
    pub(crate) unsafe fn fill(&self, pattern: &[u8]) {
        // SAFETY: the span is valid for `len` bytes, see `copy_from`.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) };
        match pattern {
            [byte] => bytes.fill(*byte),
            _ => {
                for chunk in bytes.chunks_mut(pattern.len()) {
                    chunk.copy_from_slice(&pattern[..chunk.len()]);
                }
            }
        }
    }

    /// A copy of the bytes, in memory of its own.
    ///
    /// # Safety
    ///
    /// As for [`copy_from`](Self::copy_from).
    pub(crate) unsafe fn staged(&self) -> Option<Span> {
        let block = MemoryBlock::fresh(self.len, 16)?;
        let copy = Span::within(&block, 0, self.len);
        // SAFETY: the caller's promise covers the source; nobody else knows the fresh block.
        unsafe { copy.copy_from(self) };
        Some(copy)
    }
}
