//! Simulated device addresses: numbers, in a separate part for each use, so that the address of freed
//! memory is not reused for memory of another kind.

use super::free_ranges::FreeRanges;
use crate::config::{Config, PAGE};

/// The limits of simulated device addresses. The host maps no memory here, so host code that
/// dereferences a device address by mistake faults, as it should. Aligned to pages, but not a round
/// number, so that two numbers of 32 bits in one argument of a kernel do not look like an address.
pub(super) const BASE: u64 = 0x0002_1b7d_4000_0000;
const END: u64 = 1 << 62;

/// Addresses for `cuMemAddressReserve` beyond what the devices' memory needs.
const RESERVABLE: u64 = 1 << 50;
const MIN_PACKED: u64 = 1 << 47;
const MIN_POOL: u64 = 1 << 30;

pub(crate) fn is_device_address(address: u64) -> bool {
    (BASE..END).contains(&address)
}

#[derive(Debug, Default)]
pub(crate) struct AddressSpace {
    /// For pages that small blocks share.
    pub(crate) packed: FreeRanges,
    /// For whole pages: large blocks, and reservations of the program.
    pub(crate) pages: FreeRanges,
    /// For pools, each of which gets [`pool_span`](Self::pool_span).
    pools: FreeRanges,
    pool_span: u64,
}

impl AddressSpace {
    /// The limits of [`Config`] guarantee that all parts fit.
    pub(crate) fn new(config: &Config) -> Self {
        let total = config.memory * u64::from(config.devices);
        let packed = total.next_power_of_two().max(MIN_PACKED);
        let pages = total.next_power_of_two() * 4 + RESERVABLE;
        let pools = BASE + packed + pages;
        Self {
            packed: FreeRanges::new(BASE, packed),
            pages: FreeRanges::new(BASE + packed, pages),
            pools: FreeRanges::new(pools, END - pools),
            // Four times the memory: a pool fragments, and must not run out of addresses first.
            pool_span: (config.memory * 4).next_power_of_two().max(MIN_POOL),
        }
    }

    /// The size of a pool's address range.
    pub(crate) fn pool_span(&self) -> u64 {
        self.pool_span
    }

    pub(crate) fn allocate_pool(&mut self) -> Option<u64> {
        self.pools.allocate(self.pool_span, PAGE)
    }

    pub(crate) fn free_pool(&mut self, base: u64) {
        self.pools.free(base, self.pool_span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MAX_DEVICES, MAX_MEMORY};

    #[test]
    fn the_largest_machine_has_addresses_for_all_its_memory_and_pools() {
        let config = Config::new().memory(MAX_MEMORY).devices(MAX_DEVICES);
        let mut space = AddressSpace::new(&config);
        let total = MAX_MEMORY * u64::from(MAX_DEVICES);
        assert!(space.packed.allocate(total, PAGE).is_some());
        assert!(space.pages.allocate(2 * total, PAGE).is_some());
        let mut last = 0;
        for _ in 0..4096 {
            let base = space.allocate_pool().unwrap();
            assert!(base > last && is_device_address(base + space.pool_span() - 1));
            last = base;
        }
        space.free_pool(last);
        assert_eq!(space.allocate_pool(), Some(last));
    }

    #[test]
    fn the_first_address_starts_a_page() {
        assert_eq!(BASE % PAGE, 0);
    }

    #[test]
    fn a_small_machine_keeps_its_addresses_small() {
        let mut space = AddressSpace::new(&Config::new());
        for _ in 0..100_000 {
            assert!(space.allocate_pool().unwrap() < 1 << 53);
        }
        assert!(space.pages.allocate(1 << 40, PAGE).is_some());
    }
}
