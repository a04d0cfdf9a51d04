//! Sizes: pages, granules, and what a block of a given size occupies.

/// A page of virtual addresses, and the smallest physical handle.
pub(crate) const PAGE: u64 = 2 << 20;
/// The unit in which a page is shared: 128 to a page, so that a `u128` is a mask of them.
pub(crate) const GRANULE: u64 = 16 << 10;
/// Granules of a page.
pub(crate) const GRANULES: u32 = 128;
/// The larger of the two sizes of handles: it saves calls in blocks of this size or more.
pub(crate) const LARGE: u64 = 64 << 20;
/// Pages of a large handle.
pub(crate) const LARGE_PAGES: u64 = LARGE / PAGE;
/// Blocks that occupy less are slots of a size class.
pub(crate) const SMALLEST_RANGE: u64 = 256 << 10;
/// The number of size classes.
pub(crate) const CLASSES: usize = 51;

/// Every slot is aligned to this: the driver aligns to as much in practice, and textures need it.
const FINE: u64 = 512;
const LAST_FINE: u64 = 4 << 10;
const LAST_STEPPED: u64 = 64 << 10;

/// What a block of this size occupies: a multiple of 512 bytes up to 4 KiB, eight steps a doubling up to 64 KiB, then a
/// multiple of 16 KiB. A block of 0 bytes occupies 512.
#[inline]
pub const fn rounded(bytes: u64) -> u64 {
    if bytes == 0 {
        FINE
    } else if bytes <= LAST_FINE {
        bytes.next_multiple_of(FINE)
    } else if bytes <= LAST_STEPPED {
        let step = 1 << ((bytes - 1).ilog2() - 3);
        bytes.next_multiple_of(step)
    } else if bytes > u64::MAX - GRANULE {
        !(GRANULE - 1)
    } else {
        bytes.next_multiple_of(GRANULE)
    }
}

/// The size class of a rounded size below [`SMALLEST_RANGE`].
pub(crate) const fn class_of(rounded: u64) -> usize {
    if rounded <= LAST_FINE {
        (rounded / FINE - 1) as usize
    } else if rounded <= LAST_STEPPED {
        let doubling = (rounded - 1).ilog2();
        let step = 1 << (doubling - 3);
        8 + (doubling as usize - 12) * 8 + ((rounded - (1 << doubling)) / step) as usize - 1
    } else {
        40 + ((rounded - LAST_STEPPED) / GRANULE) as usize - 1
    }
}

/// The size of the slots of a class.
pub(crate) const fn class_bytes(class: usize) -> u64 {
    if class < 8 {
        (class as u64 + 1) * FINE
    } else if class < 40 {
        let doubling = 12 + (class - 8) / 8;
        let step = 1 << (doubling - 3);
        (1 << doubling) + ((class - 8) % 8 + 1) as u64 * step
    } else {
        LAST_STEPPED + (class - 39) as u64 * GRANULE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_the_class_of_its_size() {
        let mut last = 0;
        for class in 0..CLASSES {
            let bytes = class_bytes(class);
            assert!(bytes > last, "class {class}");
            assert_eq!(rounded(bytes), bytes, "class {class}");
            assert_eq!(class_of(bytes), class, "class {class}");
            assert_eq!(rounded(last + 1), bytes, "class {class}");
            assert_eq!(bytes % 512, 0, "class {class}");
            last = bytes;
        }
        assert_eq!(rounded(last + 1), SMALLEST_RANGE);
    }

    #[test]
    fn rounding_up_wastes_an_eighth_at_most_from_4_kib_on() {
        for bytes in (4097..(4 << 20)).step_by(97) {
            let rounded = rounded(bytes);
            assert!(rounded >= bytes);
            assert!(
                rounded - bytes <= bytes / 8 + GRANULE * u64::from(bytes > LAST_STEPPED),
                "{bytes}"
            );
        }
        assert_eq!(rounded(u64::MAX) % GRANULE, 0);
        assert_eq!(rounded(0), 512);
    }
}
