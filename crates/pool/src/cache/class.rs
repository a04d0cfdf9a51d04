//! The sizes that caches hold: one list for each, and how long it may be.

/// The largest block that caches hold, in bytes.
pub(crate) const LARGEST: u64 = 1 << 20;
/// The number of sizes.
pub(crate) const CLASSES: usize = 100;

/// What a list may hold, in bytes, unless that is less than one block.
const LIST_BYTES: u64 = 1 << 20;
/// What a list may hold, in blocks.
const LIST_BLOCKS: u64 = 64;

/// A size that caches hold: what the pool rounds sizes up to, as an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

/// What follows from a class, so that the hot path looks it up.
#[derive(Clone, Copy)]
struct Facts {
    bytes: u32,
    cap: u8,
}

static FACTS: [Facts; CLASSES] = {
    let mut facts = [Facts { bytes: 0, cap: 0 }; CLASSES];
    let mut index = 0;
    while index < CLASSES {
        let bytes = class_bytes(index as u64);
        let blocks = LIST_BYTES / bytes;
        facts[index] = Facts {
            bytes: bytes as u32,
            cap: if blocks > LIST_BLOCKS {
                LIST_BLOCKS
            } else {
                blocks
            } as u8,
        };
        index += 1;
    }
    facts
};

/// The sizes of one doubling: the distance between them, and where they begin.
#[derive(Clone, Copy)]
struct Step {
    shift: u8,
    first: u8,
}

static STEPS: [Step; LARGEST.ilog2() as usize] = {
    let mut steps = [Step { shift: 9, first: 0 }; LARGEST.ilog2() as usize];
    let mut doubling = 12;
    while doubling < steps.len() {
        steps[doubling] = if doubling < 16 {
            // The leading bit and the next three are 8 to 15.
            Step {
                shift: doubling as u8 - 3,
                first: (doubling as u8 - 12) * 8,
            }
        } else {
            // 64 KiB are four times 16 KiB, and class 39.
            Step {
                shift: 14,
                first: 36,
            }
        };
        doubling += 1;
    }
    steps
};

/// Multiples of 512 bytes up to 4 KiB, eight steps a doubling up to 64 KiB, then multiples of 16 KiB.
const fn class_bytes(index: u64) -> u64 {
    match index {
        0..8 => (index + 1) << 9,
        8..40 => (9 + index % 8) << (9 + (index - 8) / 8),
        _ => (64 << 10) + ((index - 39) << 14),
    }
}

impl Class {
    /// The smallest class in which a block of this size fits. `None` if caches hold no such blocks.
    #[inline(always)]
    pub(crate) const fn of(bytes: u64) -> Option<Self> {
        if bytes > LARGEST {
            return None;
        }
        let last = bytes.saturating_sub(1);
        // Without a branch: sizes that come in any order would be mispredicted.
        let Step { shift, first } = STEPS[(last | 1).ilog2() as usize];
        let index = (last >> shift) + first as u64;
        Some(Self(index as u8))
    }

    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Self> + Clone {
        (0..CLASSES as u8).map(Self)
    }

    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// What a block of it occupies.
    #[inline]
    pub(crate) const fn bytes(self) -> u64 {
        FACTS[self.index()].bytes as u64
    }

    /// How many blocks a list of it may hold: 1 MiB, but at most 64 blocks.
    #[inline]
    pub(crate) const fn cap(self) -> usize {
        FACTS[self.index()].cap as usize
    }

    /// How many blocks move at once between a list and the pool, at most.
    pub(crate) const fn batch(self) -> usize {
        match self.cap() / 2 {
            0 => 1,
            half => half,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_is_the_smallest_in_which_a_block_fits() {
        let mut smaller = 0;
        for class in Class::all() {
            assert!(class.bytes() > smaller, "{class:?}");
            assert_eq!(Class::of(smaller + 1), Some(class));
            assert_eq!(Class::of(class.bytes()), Some(class));
            smaller = class.bytes();
        }
        assert_eq!(smaller, LARGEST);
        assert_eq!(Class::of(0), Class::of(1));
        assert_eq!(Class::of(LARGEST + 1), None);
        assert_eq!(Class::of(u64::MAX), None);
    }

    #[test]
    fn a_list_holds_a_mebibyte_and_between_1_and_64_blocks() {
        for class in Class::all() {
            let cap = class.cap() as u64;
            assert!((1..=64).contains(&cap), "{class:?}");
            assert!(cap * class.bytes() <= LIST_BYTES, "{class:?}");
            assert!(
                cap == 64 || (cap + 1) * class.bytes() > LIST_BYTES,
                "{class:?}"
            );
            assert!((1..=cap as usize).contains(&class.batch()));
        }
        assert_eq!(Class::of(1 << 20).unwrap().cap(), 1);
        assert_eq!(Class::of(64 << 10).unwrap().cap(), 16);
    }
}
