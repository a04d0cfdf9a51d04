//! The addresses that are searched for, arranged so that a word of memory that is none of them costs a nanosecond.
//!
//! A word passes three tests: it lies between the lowest and the highest target; its 2 MiB granule has a target; a
//! target contains it. Targets may nest (a block in a reserved range), so they are arranged in layers whose targets
//! do not overlap, each searched by bisection.

use std::collections::HashMap;
use std::ops::Range;

/// An address range that a live resource occupies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// First address, or the handle.
    pub(crate) start: u64,
    /// Bytes; zero for a handle, which only the same value matches.
    pub(crate) len: u64,
    /// Managed memory, which may hold addresses itself: it is searched if it is found.
    pub(crate) is_managed: bool,
}

impl Target {
    fn end(self) -> u64 {
        self.start.saturating_add(self.len.max(1))
    }
}

const GRANULE_BITS: u32 = 21;
/// Bits of the filter. Granules share bits where there are more.
const FILTER_BITS: u32 = 22;
/// A target of more granules makes the filter useless; then all bits are set.
const GRANULES_LIMIT: u64 = 1 << 22;
/// Deeper nesting is searched one by one.
const LAYERS: usize = 16;

struct Layer {
    /// Sorted.
    starts: Vec<u64>,
    ends: Vec<u64>,
    /// Number of the group of equal targets.
    groups: Vec<u32>,
}

/// The targets, ready for the search.
pub(super) struct Targets {
    /// The lowest address, and the distance from it to the end of the highest.
    low: u64,
    span: u64,
    filter: Vec<u64>,
    layers: Vec<Layer>,
    /// For each target of the caller the number of its group.
    group_of: Vec<u32>,
    group_count: usize,
    /// The addresses of the groups that are managed memory.
    managed: HashMap<usize, Range<u64>>,
}

impl Targets {
    pub(super) fn new(targets: &[Target]) -> Targets {
        let mut order: Vec<u32> = (0..targets.len() as u32).collect();
        // The longer first, so that what contains others is in an earlier layer.
        order.sort_unstable_by_key(|index| {
            let target = targets[*index as usize];
            (target.start, u64::MAX - target.len, target.is_managed)
        });
        let mut group_of = vec![0; targets.len()];
        let mut layers: Vec<Layer> = Vec::new();
        let mut managed = HashMap::new();
        let (mut group_count, mut last) = (0_u32, None);
        for index in order {
            let target = targets[index as usize];
            if last != Some(target) {
                last = Some(target);
                group_count += 1;
                add(&mut layers, target, group_count - 1);
                if target.is_managed {
                    managed.insert(group_count as usize - 1, target.start..target.end());
                }
            }
            group_of[index as usize] = group_count - 1;
        }
        let low = targets.iter().map(|target| target.start).min().unwrap_or(0);
        let high = targets.iter().map(|target| target.end()).max().unwrap_or(0);
        Targets {
            low,
            span: high - low,
            filter: filter(targets),
            layers,
            group_of,
            group_count: group_count as usize,
            managed,
        }
    }

    /// The managed memory among the targets, by group.
    pub(super) fn managed(&self) -> &HashMap<usize, Range<u64>> {
        &self.managed
    }

    /// The number of groups of equal targets.
    pub(super) fn group_count(&self) -> usize {
        self.group_count
    }

    pub(super) fn group_of(&self, target: usize) -> usize {
        self.group_of[target] as usize
    }

    /// The lowest address, and the distance from it to the end of the highest: the first test.
    pub(super) fn bounds(&self) -> (u64, u64) {
        (self.low, self.span)
    }

    /// The second and the third test. Calls the function with each group that contains the value.
    pub(super) fn find(&self, value: u64, mut found: impl FnMut(usize)) {
        let bit = bit_of(value >> GRANULE_BITS);
        if self.filter[bit / 64] >> (bit % 64) & 1 == 0 {
            return;
        }
        for (depth, layer) in self.layers.iter().enumerate() {
            if depth < LAYERS {
                let behind = layer.starts.partition_point(|start| *start <= value);
                if behind > 0 && value < layer.ends[behind - 1] {
                    found(layer.groups[behind - 1] as usize);
                }
                continue;
            }
            for at in 0..layer.starts.len() {
                if layer.starts[at] <= value && value < layer.ends[at] {
                    found(layer.groups[at] as usize);
                }
            }
        }
    }
}

