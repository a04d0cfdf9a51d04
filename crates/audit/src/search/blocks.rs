//! The blocks of the program's heap that are in use: which of them an address lies in.
//!
//! Nothing here looks like an address of the program: starts are kept as distances from the heap's.

use std::ops::Range;

/// Of each stretch of a heap of this length, the first block is known.
const STRETCH: u64 = 4096;
/// The alignment of blocks, and the unit of their sizes.
const UNIT: u64 = 16;
/// The header in front of a block: sizes of the block before, and of the block.
const HEADER: u64 = 16;
/// The end of a block reaches into the header of the next.
const TAIL: u64 = 8;

/// A heap: addresses with headers and blocks one after the other.
struct Heap {
    addresses: Range<u64>,
    /// Its first block.
    first: u32,
    /// For each stretch the first block that begins there or behind, counted from the heap's first.
    stretches: Vec<u32>,
}

/// Blocks that are in use, by number.
#[derive(Default)]
pub(super) struct Blocks {
    /// Sorted.
    heaps: Vec<Heap>,
    /// The header of each, in units from the start of its heap.
    starts: Vec<u32>,
    /// With its header, in units.
    sizes: Vec<u32>,
    /// For each heap its number of blocks before; for the heap of a block.
    firsts: Vec<u32>,
}

/// A number that no block has.
const NO_BLOCK: u32 = u32::MAX;

