//! How the program holds what a search found: whether the blocks of the heap that have an address are reachable.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::blocks::Blocks;
use super::memory::Memory;
use super::python::Python;
use super::rank::{Rank, Spot};
use super::reach::{Reach, Step, Way, Ways};
use super::read::{Part, Reader, holes_in, parts};
use super::scan::{Found, Holder, Item, Scan};
use super::survey::Survey;
use super::targets::Targets;
use super::workers::Workers;

/// How the program holds a target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Hold {
    /// Not at all.
    Nowhere,
    /// There.
    At(Found),
    /// In a block of the heap, which it reaches by the way with this index.
    By(usize),
    /// In a block of the heap that it cannot reach.
    InLost(Step),
}

impl Hold {
    fn at(found: Option<Found>) -> Self {
        found.map_or(Self::Nowhere, Self::At)
    }
}

/// What was found, if all of the process was searched.
pub(super) struct Search<'a> {
    pub(super) memory: &'a Memory,
    pub(super) workers: &'a Workers,
    pub(super) survey: &'a Survey,
    pub(super) scan: &'a Scan<'a>,
    pub(super) targets: &'a Targets,
    pub(super) python: Option<&'a Python>,
    pub(super) holes: &'a [Range<u64>],
    pub(super) reader: &'a Reader<'a>,
}

/// How the program holds each group of targets, without a look at whether blocks of the heap are reachable.
pub(super) fn by_places(scan: &Scan<'_>, targets: &Targets) -> Vec<Hold> {
    let groups = 0..targets.group_count();
    groups.map(|group| Hold::at(scan.best(group))).collect()
}

