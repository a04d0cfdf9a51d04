//! Frames: physical pages that windows share.

use crate::handles::Handle;
use crate::index::Index;
use crate::mask;
use crate::random::Random;
use crate::size::GRANULES;
use crate::slab::{FrameId, OfFrame, Slab, WindowId};

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
    /// Whether it has windows of other blocks than the slots that were dealt of it. Without, no slot is blocked.
    pub(crate) mixed: bool,
    /// When it last had a block, and whether it was noted that it has none.
    pub(crate) idle_since: u64,
    pub(crate) noted_idle: bool,
    /// Windows with a range, or that could not be unmapped.
    pub(crate) range_windows: u32,
    /// Windows that are mapped and have no block.
    pub(crate) vacant: u32,
    /// Its lengths and positions in the indexes.
    indexed: Option<([u8; 4], [u32; 4])>,
}

impl Frame {
    /// Whether no block is in it.
    pub(crate) fn is_idle(&self) -> bool {
        self.live_slots == 0 && self.range_windows == 0
    }
}

/// The slots of a frame that are in no window.
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
    /// The same, where there is no page in front of the block.
    Front,
}

/// Frames, with an index of those that a block can be placed in: not slot frames, whose slots would be blocked.
#[derive(Debug)]
pub(crate) struct Frames {
    slab: Slab<OfFrame, Frame>,
    /// By free granules at the front, at the end, by the longest run of them, and by the same where a window is vacant.
    index: [Index; 4],
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self {
            slab: Slab::new(),
            index: std::array::from_fn(|_| Index::new()),
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
            noted_idle: false,
            range_windows: 0,
            vacant: 0,
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
        let [front, end, longest, _] = &self.index;
        match place {
            Place::Anywhere => self.position(longest.best(granules)?.1, granules, random),
            Place::Front => front.best(granules).map(|(_, id)| (id, 0)),
            Place::FrontOrEnd => {
                let at_end = |id: FrameId| (id, GRANULES - granules);
                match (front.best(granules), end.best(granules)) {
                    (Some(a), Some(b)) if a.0 < b.0 || (a.0 == b.0 && random.coin()) => {
                        Some((a.1, 0))
                    }
                    (_, Some((_, id))) => Some(at_end(id)),
                    (Some((_, id)), None) => Some((id, 0)),
                    (None, None) => None,
                }
            }
        }
    }

    /// The same for a block of less than a page, in a frame with a vacant window.
    pub(crate) fn place_in_vacant(
        &self,
        granules: u32,
        random: &mut Random,
    ) -> Option<(FrameId, u32)> {
        self.position(self.index[3].best(granules)?.1, granules, random)
    }

    fn position(&self, id: FrameId, granules: u32, random: &mut Random) -> Option<(FrameId, u32)> {
        Some((id, mask::position(self.slab[id].used, granules, random)?))
    }

    /// Brings the indexes up to date after a change of a frame.
    pub(crate) fn reindex(&mut self, id: FrameId) {
        let frame = &self.slab[id];
        // Pins keep windows on the frame, and others off nothing but their granules.
        let open = frame.home.is_none() && frame.slot_windows == 0;
        let used = frame.used;
        let lengths = (open && used != u128::MAX).then(|| {
            let longest = mask::longest_free(used) as u8;
            let vacant = if frame.vacant > 0 { longest } else { 0 };
            [
                mask::free_front(used) as u8,
                mask::free_end(used) as u8,
                longest,
                vacant,
            ]
        });
        if frame.indexed.map(|(lengths, _)| lengths) == lengths {
            return;
        }
        self.unindex(id);
        if let Some(lengths) = lengths {
            let mut at = [0; 4];
            for which in 0..4 {
                // A run of no granules is not a place.
                if lengths[which] > 0 {
                    at[which] = self.index[which].insert(lengths[which], id);
                }
            }
            self.slab[id].indexed = Some((lengths, at));
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
        let Some((lengths, at)) = self.slab[id].indexed.take() else {
            return;
        };
        for which in 0..4 {
            if lengths[which] > 0
                && let Some(moved) = self.index[which].remove(lengths[which], at[which])
                && let Some((_, positions)) = &mut self.slab[moved].indexed
            {
                positions[which] = at[which];
            }
        }
    }
}

impl std::ops::Index<FrameId> for Frames {
    type Output = Frame;

    #[inline]
    fn index(&self, id: FrameId) -> &Frame {
        &self.slab[id]
    }
}

impl std::ops::IndexMut<FrameId> for Frames {
    #[inline]
    fn index_mut(&mut self, id: FrameId) -> &mut Frame {
        &mut self.slab[id]
    }
}
