//! Small blocks: slabs of one unit, each with blocks of one size class.
//!
//! A shard is a set of slabs for some of the threads, so that threads seldom wait for each other. A block returns to
//! the shard that it came from.

use super::classes;
use super::range::{Reserved, UNIT, Unit, Use};

/// The slabs of one class in one shard that have free blocks.
pub(super) struct Slabs {
    first: u32,
}

/// What became of a freed block's slab.
pub(super) enum Freed {
    Kept,
    /// The slab has no block in use and was taken out: its unit can be freed.
    Empty(u32),
}

impl Slabs {
    pub(super) const fn new() -> Slabs {
        Slabs { first: 0 }
    }

    /// A block from a slab with free ones.
    pub(super) fn allocate(&mut self, reserved: Reserved, class: usize) -> Option<*mut u8> {
        let unit = self.first;
        if unit == 0 {
            return None;
        }
        let size = classes::size(class);
        // SAFETY: the unit is a slab of this list, protected by the caller's lock; free blocks belong to it.
        unsafe {
            let slab = reserved.entry(unit);
            let number = if (*slab).freed != 0 {
                let number = (*slab).freed - 1;
                let block = reserved.address(unit).add(number as usize * size);
                (*slab).freed = *block.cast::<u32>();
                number
            } else {
                (*slab).touched += 1;
                (*slab).touched - 1
            };
            (*slab).used += 1;
            if (*slab).used == classes::capacity(class) {
                self.unlink(reserved, unit);
            }
            Some(reserved.address(unit).add(number as usize * size))
        }
    }

    /// Adds a unit as a slab.
    pub(super) fn add(&mut self, reserved: Reserved, unit: u32, class: usize, shard: usize) {
        // SAFETY: the unit was allocated for this slab.
        unsafe {
            *reserved.entry(unit) = Unit {
                usage: Use::Slab,
                class: class as u8,
                shard: shard as u8,
                length: 1,
                used: 0,
                touched: 0,
                freed: 0,
                next: 0,
                previous: 0,
            };
        }
        self.link(reserved, unit);
    }

    /// Frees a block.
    ///
    /// # Safety
    /// The block is in use, and lies in a slab of this class and shard.
    pub(super) unsafe fn free(
        &mut self,
        reserved: Reserved,
        block: *mut u8,
        class: usize,
    ) -> Freed {
        let unit = reserved.unit_of(block.addr());
        let size = classes::size(class);
        let number = classes::index(class, block.addr() % UNIT);
        // SAFETY: see the function's own requirement; the caller's lock protects the slab.
        unsafe {
            let slab = reserved.entry(unit);
            let was_full = (*slab).used == classes::capacity(class);
            let start = reserved.address(unit).add(number as usize * size);
            *start.cast::<u32>() = (*slab).freed;
            (*slab).freed = number + 1;
            (*slab).used -= 1;
            if was_full {
                self.link(reserved, unit);
            }
            // One empty slab stays, so that a single block that comes and goes does not move units about.
            let only = self.first == unit && (*slab).next == 0;
            if (*slab).used == 0 && !only {
                self.unlink(reserved, unit);
                return Freed::Empty(unit);
            }
        }
        Freed::Kept
    }

    fn link(&mut self, reserved: Reserved, unit: u32) {
        let next = std::mem::replace(&mut self.first, unit);
        // SAFETY: both are slabs of this list, protected by the caller's lock.
        unsafe {
            (*reserved.entry(unit)).next = next;
            (*reserved.entry(unit)).previous = 0;
            if next != 0 {
                (*reserved.entry(next)).previous = unit;
            }
        }
    }

    fn unlink(&mut self, reserved: Reserved, unit: u32) {
        // SAFETY: as in `link`.
        unsafe {
            let (next, previous) = {
                let slab = reserved.entry(unit);
                ((*slab).next, (*slab).previous)
            };
            if previous == 0 {
                self.first = next;
            } else {
                (*reserved.entry(previous)).next = next;
            }
            if next != 0 {
                (*reserved.entry(next)).previous = previous;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand units' worth of blocks, in slabs that come from a counter.
    #[test]
    fn blocks_are_disjoint_and_used_again() {
        let reserved = Reserved::for_test(1024);
        assert!(reserved.make_usable(reserved.table_units()..1024));
        for class in [0, 7, 20, classes::COUNT - 1] {
            let size = classes::size(class);
            let mut slabs = Slabs::new();
            let mut units: Vec<u32> = (reserved.table_units()..100).rev().collect();
            let before = units.len();
            for _ in 0..3 {
                let mut blocks = Vec::new();
                for _ in 0..5 * (UNIT / size) {
                    let block = slabs.allocate(reserved, class).or_else(|| {
                        slabs.add(reserved, units.pop().expect("units"), class, 0);
                        slabs.allocate(reserved, class)
                    });
                    blocks.push(block.expect("a block").addr());
                }
                let mut sorted = blocks.clone();
                sorted.sort_unstable();
                assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= size));
                assert_eq!(before - units.len(), 5);
                for block in blocks {
                    let block = std::ptr::with_exposed_provenance_mut(block);
                    // SAFETY: allocated above, of this class, and freed once.
                    if let Freed::Empty(unit) = unsafe { slabs.free(reserved, block, class) } {
                        units.push(unit);
                    }
                }
                // One empty slab stays.
                assert_eq!(before - units.len(), 1);
                units.retain(|unit| *unit != slabs.first);
                units.push(slabs.first);
                slabs = Slabs::new();
            }
        }
    }
}
