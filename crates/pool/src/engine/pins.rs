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
            if range.pins == 1
                && let Some(window) = range.window
            {
                self.pin_window(window);
            }
            return true;
        }
        let Some(window) = self.slot_window(address) else {
            return false;
        };
        let pins = self.slot_pins.entry(address).or_default();
        *pins += 1;
        if *pins == 1 {
            self.pin_window(window);
        }
        true
    }

    /// Removes one pin. False: the block was not pinned.
    pub(crate) fn unpin(&mut self, address: u64) -> bool {
        let pins = match self.ranges.at(address) {
            Some(id) => Some(&mut self.ranges[id].pins),
            None => self.slot_pins.get_mut(&address),
        };
        match pins {
            None | Some(0) => return false,
            Some(1) => self.unpin_freed(address),
            Some(pins) => *pins -= 1,
        }
        true
    }

    /// The block at the address is freed: its pins end with it, however many there are.
    #[inline]
    pub(crate) fn unpin_freed(&mut self, address: u64) {
        let (pins, window) = match self.ranges.at(address) {
            Some(id) => {
                let range = &mut self.ranges[id];
                (std::mem::take(&mut range.pins), range.window)
            }
            None => {
                let window = self.pages.get(&page_of(address)).copied();
                (self.slot_pins.remove(&address).unwrap_or(0), window)
            }
        };
        if pins > 0
            && let Some(window) = window
        {
            self.unpin_window(window);
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

    /// A block of the window got its first pin.
    fn pin_window(&mut self, id: WindowId) {
        let window = &mut self.windows[id];
        window.pins += 1;
        if window.pins == 1 {
            self.frames[window.frame].pins += 1;
        }
    }

    /// A block of the window lost its last pin.
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

#[cfg(test)]
mod tests {
    use crate::engine::test_driver::Numbers;
    use crate::settings::Settings;
    use crate::size::rounded;
    use crate::state::State;

    /// More pins than a program sets one by one, in a slot, in a range that shares a page, and in one that does not.
    #[test]
    fn pins_of_any_number_end_at_once() {
        for (bytes, pages) in [(1000, 1), (300 << 10, 1), (5 << 20, 3), (4 << 20, 2)] {
            let mut state = State::new(Numbers::default(), Settings::default());
            let bytes = rounded(bytes);
            let is_slot = bytes < 1 << 18;
            let address = match is_slot {
                true => state.allocate_slot(0, bytes).unwrap(),
                false => state.allocate_range(0, bytes).unwrap(),
            };
            assert!(!state.unpin(address));
            assert!(state.pin(address) && state.pin(address));
            assert_eq!(state.usage().pinned_pages, pages, "{bytes} bytes");
            match state.ranges.at(address) {
                Some(id) => state.ranges[id].pins += 1 << 40,
                None => *state.slot_pins.get_mut(&address).unwrap() += 1 << 40,
            }
            assert!(state.unpin(address));
            assert_eq!(state.usage().pinned_pages, pages, "{bytes} bytes");
            match is_slot {
                true => state.free_slot(&0, address, bytes),
                false => state.free_range(&0, address, bytes),
            }
            assert_eq!(state.usage().pinned_pages, 0, "{bytes} bytes");
            assert!(!state.unpin(address) && !state.pin(address));
        }
    }

    /// As many as one counter of 32 bits holds, and one more.
    #[test]
    fn pins_do_not_wrap_around() {
        let mut state = State::new(Numbers::default(), Settings::default());
        for bytes in [1000, 300 << 10] {
            let bytes = rounded(bytes);
            let address = match bytes < 1 << 18 {
                true => state.allocate_slot(0, bytes).unwrap(),
                false => state.allocate_range(0, bytes).unwrap(),
            };
            assert!(state.pin(address));
            match state.ranges.at(address) {
                Some(id) => state.ranges[id].pins = u32::MAX.into(),
                None => *state.slot_pins.get_mut(&address).unwrap() = u32::MAX.into(),
            }
            assert!(state.pin(address) && state.is_pinned(address));
            assert!(state.unpin(address) && state.is_pinned(address));
        }
        assert_eq!(state.usage().pinned_pages, 2);
    }
}
