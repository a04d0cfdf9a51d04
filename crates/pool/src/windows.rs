//! Windows: pages of addresses, each mapped onto one frame.

use crate::bits::Bits;
use crate::slab::{FrameId, RangeId};

/// One page of addresses. An offset in it is the same offset in its frame.
#[derive(Debug)]
pub(crate) struct Window {
    /// Its address.
    pub(crate) page: u64,
    pub(crate) frame: FrameId,
    /// The granules in use through it: of live blocks, and of freed ones that their stream may still use.
    pub(crate) mask: u128,
    pub(crate) content: Content,
    /// Its blocks that are pinned.
    pub(crate) pins: u32,
    pub(crate) stuck: Option<Stuck>,
}

/// What is seen through a window.
#[derive(Debug)]
pub(crate) enum Content {
    /// The remainder of a range, or a whole one.
    Range(RangeId),
    Slots(SlotWindow),
    /// No block. It stays mapped for the next one.
    Vacant,
    /// No block: unmapping it was refused.
    Kept,
}

/// What the driver refused for a window with live blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// It is not mapped.
    Unmapped,
    /// It is mapped, without access.
    NoAccess,
}

/// The slots of a window.
#[derive(Debug)]
pub(crate) struct SlotWindow {
    /// The frame's home that they were dealt of.
    pub(crate) home: u32,
    pub(crate) class: usize,
    /// Their numbers: a slot's offset is its number times its size.
    pub(crate) slots: Box<[u16]>,
    /// Slots in use.
    pub(crate) live: Bits,
    pub(crate) live_count: u32,
    /// Slots in use, and free ones that their stream may still use.
    pub(crate) busy: Bits,
    /// Free slots in no list: another window uses their granules of the frame.
    pub(crate) blocked: Vec<u16>,
}

impl Window {
    pub(crate) fn slots(&self) -> Option<&SlotWindow> {
        match &self.content {
            Content::Slots(slots) => Some(slots),
            _ => None,
        }
    }

    pub(crate) fn slots_mut(&mut self) -> Option<&mut SlotWindow> {
        match &mut self.content {
            Content::Slots(slots) => Some(slots),
            _ => None,
        }
    }

    /// Whether the blocks of both have no common byte wherever they are: they are slots that were dealt together.
    pub(crate) fn dealt_with(&self, other: &Self) -> bool {
        match (self.slots(), other.slots()) {
            (Some(one), Some(two)) => one.home == two.home,
            _ => false,
        }
    }
}
