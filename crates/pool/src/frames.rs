//! Frames: physical pages that windows share.

use crate::handles::Handle;
use crate::mask;
use crate::random::Random;
use crate::size::GRANULES;
use crate::slab::{FrameId, OfFrame, Slab, WindowId};
use std::collections::BTreeSet;

/// One handle of 2 MiB and what is in use of it.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) handle: Handle,
    /// The union of its windows' masks.
    pub(crate) used: u128,
    pub(crate) windows: Vec<WindowId>,
    /// Windows that must stay on this frame.
    pub(crate) pins: u32,
    /// The slots that were dealt when the frame became a slot frame.
    pub(crate) home: Option<Home>,
    /// Slots in use in its windows.
    pub(crate) live_slots: u32,
    /// Windows of slots.
    pub(crate) slot_windows: u32,
    /// Whether windows of slots share it with windows that the slots were not dealt together with.
    pub(crate) mixed: bool,
    /// When it last had a slot in use.
    pub(crate) idle_since: u64,
    /// Its keys in the index of free runs.
    indexed: Option<[u8; 3]>,
}

/// The slots of a frame that are in no window yet.
#[derive(Debug)]
pub(crate) struct Home {
    /// Unique: windows of slots that were dealt together have slots without a common byte.
    pub(crate) id: u32,
    pub(crate) class: usize,
    pub(crate) waiting: Vec<Box<[u16]>>,
}

/// Where a block's granules may be in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A block of less than a page.
    Anywhere,
    /// The remainder of a longer block, at the front of its last page or at the end of its first.
    FrontOrEnd,
}

/// Frames, with an index of those that a block can be placed in: not slot frames, whose slots would be blocked.
#[derive(Debug)]
pub(crate) struct Frames {
    slab: Slab<OfFrame, Frame>,
    /// By free granules at the front, at the end, and by the longest run of them.
    index: [BTreeSet<(u8, FrameId)>; 3],
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self {
            slab: Slab::new(),
            index: Default::default(),
        }
    }

    pub(crate) fn insert(&mut self, handle: Handle) -> FrameId {
        self.slab.insert(Frame {
            handle,
            used: 0,
            windows: Vec::new(),
            pins: 0,
            home: None,
            live_slots: 0,
            slot_windows: 0,
            mixed: false,
            idle_since: 0,
            indexed: None,
        })
    }

    pub(crate) fn remove(&mut self, id: FrameId) -> Frame {
        self.unindex(id);
        self.slab.remove(id)
    }

    /// Finds the place that leaves the least: the frame and the first granule.
    pub(crate) fn place(
        &self,
        place: Place,
        granules: u32,
        random: &mut Random,
    ) -> Option<(FrameId, u32)> {
        let best = |which: usize| {
            self.index[which]
                .range((granules as u8, FrameId::MIN)..)
                .next()
                .copied()
        };
        match place {
            Place::Anywhere => {
                let (_, id) = best(2)?;
                let at = mask::position(self.slab[id].used, granules, random)?;
                Some((id, at))
            }
            Place::FrontOrEnd => {
                let end = |(_, id): (u8, FrameId)| (id, GRANULES - granules);
                match (best(0), best(1)) {
                    (Some(a), Some(b)) if a.0 < b.0 || (a.0 == b.0 && random.coin()) => {
                        Some((a.1, 0))
                    }
                    (_, Some(b)) => Some(end(b)),
                    (Some(a), None) => Some((a.1, 0)),
                    (None, None) => None,
                }
            }
        }
    }

    /// Brings the index up to date after a change of a frame.
    pub(crate) fn reindex(&mut self, id: FrameId) {
        let frame = &self.slab[id];
        let open = frame.home.is_none() && frame.slot_windows == 0 && frame.pins == 0;
        let used = frame.used;
        let keys = (open && used != u128::MAX).then(|| {
            [
                mask::free_front(used) as u8,
                mask::free_end(used) as u8,
                mask::longest_free(used) as u8,
            ]
        });
        if frame.indexed != keys {
            self.unindex(id);
            if let Some(keys) = keys {
                for (set, key) in self.index.iter_mut().zip(keys) {
                    set.insert((key, id));
                }
            }
            self.slab[id].indexed = keys;
        }
    }

    pub(crate) fn get(&self, id: FrameId) -> Option<&Frame> {
        self.slab.get(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FrameId, &Frame)> {
        self.slab.iter()
    }

    fn unindex(&mut self, id: FrameId) {
        if let Some(keys) = self.slab[id].indexed.take() {
            for (set, key) in self.index.iter_mut().zip(keys) {
                set.remove(&(key, id));
            }
        }
    }
}

impl std::ops::Index<FrameId> for Frames {
    type Output = Frame;

    fn index(&self, id: FrameId) -> &Frame {
        &self.slab[id]
    }
}

impl std::ops::IndexMut<FrameId> for Frames {
    fn index_mut(&mut self, id: FrameId) -> &mut Frame {
        &mut self.slab[id]
    }
}
