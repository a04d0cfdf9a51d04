//! The physical memory of a device, and the pages that small blocks share.
//!
//! Measured on a real GPU: memory is reserved and released in pages of 2 MiB. Blocks smaller than a
//! page are packed with others of their context, at multiples of 512 bytes; larger ones get pages of
//! their own. A page is released when every block in it is free.

use super::free_ranges::FreeRanges;
use crate::config::PAGE;

/// The alignment of blocks.
pub(crate) const BLOCK_ALIGN: u64 = 512;
/// The largest block that shares a page.
pub(crate) const MAX_PACKED: u64 = PAGE - BLOCK_ALIGN;

/// Another process that uses memory of a device; see [`set_other_processes`].
///
/// [`set_other_processes`]: crate::set_other_processes
///
/// ```
/// let trainer = cuguard_sim::OtherProcess::new(4711, "trainer", 3 << 30);
/// assert_eq!((trainer.pid, trainer.bytes), (4711, 3 << 30));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherProcess {
    /// The process id.
    pub pid: u32,
    /// The process name.
    pub name: String,
    /// The bytes of device memory that it uses.
    pub bytes: u64,
}

impl OtherProcess {
    /// A process with this id and name that uses `bytes` of device memory.
    #[must_use]
    pub fn new(pid: u32, name: impl Into<String>, bytes: u64) -> Self {
        Self {
            pid,
            name: name.into(),
            bytes,
        }
    }
}

/// The memory of one device, in bytes.
///
/// The assertions in this file are not a matter of memory safety: these are statistics, and the
/// memory itself belongs to blocks.
#[derive(Debug, Default)]
pub(crate) struct DeviceMemory {
    pub(crate) total: u64,
    /// What this process uses.
    pub(crate) used: u64,
    pub(crate) other_processes: Vec<OtherProcess>,
}

impl DeviceMemory {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            total,
            ..Self::default()
        }
    }

    /// Reserves bytes, a multiple of the page; `false` if not as many are free.
    pub(crate) fn reserve(&mut self, bytes: u64) -> bool {
        debug_assert!(bytes.is_multiple_of(PAGE));
        let enough = bytes <= self.free();
        if enough {
            self.used += bytes;
        }
        enough
    }

    pub(crate) fn release(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.used);
        self.used -= bytes;
    }

    pub(crate) fn free(&self) -> u64 {
        let others: u64 = self.other_processes.iter().map(|p| p.bytes).sum();
        self.total - self.used - others
    }
}

/// Rounds up to whole pages; `None` on overflow.
pub(crate) fn to_pages(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(PAGE)
}

/// The pages of one context that hold its small blocks.
#[derive(Debug)]
pub(crate) struct PackedPages {
    free_ranges: FreeRanges,
    pages: u64,
}

impl Default for PackedPages {
    fn default() -> Self {
        Self {
            free_ranges: FreeRanges::bounded(PAGE),
            pages: 0,
        }
    }
}

impl PackedPages {
    /// The bytes of device memory in these pages.
    pub(crate) fn bytes(&self) -> u64 {
        self.pages * PAGE
    }

    /// An address for a block of at most [`MAX_PACKED`] bytes.
    pub(crate) fn allocate(
        &mut self,
        bytes: u64,
        device: &mut DeviceMemory,
        addresses: &mut FreeRanges,
    ) -> Option<u64> {
        let len = bytes.next_multiple_of(BLOCK_ALIGN);
        if let Some(at) = self.free_ranges.allocate(len, BLOCK_ALIGN) {
            return Some(at);
        }
        if !device.reserve(PAGE) {
            return None;
        }
        let Some(page) = addresses.allocate(PAGE, PAGE) else {
            device.release(PAGE);
            return None;
        };
        self.pages += 1;
        self.free_ranges.free(page, PAGE);
        self.free_ranges.allocate(len, BLOCK_ALIGN)
    }

    pub(crate) fn free(
        &mut self,
        at: u64,
        bytes: u64,
        device: &mut DeviceMemory,
        addresses: &mut FreeRanges,
    ) {
        let (start, len) = self
            .free_ranges
            .free(at, bytes.next_multiple_of(BLOCK_ALIGN));
        if len == PAGE {
            let removed = self.free_ranges.allocate_exactly(start, len);
            debug_assert!(removed);
            addresses.free(start, len);
            device.release(PAGE);
            self.pages -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(pages: u64) -> (DeviceMemory, FreeRanges, PackedPages) {
        let device = DeviceMemory::new(pages * PAGE);
        (device, FreeRanges::new(0, 1 << 40), PackedPages::default())
    }

    #[test]
    fn two_blocks_of_a_mebibyte_share_a_page_that_goes_back_with_the_second() {
        let (mut device, mut addresses, mut packed) = state(4);
        let mut take = |device: &mut _| packed.allocate(1 << 20, device, &mut addresses).unwrap();
        let (a, b) = (take(&mut device), take(&mut device));
        assert_eq!(device.used, PAGE);
        packed.free(a, 1 << 20, &mut device, &mut addresses);
        assert_eq!(device.used, PAGE);
        packed.free(b, 1 << 20, &mut device, &mut addresses);
        assert_eq!((device.used, packed.bytes()), (0, 0));
        assert!(addresses.contains(0, 1 << 40));
    }

    #[test]
    fn a_block_does_not_lie_across_two_pages() {
        let (mut device, mut addresses, mut packed) = state(4);
        for _ in 0..4 {
            let at = packed
                .allocate(700_000, &mut device, &mut addresses)
                .unwrap();
            assert_eq!(at / PAGE, (at + 699_999) / PAGE);
        }
        assert_eq!(device.used, 2 * PAGE);
    }

    #[test]
    fn a_full_device_gives_nothing_and_loses_nothing() {
        let (mut device, mut addresses, mut packed) = state(1);
        assert!(
            packed
                .allocate(1 << 20, &mut device, &mut addresses)
                .is_some()
        );
        assert!(
            packed
                .allocate(1 << 20, &mut device, &mut addresses)
                .is_some()
        );
        assert_eq!(packed.allocate(1, &mut device, &mut addresses), None);
        assert_eq!(device.used, PAGE);
    }
}