impl Blocks {
    /// Adds a heap, whose blocks are those with a header at these addresses, with their sizes. Heaps are added by ascending
    /// address. False if there is no number left for them.
    pub(super) fn add(&mut self, addresses: Range<u64>, blocks: &[(u64, u64)]) -> bool {
        let length = addresses.end - addresses.start;
        let room = NO_BLOCK as usize - self.starts.len();
        if blocks.len() >= room || length / UNIT >= u64::from(u32::MAX) {
            return false;
        }
        let first = self.starts.len() as u32;
        let mut stretches = Vec::with_capacity((length / STRETCH + 2) as usize);
        for (number, (at, size)) in blocks.iter().enumerate() {
            let offset = at - addresses.start;
            while stretches.len() as u64 * STRETCH <= offset {
                stretches.push(number as u32);
            }
            self.starts.push((offset / UNIT) as u32);
            self.sizes.push((size / UNIT) as u32);
        }
        stretches.resize((length.div_ceil(STRETCH) + 1) as usize, blocks.len() as u32);
        self.firsts.push(first);
        self.heaps.push(Heap {
            addresses,
            first,
            stretches,
        });
        true
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// The addresses of all heaps, sorted.
    pub(super) fn heaps(&self) -> impl Iterator<Item = &Range<u64>> {
        self.heaps.iter().map(|heap| &heap.addresses)
    }

    /// What the program may use of a block.
    pub(super) fn addresses(&self, block: u32) -> Range<u64> {
        let heap = self.firsts.partition_point(|first| *first <= block);
        let start = self.heaps[heap - 1].addresses.start;
        let header = start + u64::from(self.starts[block as usize]) * UNIT;
        let size = u64::from(self.sizes[block as usize]) * UNIT;
        header + HEADER..header + size + TAIL
    }

    /// The block that an address leads to: inside of it, or in its header, as a pointer to an array that is counted from one.
    pub(super) fn find(&self, address: u64) -> Option<u32> {
        let heap = self.heap(address)?;
        let end = self.end(heap);
        let offset = address - self.heaps[heap].addresses.start;
        let Heap {
            first, stretches, ..
        } = &self.heaps[heap];
        let stretch = (offset / STRETCH) as usize;
        let [from, to] =
            [stretches[stretch], stretches[stretch + 1]].map(|block| (first + block) as usize);
        let unit = (offset / UNIT) as u32;
        let behind = from + self.starts[from..to].partition_point(|start| *start <= unit);
        let block = behind
            .checked_sub(1)
            .filter(|block| *block >= *first as usize && *block < end)?;
        (unit - self.starts[block] < self.sizes[block]).then_some(block as u32)
    }

    /// The block that the word at an address lies in.
    pub(super) fn containing(&self, address: u64) -> Option<u32> {
        // From behind the header to the tail, which is in the next header.
        self.find(address.wrapping_sub(TAIL))
    }

    /// The blocks that an address leads to: also the one before, if it is the address behind its end. Not where a heap ends: there
    /// another mapping begins, such as a library.
    pub(super) fn led_to(&self, address: u64, mut found: impl FnMut(u32)) {
        if self.heap(address).is_none() {
            return;
        }
        let block = self.find(address);
        if let Some(block) = block {
            found(block);
        }
        let before = self.find(address.wrapping_sub(HEADER));
        if before != block
            && let Some(before) = before
        {
            found(before);
        }
    }

    /// The block that an address is inside of: neither in front of it nor behind. Nor behind the heap, where the last block has
    /// no tail.
    pub(super) fn inside(&self, address: u64) -> Option<u32> {
        self.heap(address)?;
        let block = self.containing(address)?;
        self.addresses(block).contains(&address).then_some(block)
    }

    fn heap(&self, address: u64) -> Option<usize> {
        let behind = self
            .heaps
            .partition_point(|heap| heap.addresses.start <= address);
        let heap = behind.checked_sub(1)?;
        self.heaps[heap]
            .addresses
            .contains(&address)
            .then_some(heap)
    }

    /// The number behind the last block of a heap.
    fn end(&self, heap: usize) -> usize {
        let next = self.firsts.get(heap + 1);
        next.map_or(self.starts.len(), |first| *first as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::Blocks;

    fn blocks() -> Blocks {
        let mut blocks = Blocks::default();
        // With a gap, over several stretches, and up to the end.
        let first = [(0x1_0000, 0x20), (0x1_0020, 0x40), (0x1_0100, 0x5000)];
        assert!(blocks.add(0x1_0000..0x2_0000, &first));
        assert!(blocks.add(0x3_0000..0x3_1000, &[]));
        assert!(blocks.add(0x4_0000..0x4_2000, &[(0x4_0010, 0x1ff0)]));
        blocks
    }

    #[test]
    fn an_address_leads_to_its_block() {
        let blocks = blocks();
        for (address, expected) in [
            (0, None),
            (0xffff, None),
            (0x1_0000, Some(0)),
            (0x1_0010, Some(0)),
            (0x1_001f, Some(0)),
            (0x1_0020, Some(1)),
            (0x1_005f, Some(1)),
            (0x1_0060, None),
            (0x1_00ff, None),
            (0x1_0100, Some(2)),
            (0x1_3000, Some(2)),
            (0x1_50ff, Some(2)),
            (0x1_5100, None),
            (0x1_ffff, None),
            (0x2_0000, None),
            (0x3_0000, None),
            (0x4_0000, None),
            (0x4_0010, Some(3)),
            (0x4_1fff, Some(3)),
            (0x4_2000, None),
            (u64::MAX, None),
        ] {
            assert_eq!(blocks.find(address), expected, "{address:#x}");
        }
        assert_eq!(blocks.addresses(1), 0x1_0030..0x1_0068);
        let words = (0x1_0020..0x1_0070).step_by(8);
        let of_block = words.filter(|word| blocks.containing(*word) == Some(1));
        assert!(of_block.eq((0x1_0028..0x1_0068).step_by(8)));
        assert_eq!(blocks.addresses(3), 0x4_0020..0x4_2008);
    }

    #[test]
    fn the_address_behind_a_block_leads_to_it_too() {
        let blocks = blocks();
        let led_to = |address| {
            let mut found = Vec::new();
            blocks.led_to(address, |block| found.push(block));
            found
        };
        assert_eq!(led_to(0x1_0028), [1, 0]);
        // The last word of the first block, in the header of the second.
        assert_eq!(led_to(0x1_0020), [1, 0]);
        assert_eq!(led_to(0x1_0030), [1]);
        assert_eq!(led_to(0x1_0068), [1]);
        assert_eq!(led_to(0x1_0008), [0]);
        // That of the next mapping.
        assert_eq!(led_to(0x4_2000), []);
        assert_eq!(led_to(8), []);
        for (address, expected) in [
            (0x1_0008, None),
            (0x1_0010, Some(0)),
            (0x1_0020, Some(0)),
            (0x1_0027, Some(0)),
            (0x1_0028, None),
            (0x1_0030, Some(1)),
            (0x4_2000, None),
        ] {
            assert_eq!(blocks.inside(address), expected, "{address:#x}");
        }
    }

    #[test]
    fn every_address_leads_where_a_search_one_by_one_does() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..20 {
            let (mut at, mut list) = (0x10_0000 + random(300) * 16, Vec::new());
            while at < 0x10_8000 {
                let size = 32 + random(20) * 16 + random(2) * random(600) * 16;
                if at + size <= 0x10_8000 && random(3) != 0 {
                    list.push((at, size));
                }
                at += size;
            }
            let mut blocks = Blocks::default();
            assert!(blocks.add(0x10_0000..0x10_8000, &list));
            for address in (0xf_fff0..0x10_8010).step_by(8) {
                let expected = list
                    .iter()
                    .position(|(at, size)| (*at..at + size).contains(&address));
                assert_eq!(blocks.find(address), expected.map(|block| block as u32));
            }
        }
    }
}
