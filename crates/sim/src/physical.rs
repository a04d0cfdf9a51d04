//! Physical memory: how many pages a device has, and how small blocks share them.
//!
//! Measured on a real GPU: memory is taken and given back in pages of 2 MiB. A block that is
//! smaller than a page is packed with others of its context into one, at multiples of 512 bytes; a
//! larger one takes whole pages for itself. A page goes back only when every block in it is free.

use crate::config::PAGE;
use crate::gaps::Gaps;

/// Blocks begin at multiples of this.
pub(crate) const UNIT: u64 = 512;
/// The largest block that shares a page with others.
pub(crate) const PACKED_MAX: u64 = PAGE - UNIT;

/// The memory of one device, in bytes.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    pub(crate) total: u64,
    /// What this process uses.
    pub(crate) used: u64,
    /// What other processes hold.
    pub(crate) others: u64,
}

/// The assertions in this file are not for memory safety: what is counted here is a figure, and the
/// memory behind it belongs to blocks.
impl DeviceMemory {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            total,
            used: 0,
            others: 0,
        }
    }

    /// Takes bytes, a multiple of the page, if there are as many.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        debug_assert!(bytes.is_multiple_of(PAGE));
        let enough = bytes <= self.free();
        if enough {
            self.used += bytes;
        }
        enough
    }

    pub(crate) fn give(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.used);
        self.used -= bytes;
    }

    pub(crate) fn free(&self) -> u64 {
        self.total - self.used - self.others
    }
}

/// Rounds up to whole pages; `None` where the sum wraps.
pub(crate) fn to_pages(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(PAGE)
}

/// The pages of one context that hold its small blocks.
#[derive(Debug)]
pub(crate) struct PackedPages {
    gaps: Gaps,
    pages: u64,
}

impl PackedPages {
    pub(crate) fn new() -> Self {
        Self {
            gaps: Gaps::bounded(PAGE),
            pages: 0,
        }
    }

    /// The bytes of device memory that these pages take.
    pub(crate) fn bytes(&self) -> u64 {
        self.pages * PAGE
    }

    /// An address for a block of at most [`PACKED_MAX`] bytes, from the device's pages and the
    /// process's addresses.
    pub(crate) fn take(
        &mut self,
        bytes: u64,
        device: &mut DeviceMemory,
        addresses: &mut Gaps,
    ) -> Option<u64> {
        let len = bytes.next_multiple_of(UNIT);
        if let Some(at) = self.gaps.take(len, UNIT) {
            return Some(at);
        }
        if !device.take(PAGE) {
            return None;
        }
        let Some(page) = addresses.take(PAGE, PAGE) else {
            device.give(PAGE);
            return None;
        };
        self.pages += 1;
        self.gaps.give(page, PAGE);
        self.gaps.take(len, UNIT)
    }

    pub(crate) fn give(
        &mut self,
        at: u64,
        bytes: u64,
        device: &mut DeviceMemory,
        addresses: &mut Gaps,
    ) {
        let (start, len) = self.gaps.give(at, bytes.next_multiple_of(UNIT));
        if len == PAGE {
            let taken = self.gaps.take_exactly(start, len);
            debug_assert!(taken);
            addresses.give(start, len);
            device.give(PAGE);
            self.pages -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(pages: u64) -> (DeviceMemory, Gaps, PackedPages) {
        let device = DeviceMemory::new(pages * PAGE);
        (device, Gaps::new(0, 1 << 40), PackedPages::new())
    }

    #[test]
    fn two_blocks_of_a_mebibyte_share_a_page_that_goes_back_with_the_second() {
        let (mut device, mut addresses, mut packed) = machine(4);
        let mut take = |device: &mut _| packed.take(1 << 20, device, &mut addresses).unwrap();
        let (a, b) = (take(&mut device), take(&mut device));
        assert_eq!(device.used, PAGE);
        packed.give(a, 1 << 20, &mut device, &mut addresses);
        assert_eq!(device.used, PAGE);
        packed.give(b, 1 << 20, &mut device, &mut addresses);
        assert_eq!((device.used, packed.bytes()), (0, 0));
        assert!(addresses.contains(0, 1 << 40));
    }

    #[test]
    fn a_block_does_not_lie_across_two_pages() {
        let (mut device, mut addresses, mut packed) = machine(4);
        for _ in 0..4 {
            let at = packed.take(700_000, &mut device, &mut addresses).unwrap();
            assert_eq!(at / PAGE, (at + 699_999) / PAGE);
        }
        assert_eq!(device.used, 2 * PAGE);
    }

    #[test]
    fn a_full_device_gives_nothing_and_loses_nothing() {
        let (mut device, mut addresses, mut packed) = machine(1);
        assert!(packed.take(1 << 20, &mut device, &mut addresses).is_some());
        assert!(packed.take(1 << 20, &mut device, &mut addresses).is_some());
        assert_eq!(packed.take(1, &mut device, &mut addresses), None);
        assert_eq!(device.used, PAGE);
    }
}
