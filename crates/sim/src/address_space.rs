//! The simulated device addresses: plain numbers, with a part for each use, so that the address of
//! something that is gone does not come back as that of something of another kind.

use crate::PAGE;
use crate::config::Config;
use crate::gaps::Gaps;

/// Where simulated device addresses begin and end. No program can have memory of its own here, so
/// a device address that is read by the host by mistake faults, as it should.
const BASE: u64 = 1 << 49;
const END: u64 = 1 << 62;

/// Addresses for `cuMemAddressReserve` beyond what the devices' own memory needs.
const RESERVABLE: u64 = 1 << 50;
const LEAST_PACKED: u64 = 1 << 47;
const LEAST_POOL: u64 = 1 << 30;

pub(crate) fn is_device_address(address: u64) -> bool {
    (BASE..END).contains(&address)
}

#[derive(Debug, Default)]
pub(crate) struct AddressSpace {
    /// For pages in which small blocks are packed.
    pub(crate) packed: Gaps,
    /// For whole pages: large blocks, and what the program reserves.
    pub(crate) pages: Gaps,
    /// For pools, each of which takes [`pool_span`](Self::pool_span).
    pools: Gaps,
    pool_span: u64,
}

impl AddressSpace {
    /// The limits of [`Config`] make sure that all parts fit.
    pub(crate) fn new(config: &Config) -> Self {
        let total = config.memory * u64::from(config.devices);
        let packed = total.next_power_of_two().max(LEAST_PACKED);
        let pages = total.next_power_of_two() * 4 + RESERVABLE;
        let pools = BASE + packed + pages;
        Self {
            packed: Gaps::new(BASE, packed),
            pages: Gaps::new(BASE + packed, pages),
            pools: Gaps::new(pools, END - pools),
            // Four times the memory: a pool fragments, and its addresses shall not run out first.
            pool_span: (config.memory * 4).next_power_of_two().max(LEAST_POOL),
        }
    }

    /// How many addresses a pool has for itself.
    pub(crate) fn pool_span(&self) -> u64 {
        self.pool_span
    }

    pub(crate) fn take_pool(&mut self) -> Option<u64> {
        self.pools.take(self.pool_span, PAGE)
    }

    pub(crate) fn give_pool(&mut self, base: u64) {
        self.pools.give(base, self.pool_span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MOST_BYTES, MOST_DEVICES};

    #[test]
    fn the_largest_machine_has_addresses_for_all_its_memory_and_pools() {
        let config = Config::new().memory(MOST_BYTES).devices(MOST_DEVICES);
        let mut space = AddressSpace::new(&config);
        let total = MOST_BYTES * u64::from(MOST_DEVICES);
        assert!(space.packed.take(total, PAGE).is_some());
        assert!(space.pages.take(2 * total, PAGE).is_some());
        let mut last = 0;
        for _ in 0..4096 {
            let base = space.take_pool().unwrap();
            assert!(base > last && is_device_address(base + space.pool_span() - 1));
            last = base;
        }
        space.give_pool(last);
        assert_eq!(space.take_pool(), Some(last));
    }

    #[test]
    fn a_small_machine_keeps_its_addresses_small() {
        let mut space = AddressSpace::new(&Config::new());
        for _ in 0..100_000 {
            assert!(space.take_pool().unwrap() < 1 << 53);
        }
        assert!(space.pages.take(1 << 40, PAGE).is_some());
    }
}
