//! Slots: blocks below 256 KiB, by size class.

use crate::hash::FastMap;
use crate::random::Random;
use crate::shelf::Shelf;
use crate::size::{self, CLASSES, GRANULE, PAGE};
use crate::slab::{FrameId, WindowId};
use crate::streams::Freed;
use std::collections::BTreeSet;

/// Windows that a slot frame's slots are dealt to. The more, the fewer live blocks are in each, and the better they can be
/// packed onto few frames.
const WINDOWS: usize = 8;

/// A free slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRef {
    pub(crate) window: WindowId,
    pub(crate) slot: u16,
    /// The epoch of the stream, in whose list it is, in which it was freed.
    pub(crate) epoch: u64,
}

/// The free slots of one size class.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) shelf: Shelf<SlotRef>,
    /// Slot frames of which slots are in no window.
    pub(crate) homes: BTreeSet<FrameId>,
    /// Where the next search in them begins.
    pub(crate) next_home: FrameId,
}

#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) classes: Vec<Class>,
    /// Bytes of free slots in windows.
    pub(crate) free_bytes: u64,
    /// The frames that slots were dealt of, by the number of their home.
    pub(crate) homes: FastMap<FrameId>,
    last_home: u32,
}

impl Slots {
    pub(crate) fn new() -> Self {
        let class = |_| Class {
            shelf: Shelf::new(),
            homes: BTreeSet::new(),
            next_home: FrameId::MIN,
        };
        Self {
            classes: (0..CLASSES).map(class).collect(),
            free_bytes: 0,
            homes: FastMap::default(),
            last_home: 0,
        }
    }

    /// A number for the slots of a frame, which are dealt together.
    pub(crate) fn new_home(&mut self, frame: FrameId) -> u32 {
        self.last_home = self.last_home.wrapping_add(1);
        self.homes.insert(u64::from(self.last_home), frame);
        self.last_home
    }

    /// A random free slot that the stream may use, and whether other streams may use it too.
    pub(crate) fn take(
        &mut self,
        class: usize,
        stream: u64,
        random: &mut Random,
    ) -> Option<(SlotRef, bool)> {
        let shelf = &mut self.classes[class].shelf;
        let mut from = |stream: u64| {
            let list = shelf.find(stream)?;
            let count = list.len() as u32;
            (count > 0).then(|| list.swap_remove(random.below(count) as usize))
        };
        let taken = match from(stream) {
            Some(slot) => (slot, false),
            None => (from(Freed::CLEAN.stream)?, true),
        };
        self.free_bytes -= size::class_bytes(class);
        Some(taken)
    }

    pub(crate) fn put(&mut self, class: usize, window: WindowId, slot: u16, freed: Freed) {
        self.free_bytes += size::class_bytes(class);
        let epoch = freed.epoch;
        self.classes[class].shelf.list(freed.stream).push(SlotRef {
            window,
            slot,
            epoch,
        });
    }
}

/// Deals the slots of a frame at random. Slots smaller than a granule are dealt by the granule, so that a window has few
/// granules.
pub(crate) fn deal(class: usize, merge: bool, random: &mut Random) -> Vec<Box<[u16]>> {
    let bytes = size::class_bytes(class);
    let count = (PAGE / bytes) as u16;
    if !merge {
        return vec![(0..count).collect()];
    }
    let together = (GRANULE / bytes).max(1) as usize;
    let slots: Vec<u16> = (0..count).collect();
    let mut units: Vec<&[u16]> = slots.chunks(together).collect();
    for last in (1..units.len()).rev() {
        units.swap(last, random.below(last as u32 + 1) as usize);
    }
    let windows = WINDOWS.min(units.len());
    (0..windows)
        .map(|window| {
            units
                .iter()
                .skip(window)
                .step_by(windows)
                .copied()
                .flatten()
                .copied()
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_is_dealt_once() {
        let mut random = Random::new(7);
        for class in 0..CLASSES {
            for merge in [false, true] {
                let windows = deal(class, merge, &mut random);
                let mut all: Vec<u16> = windows
                    .iter()
                    .flat_map(|slots| slots.iter().copied())
                    .collect();
                all.sort_unstable();
                let count = (PAGE / size::class_bytes(class)) as u16;
                assert_eq!(all, (0..count).collect::<Vec<_>>());
                assert_eq!(windows.len(), if merge { 8 } else { 1 }, "class {class}");
            }
        }
    }
}
