//! Blocks whose physical memory must stay behind their addresses.

use crate::driver::Driver;
use crate::size::{PAGE, class_bytes};
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
        let Some(window) = self.slot_window(address) else {
            return false;
        };
        *self.slot_pins.entry(address).or_default() += 1;
        self.pin_window(window);
        true
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
        let Some(pins) = self.slot_pins.get_mut(&address) else {
            return false;
        };
        *pins -= 1;
        if *pins == 0 {
            self.slot_pins.remove(&address);
        }
        if let Some(&window) = self.pages.get(&page_of(address)) {
            self.unpin_window(window);
        }
        true
    }

    /// The block at the address is freed: its pins end with it.
    #[inline]
    pub(crate) fn unpin_freed(&mut self, address: u64) {
        while self.is_pinned(address) {
            self.unpin(address);
        }
    }

    /// Whether the block at the address has a pin of its own.
    #[inline]
    pub(crate) fn is_pinned(&self, address: u64) -> bool {
        match self.ranges.at(address) {
            Some(id) => self.ranges[id].pins > 0,
            None => !self.slot_pins.is_empty() && self.slot_pins.contains_key(&address),
        }
    }

    /// What the live block at the address occupies.
    pub(crate) fn bytes_at(&self, address: u64) -> Option<u64> {
        if let Some(id) = self.ranges.at(address) {
            let range = &self.ranges[id];
            return range.cached.is_none().then_some(range.bytes);
        }
        let slots = self.windows[self.slot_window(address)?].slots()?;
        Some(class_bytes(slots.class))
    }

    fn pin_window(&mut self, id: WindowId) {
        let window = &mut self.windows[id];
        window.pins += 1;
        if window.pins == 1 {
            self.frames[window.frame].pins += 1;
        }
    }

    fn unpin_window(&mut self, id: WindowId) {
        let window = &mut self.windows[id];
        window.pins -= 1;
        if window.pins == 0 {
            self.frames[window.frame].pins -= 1;
        }
    }

    /// The window of the live slot that begins at the address.
    fn slot_window(&self, address: u64) -> Option<WindowId> {
        let id = *self.pages.get(&page_of(address))?;
        let slots = self.windows[id].slots()?;
        let bytes = class_bytes(slots.class);
        let offset = address - page_of(address);
        let live = offset.is_multiple_of(bytes) && slots.live.has((offset / bytes) as u16);
        live.then_some(id)
    }
}

fn page_of(address: u64) -> u64 {
    address & !(PAGE - 1)
}
