//! Blocks whose physical memory must stay behind their addresses.

use crate::driver::Driver;
use crate::size::PAGE;
use crate::slab::WindowId;
use crate::state::State;

impl<D: Driver> State<D> {
    /// Pins the live block at an address. False: there is none.
    pub(crate) fn pin(&mut self, address: u64) -> bool {
        if let Some(id) = self.ranges.at(address) {
            let range = &mut self.ranges[id];
            if range.cached.is_some() {
                return false;
            }
            range.pins += 1;
            if let Some(window) = range.window {
                self.pin_window(window);
            }
            return true;
        }
        match self.slot_window(address) {
            Some((id, true)) => {
                self.pin_window(id);
                true
            }
            _ => false,
        }
    }

    /// Removes one pin. False: the block was not pinned.
    pub(crate) fn unpin(&mut self, address: u64) -> bool {
        if let Some(id) = self.ranges.at(address) {
            let range = &mut self.ranges[id];
            if range.pins == 0 {
                return false;
            }
            range.pins -= 1;
            if let Some(window) = range.window {
                self.unpin_window(window);
            }
            return true;
        }
        match self.slot_window(address) {
            Some((id, _)) if self.windows[id].pins > 0 => {
                self.unpin_window(id);
                true
            }
            _ => false,
        }
    }

    fn pin_window(&mut self, id: WindowId) {
        let window = &mut self.windows[id];
        window.pins += 1;
        if window.pins == 1 {
            let frame = window.frame;
            self.frames[frame].pins += 1;
            self.frames.reindex(frame);
        }
    }

    fn unpin_window(&mut self, id: WindowId) {
        let window = &mut self.windows[id];
        window.pins -= 1;
        if window.pins == 0 {
            let frame = window.frame;
            self.frames[frame].pins -= 1;
            self.frames.reindex(frame);
        }
    }

    /// The window of slots that an address is in, and whether a live slot begins there.
    fn slot_window(&self, address: u64) -> Option<(WindowId, bool)> {
        let page = address & !(PAGE - 1);
        let id = *self.pages.get(&page)?;
        let slots = self.windows[id].slots()?;
        let bytes = crate::size::class_bytes(slots.class);
        let offset = address - page;
        let live = offset.is_multiple_of(bytes) && slots.live.has((offset / bytes) as u16);
        Some((id, live))
    }
}
