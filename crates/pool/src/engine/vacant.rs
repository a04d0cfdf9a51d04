//! Vacant windows: mapped pages without a block, for blocks of 256 KiB to 2 MiB of any size.
//!
//! A range of less than a page is one window. When it is freed and its stream is done, the window stays mapped onto its
//! frame, and the next range that is placed in that frame uses it: no call of the driver, whatever the sizes.

use crate::driver::Driver;
use crate::mask;
use crate::ranges::{Range, Room};
use crate::size::{GRANULE, PAGE};
use crate::slab::RangeId;
use crate::state::State;
use crate::windows::Content;

/// Vacant windows of one frame.
const VACANT: u32 = 8;

impl<D: Driver> State<D> {
    /// Allocates a range of less than a page through a vacant window.
    pub(crate) fn take_vacant(&mut self, bytes: u64) -> Option<u64> {
        if bytes >= PAGE {
            return None;
        }
        let granules = (bytes / GRANULE) as u32;
        let (frame_id, start) = self.frames.place_in_vacant(granules, &mut self.random)?;
        let frame = &mut self.frames[frame_id];
        let is_vacant = |id: &_| matches!(self.windows[*id].content, Content::Vacant);
        let id = frame.windows.iter().copied().find(is_vacant)?;
        let window = &mut self.windows[id];
        window.mask = mask::span(start, granules);
        frame.used |= window.mask;
        frame.vacant -= 1;
        frame.range_windows += 1;
        let address = window.page + u64::from(start) * GRANULE;
        let range = self.ranges.insert(Range {
            address,
            bytes,
            base: window.page,
            pages: 1,
            room: Room {
                start: window.page,
                pages: 1,
            },
            handles: Vec::new(),
            window: Some(id),
            pins: 0,
            cached: None,
        });
        window.content = Content::Range(range);
        self.frames.reindex(frame_id);
        self.used += bytes;
        Some(address)
    }

    /// Makes the windows of cached ranges of less than a page vacant, where their streams are done.
    pub(crate) fn vacate_all(&mut self) {
        let done: Vec<RangeId> = self
            .ranges
            .oldest_first()
            .filter(|(_, range, cached)| {
                range.bytes < PAGE && range.pins == 0 && self.streams.is_done(cached.freed)
            })
            .map(|(id, ..)| id)
            .collect();
        for id in done {
            self.vacate(id);
        }
    }

    /// The window of one such range. It stays in the cache where no block could be placed.
    fn vacate(&mut self, id: RangeId) {
        let Some(window_id) = self.ranges[id].window else {
            return;
        };
        let frame_id = self.windows[window_id].frame;
        let frame = &mut self.frames[frame_id];
        if frame.vacant >= VACANT || frame.slot_windows > 0 || frame.home.is_some() {
            return;
        }
        frame.vacant += 1;
        frame.range_windows -= 1;
        let window = &mut self.windows[window_id];
        window.content = Content::Vacant;
        window.mask = 0;
        self.ranges.uncache(id);
        self.ranges.remove(id);
        self.update_idle(frame_id);
        self.granules_freed(frame_id);
    }
}