impl Search<'_> {
    /// How the program holds each group of targets. `items` is what was searched. The same as [`by_places`] where no target is in
    /// the heap alone, where the heap cannot be read as blocks, and where the time is over.
    pub(super) fn resolve(&self, items: &[Item]) -> (Vec<Hold>, Vec<Way>) {
        let mut holds = by_places(self.scan, self.targets);
        let is_in_heap = |hold: &Hold| match hold {
            Hold::At(found) => found.spot.rank() == Rank::Heap,
            _ => false,
        };
        if !holds.iter().any(is_in_heap) {
            return (holds, Vec::new());
        }
        let (Some(places), Some(blocks)) = (
            self.scan.in_heap(),
            self.survey.blocks(self.memory, self.holes),
        ) else {
            return (holds, Vec::new());
        };
        let Some(reach) = self.reach(&blocks, items) else {
            return (holds, Vec::new());
        };
        let mut ways = Ways::new(&reach);
        for (group, hold) in holds.iter_mut().enumerate() {
            let Hold::At(found) = hold else {
                continue;
            };
            if found.spot.rank() == Rank::Heap && !found.by_managed {
                let first = places.partition_point(|(of, _)| (*of as usize) < group);
                let addresses = places[first..].iter();
                let addresses = addresses.take_while(|(of, _)| *of as usize == group);
                let addresses = addresses.map(|(_, address)| *address);
                *hold = self.in_blocks(&mut ways, &reach, group, addresses);
            }
        }
        self.lose_managed(&mut holds);
        (holds, ways.list)
    }

    /// How the program holds a group that was found at these addresses of the heap.
    fn in_blocks(
        &self,
        ways: &mut Ways<'_>,
        reach: &Reach<'_>,
        group: usize,
        addresses: impl Iterator<Item = u64>,
    ) -> Hold {
        let mut best: Option<usize> = None;
        let mut lost = None;
        for address in addresses {
            match reach.block_at(address) {
                // Memory of the heap that is not a block in use, or of another allocator.
                None => {
                    return Hold::At(Found {
                        spot: Spot::new(Rank::Heap, address),
                        by_managed: false,
                    });
                }
                Some((block, true)) => {
                    let way = ways.to(block);
                    let root = |way: usize| ways.list[way].root;
                    if best.is_none_or(|best| root(way) < root(best)) {
                        best = Some(way);
                    }
                }
                Some((block, false)) => {
                    lost.get_or_insert_with(|| reach.step(block));
                }
            }
        }
        match (best, self.scan.beside_heap(group), lost) {
            (Some(way), ..) => Hold::By(way),
            (None, Some(found), _) => Hold::At(found),
            (None, None, Some(step)) => Hold::InLost(step),
            (None, None, None) => Hold::at(self.scan.best(group)),
        }
    }

    /// What is only in managed memory that is lost itself is lost with it.
    fn lose_managed(&self, holds: &mut [Hold]) {
        let mut lost: HashMap<Spot, Step> = HashMap::new();
        let mut kept: HashSet<Spot> = HashSet::new();
        for group in self.targets.managed().keys() {
            let Some(spot) = self.scan.best(*group).map(|found| found.spot) else {
                continue;
            };
            match &holds[*group] {
                Hold::InLost(step) => {
                    lost.insert(spot, *step);
                }
                Hold::Nowhere | Hold::At(_) | Hold::By(_) => {
                    kept.insert(spot);
                }
            }
        }
        for hold in holds {
            if let Hold::At(found) = hold
                && found.by_managed
                && !kept.contains(&found.spot)
                && let Some(step) = lost.get(&found.spot)
            {
                *hold = Hold::InLost(*step);
            }
        }
    }

    /// Which blocks the program reaches. `None` where the time was over before that was known.
    fn reach<'b>(&'b self, blocks: &'b Blocks, items: &[Item]) -> Option<Reach<'b>> {
        let modules = self.survey.modules.iter();
        let tables = modules.flat_map(|module| module.data.clone());
        let mut reach = Reach::new(self.memory, blocks, self.python, tables.collect());
        for (thread, registers) in self.survey.registers() {
            for value in registers {
                reach.root(*value, Spot::new(Rank::Register, thread as u64));
            }
        }
        let mut roots = self.roots(blocks, items);
        let managed = self.targets.managed().iter();
        let found = managed.filter(|(group, _)| self.scan.best(**group).is_some());
        for (_, addresses) in found {
            // What was not found is not read: that would move it to the host.
            let parts = parts(addresses.clone());
            roots.extend(parts.map(|addresses| (part(addresses, false, &[]), Rank::Mapping)));
        }
        let complete = self.workers.run(roots.len(), &|root| {
            let (part, rank) = &roots[root];
            let exact = self.survey.is_c_library(part.addresses.start);
            reach.roots(self.reader, part, *rank, exact);
        });
        let complete = complete && reach.follow(self.reader);
        (complete && !self.reader.is_over()).then_some(reach)
    }

    /// The memory that is not blocks: all that was searched, and the driver's.
    fn roots(&self, blocks: &Blocks, items: &[Item]) -> Vec<(Part, Rank)> {
        let mut roots = Vec::new();
        for item in items {
            let Holder::Own(rank) = item.holder else {
                continue;
            };
            let addresses = item.part.addresses.clone();
            let outside = match rank {
                Rank::Heap => outside(blocks, addresses),
                _ => vec![addresses],
            };
            let private = item.part.private;
            roots.extend(
                outside
                    .into_iter()
                    .map(|it| (part(it, private, self.holes), rank)),
            );
        }
        let driver = self.survey.driver_memory();
        roots.extend(
            driver
                .flat_map(parts)
                .map(|it| (part(it, true, &[]), Rank::Mapping)),
        );
        roots
    }
}

fn part(addresses: Range<u64>, private: bool, holes: &[Range<u64>]) -> Part {
    Part {
        holes: holes_in(holes, &addresses),
        addresses,
        private,
    }
}

/// The parts of a range that are in no heap.
fn outside(blocks: &Blocks, addresses: Range<u64>) -> Vec<Range<u64>> {
    let (mut parts, mut at) = (Vec::new(), addresses.start);
    for heap in blocks.heaps() {
        if heap.end <= at || heap.start >= addresses.end {
            continue;
        }
        if at < heap.start {
            parts.push(at..heap.start);
        }
        at = heap.end;
    }
    if at < addresses.end {
        parts.push(at..addresses.end);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::{Blocks, outside};

    #[test]
    fn what_is_outside_of_heaps() {
        let mut blocks = Blocks::default();
        for heap in [0x2000..0x3000, 0x5000..0x6000] {
            assert!(blocks.add(heap, &[]));
        }
        for (addresses, expected) in [
            (0x1000..0x2000, &[(0x1000, 0x2000)][..]),
            (
                0x1000..0x7000,
                &[(0x1000, 0x2000), (0x3000, 0x5000), (0x6000, 0x7000)],
            ),
            (0x2800..0x5800, &[(0x3000, 0x5000)]),
            (0x2000..0x3000, &[]),
            (0x5800..0x6800, &[(0x6000, 0x6800)]),
        ] {
            let found = outside(&blocks, addresses).into_iter();
            let found: Vec<_> = found.map(|part| (part.start, part.end)).collect();
            assert_eq!(found, expected);
        }
    }
}
