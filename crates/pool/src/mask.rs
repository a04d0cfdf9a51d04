//! Masks of the granules of a page.

use crate::random::Random;
use crate::size::{GRANULE, GRANULES};

/// The granules `start..start + count`.
pub(crate) fn span(start: u32, count: u32) -> u128 {
    debug_assert!(count >= 1 && start + count <= GRANULES);
    (u128::MAX >> (GRANULES - count)) << start
}

/// The granules that the bytes `offset..offset + bytes` of a page touch.
pub(crate) fn touched(offset: u64, bytes: u64) -> u128 {
    let first = (offset / GRANULE) as u32;
    let last = ((offset + bytes - 1) / GRANULE) as u32;
    span(first, last - first + 1)
}

/// Free granules at the front of a page.
pub(crate) fn free_front(used: u128) -> u32 {
    used.trailing_zeros()
}

/// Free granules at the end of a page.
pub(crate) fn free_end(used: u128) -> u32 {
    used.leading_zeros()
}

/// The runs of set granules, as start and count.
pub(crate) fn runs(mut mask: u128) -> impl Iterator<Item = (u32, u32)> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let start = mask.trailing_zeros();
        let count = (mask >> start).trailing_ones();
        mask &= !span(start, count);
        Some((start, count))
    })
}

/// The longest run of free granules.
pub(crate) fn longest_free(used: u128) -> u32 {
    runs(!used).map(|(_, count)| count).max().unwrap_or(0)
}

/// A position for `count` granules: in a run of free ones that leaves the least beside multiples of `count`, and there at a
/// random multiple from one of its ends. All such positions are equally likely: were it always the first, then freeing every
/// other block would leave the same granules of every page free, and no two pages could be merged.
pub(crate) fn position(used: u128, count: u32, random: &mut Random) -> Option<u32> {
    let fitting = || runs(!used).filter(|&(_, length)| length >= count);
    let least = fitting().map(|(_, length)| length % count).min()?;
    let best = || fitting().filter(|&(_, length)| length % count == least);
    let positions: u32 = best().map(|(_, length)| length / count).sum();
    let mut number = random.below(positions);
    for (start, length) in best() {
        if number < length / count {
            let from_end = if random.coin() { least } else { 0 };
            return Some(start + from_end + number * count);
        }
        number -= length / count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_free_granules() {
        assert_eq!(span(0, 128), u128::MAX);
        assert_eq!(touched(GRANULE - 1, 2), 0b11);
        let used = span(3, 5) | span(100, 28);
        assert_eq!(runs(!used).collect::<Vec<_>>(), [(0, 3), (8, 92)]);
        assert_eq!(
            (free_front(used), free_end(used), longest_free(used)),
            (3, 0, 92)
        );
        assert_eq!(
            (free_front(0), free_end(0), longest_free(0)),
            (128, 128, 128)
        );
        assert_eq!(longest_free(u128::MAX), 0);
    }

    #[test]
    fn positions_are_all_used_and_free() {
        let mut random = Random::new(1);
        let mut seen = 0u128;
        for _ in 0..200 {
            let at = position(0, 32, &mut random).unwrap();
            seen |= 1 << at;
        }
        assert_eq!(seen, 1 | 1 << 32 | 1 << 64 | 1 << 96);
        assert_eq!(position(span(10, 118), 11, &mut random), None);
        assert_eq!(position(span(10, 100), 10, &mut random), Some(0));
    }
}
