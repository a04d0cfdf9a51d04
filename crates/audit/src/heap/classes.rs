//! Size classes of small blocks: multiples of 16 bytes up to 128, then four to a doubling.

use super::range::UNIT;

/// Blocks above are whole runs of units.
pub(super) const LARGEST: usize = 32 << 10;

pub(super) const COUNT: usize = 40;

/// The class for a size from 1 to [`LARGEST`].
pub(super) fn of(size: usize) -> usize {
    debug_assert!((1..=LARGEST).contains(&size));
    if size <= 128 {
        return size.div_ceil(16) - 1;
    }
    let last = size - 1;
    let doubling = last.ilog2() as usize;
    8 + (doubling - 7) * 4 + ((last >> (doubling - 2)) & 3)
}

/// The size of each class's blocks, how many are in a slab, and the factor of [`index`].
const TABLE: [(u32, u32, u64); COUNT] = {
    let mut table = [(0, 0, 0); COUNT];
    let mut class = 0;
    while class < COUNT {
        let size = compute_size(class);
        table[class] = (
            size as u32,
            (UNIT / size) as u32,
            (1_u64 << 32).div_ceil(size as u64),
        );
        class += 1;
    }
    table
};

/// The size of a class's blocks.
pub(super) fn size(class: usize) -> usize {
    TABLE[class].0 as usize
}

/// How many blocks are in a slab.
pub(super) fn capacity(class: usize) -> u32 {
    TABLE[class].1
}

/// The number of the block at an offset in a slab: the offset divided by the size, without a division, which takes as long
/// as all else that a free does.
pub(super) fn index(class: usize, offset: usize) -> u32 {
    ((offset as u64 * TABLE[class].2) >> 32) as u32
}

const fn compute_size(class: usize) -> usize {
    if class < 8 {
        return (class + 1) * 16;
    }
    let (doubling, quarter) = (7 + (class - 8) / 4, (class - 8) % 4);
    (1 << doubling) + ((quarter + 1) << (doubling - 2))
}

/// The class for a size and an alignment, if there is one. Slabs are aligned to their size, so a block is aligned
/// to each power of two that divides the block size.
pub(super) fn aligned(size: usize, align: usize) -> Option<usize> {
    let size = size.max(1);
    let size = if align <= 16 {
        size
    } else {
        size.max(align).checked_next_power_of_two()?
    };
    (size <= LARGEST).then(|| of(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_a_size_is_the_smallest_that_holds_it() {
        assert_eq!(size(COUNT - 1), LARGEST);
        for bytes in 1..=LARGEST {
            let class = of(bytes);
            assert!(size(class) >= bytes, "{bytes}: class {class}");
            assert!(class == 0 || size(class - 1) < bytes, "{bytes}");
        }
    }

    #[test]
    fn the_number_of_a_block_is_the_quotient() {
        for class in 0..COUNT {
            assert_eq!(capacity(class) as usize, UNIT / size(class));
            for offset in 0..UNIT {
                assert_eq!(index(class, offset) as usize, offset / size(class));
            }
        }
    }

    #[test]
    fn aligned_classes_are_multiples_of_the_alignment() {
        for align in [1, 16, 32, 64, 4096, 32768] {
            for bytes in [0, 1, 17, 100, 5000, 32768] {
                let class = aligned(bytes, align).expect("small");
                assert!(size(class) >= bytes && size(class).is_multiple_of(align));
            }
        }
        assert_eq!(aligned(LARGEST + 1, 8), None);
        assert_eq!(aligned(1, 65536), None);
        assert_eq!(aligned(usize::MAX, 64), None);
    }
}