/// Puts a target into the first layer where it overlaps none. Targets come by ascending start.
fn add(layers: &mut Vec<Layer>, target: Target, group: u32) {
    let free = layers
        .iter()
        .take(LAYERS)
        .position(|layer| layer.ends.last().is_none_or(|end| *end <= target.start));
    let at = free.unwrap_or(layers.len().min(LAYERS));
    if at == layers.len() {
        layers.push(Layer {
            starts: Vec::new(),
            ends: Vec::new(),
            groups: Vec::new(),
        });
    }
    let layer = &mut layers[at];
    layer.starts.push(target.start);
    layer.ends.push(target.end());
    layer.groups.push(group);
}

fn bit_of(granule: u64) -> usize {
    (granule.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - FILTER_BITS)) as usize
}

fn filter(targets: &[Target]) -> Vec<u64> {
    let mut bits = vec![0; (1 << FILTER_BITS) / 64];
    let mut last = None;
    for target in targets {
        let first = target.start >> GRANULE_BITS;
        let end = (target.end() - 1) >> GRANULE_BITS;
        if last == Some((first, end)) {
            continue;
        }
        last = Some((first, end));
        if end - first > GRANULES_LIMIT {
            bits.fill(u64::MAX);
            return bits;
        }
        for granule in first..=end {
            let bit = bit_of(granule);
            bits[bit / 64] |= 1 << (bit % 64);
        }
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(targets: &[Target], value: u64) -> Vec<usize> {
        found_in(&Targets::new(targets), targets.len(), value)
    }

    fn found_in(arranged: &Targets, count: usize, value: u64) -> Vec<usize> {
        let (low, span) = arranged.bounds();
        let mut groups = Vec::new();
        if value.wrapping_sub(low) < span {
            arranged.find(value, |group| groups.push(group));
        }
        let all = 0..count;
        all.filter(|index| groups.contains(&arranged.group_of(*index)))
            .collect()
    }

    fn target(start: u64, len: u64) -> Target {
        Target {
            start,
            len,
            is_managed: false,
        }
    }

    #[test]
    fn interior_addresses_match_and_the_end_does_not() {
        let targets = [target(0x7000_0000, 256), target(0x7f00_0000_0000, 1)];
        assert_eq!(found(&targets, 0x6fff_ffff), []);
        assert_eq!(found(&targets, 0x7000_0000), [0]);
        assert_eq!(found(&targets, 0x7000_00ff), [0]);
        assert_eq!(found(&targets, 0x7000_0100), []);
        assert_eq!(found(&targets, 0x7f00_0000_0000), [1]);
    }

    #[test]
    fn a_handle_matches_its_value_alone() {
        let targets = [target(0x5500_1230, 0)];
        assert_eq!(found(&targets, 0x5500_1230), [0]);
        assert_eq!(found(&targets, 0x5500_1231), []);
    }

    #[test]
    fn no_targets_match_nothing() {
        assert_eq!(found(&[], 0), []);
        assert_eq!(found(&[], 7), []);
    }

    /// The same result as comparing with each target, also for nested, equal and deeply nested ones.
    #[test]
    fn agrees_with_the_definition() {
        let mut state = 7_u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let count = 1 + random(40);
            let targets: Vec<_> = (0..count)
                .map(|_| target(0x4000_0000 + random(64) * 8, random(3) * random(200)))
                .collect();
            let arranged = Targets::new(&targets);
            for value in 0x4000_0000 - 2..0x4000_0000 + 700 {
                let expected: Vec<_> = (0..targets.len())
                    .filter(|at| {
                        let Target { start, len, .. } = targets[*at];
                        value == start || (start..start + len).contains(&value)
                    })
                    .collect();
                let found = found_in(&arranged, targets.len(), value);
                assert_eq!(found, expected, "{targets:?} {value:#x}");
            }
        }
    }

    #[test]
    fn huge_targets_match() {
        let targets = [target(1 << 40, 1 << 46), target(1 << 41, 64)];
        assert_eq!(found(&targets, (1 << 45) + 12345), [0]);
        assert_eq!(found(&targets, (1 << 41) + 63), [0, 1]);
    }
}
