//! The heap of a context from which kernels allocate with `malloc`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::block::{FILL_BYTE, MemoryBlock};
use super::free_ranges::FreeRanges;
use super::pages::Address;

/// The alignment of allocations.
const ALIGN: u64 = 16;
/// How much of a new allocation is filled, so that reads of uninitialized memory stand out.
const FILL: u64 = 4096;

#[derive(Debug)]
pub(crate) struct Heap {
    base: u64,
    block: Arc<MemoryBlock>,
    ranges: Mutex<Ranges>,
}

/// Offsets in the heap.
#[derive(Debug)]
struct Ranges {
    free: FreeRanges,
    /// Start → bytes, as the kernel asked for them.
    allocated: BTreeMap<u64, u64>,
}

impl Heap {
    /// A heap at a device address; `None` if the host is out of memory.
    pub(crate) fn new(base: u64, bytes: u64) -> Option<Self> {
        let len = usize::try_from(bytes).ok()?;
        let ranges = Ranges {
            free: FreeRanges::new(0, bytes),
            allocated: BTreeMap::new(),
        };
        Some(Self {
            base,
            block: MemoryBlock::allocate(len)?,
            ranges: Mutex::new(ranges),
        })
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.block.len() as u64
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.bytes()
    }

    /// An allocation of a kernel; 0 if there is no room.
    pub(crate) fn allocate(&self, bytes: u64) -> u64 {
        let mut ranges = self.lock();
        let size = bytes.checked_next_multiple_of(ALIGN);
        let Some(size) = size.filter(|size| *size > 0) else {
            return 0;
        };
        let Some(start) = ranges.free.allocate(size, ALIGN) else {
            return 0;
        };
        ranges.allocated.insert(start, bytes);
        let at = self.at(start);
        let word = u64::from_ne_bytes([FILL_BYTE; 8]);
        for offset in (0..size.min(FILL) as usize).step_by(8) {
            // SAFETY: within the block, whose sizes and offsets are multiples of 16, and valid as long as it is.
            let own = unsafe { AtomicU64::from_ptr(at.as_ptr().add(offset).cast()) };
            // A thread of a kernel may still use what it has freed, by atomic operations.
            own.store(word, Ordering::Relaxed);
        }
        self.base + start
    }

    /// Frees an allocation; false if there is none at the address.
    pub(crate) fn free(&self, address: u64) -> bool {
        let start = address.wrapping_sub(self.base);
        let mut ranges = self.lock();
        let Some(bytes) = ranges.allocated.remove(&start) else {
            return false;
        };
        ranges.free.free(start, bytes.next_multiple_of(ALIGN));
        true
    }

    /// The allocation that contains an address: where it starts, its bytes, and where they are on the host.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, u64, Address)> {
        let offset = address.checked_sub(self.base)?;
        let ranges = self.lock();
        let (&start, &bytes) = ranges.allocated.range(..=offset).next_back()?;
        (offset - start < bytes).then(|| (self.base + start, bytes, self.at(start)))
    }

    /// The host's address of an offset within the block.
    fn at(&self, offset: u64) -> Address {
        let start = self.block.start();
        Address::new(start.as_ptr().wrapping_add(offset as usize)).unwrap_or(start)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_is_allocated_again() {
        let heap = Heap::new(0x10_0000, 1 << 20).unwrap();
        let first = heap.allocate(100);
        let second = heap.allocate(100);
        assert_eq!((first, second), (0x10_0000, 0x10_0070));
        assert_eq!(heap.find(first + 99).unwrap().0, first);
        assert!(heap.find(first + 100).is_none());
        assert!(heap.free(first) && !heap.free(first) && !heap.free(second + 16));
        assert!(heap.find(first).is_none());
        assert_eq!(heap.allocate(112), first);
        assert_eq!((heap.allocate(0), heap.allocate(u64::MAX)), (0, 0));
        assert_eq!(heap.allocate(1 << 20), 0);
        assert!(heap.free(first) && heap.free(second));
        assert_eq!(heap.allocate(1 << 20), first);
        assert!(heap.contains(first) && !heap.contains(first + (1 << 20)));
    }
}
