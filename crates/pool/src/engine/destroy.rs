//! The end of a pool.

use crate::driver::Driver;
use crate::size::{PAGE, class_bytes};
use crate::state::{Result, State, refused};
use crate::windows::{Content, Stuck};

impl<D: Driver> State<D> {
    /// Unmaps and releases everything, live blocks too. What is refused stays, and is tried again by the next call.
    ///
    /// # Errors
    ///
    /// The first.
    pub(crate) fn destroy(&mut self) -> Result<(), D> {
        let mut result = Ok(());
        // A window that is stuck may be unmapped; a range is unmapped whole, so its window must be mapped.
        let _ = self.retry_stuck();
        self.streams.finish_all();
        for id in self.ranges.keys() {
            let range = &self.ranges[id];
            if range
                .window
                .is_some_and(|window| self.windows[window].stuck == Some(Stuck::Unmapped))
            {
                let windows = self.stuck.len();
                result = result.and(Err(crate::error::PoolError::Stuck { windows }));
                continue;
            }
            let (live, bytes) = (range.cached.is_none(), range.bytes);
            match self.dismantle(id) {
                Ok(()) => self.used -= if live { bytes } else { 0 },
                Err(error) => result = result.and(Err(error)),
            }
        }
        result = result.and(self.drop_windows());
        self.retry_kept_mappings();
        if let Some(kept) = self.kept_mappings.first() {
            let (at, bytes) = kept.mapped;
            result = result.and(self.driver.unmap(at, bytes).map_err(refused("unmap")));
            self.retry_kept_mappings();
        }
        for large in [false, true] {
            while let Some(handle) = self.handles.take(large) {
                self.handles.release(&self.driver, handle);
            }
        }
        result = result.and(self.handles.retry(&self.driver).1);
        self.ranges.drop_empty_lists();
        let pages = &self.pages;
        self.slot_pins
            .retain(|address, _| pages.contains_key(&(address & !(PAGE - 1))));
        result.and(
            self.addresses
                .unreserve_all(&self.driver)
                .map_err(refused("unreserve")),
        )
    }

    fn drop_windows(&mut self) -> Result<(), D> {
        let mut result = Ok(());
        for id in self.windows.keys() {
            let window = &self.windows[id];
            let live = match &window.content {
                Content::Slots(slots) => u64::from(slots.live_count) * class_bytes(slots.class),
                Content::Vacant => 0,
                Content::Range(_) | Content::Kept => continue,
            };
            if window.stuck != Some(Stuck::Unmapped)
                && let Err(error) = self.driver.unmap(window.page, PAGE)
            {
                result = result.and(Err(refused("unmap")(error)));
                continue;
            }
            self.used -= live;
            let page = self.windows[id].page;
            self.detach(id);
            self.addresses.free(page, 1);
        }
        for class in 0..self.slots.classes.len() {
            let windows = &self.windows;
            let removed = self.slots.classes[class].shelf.extract(|_, slot| {
                windows
                    .get(slot.window)
                    .is_none_or(|window| window.slots().is_none())
            });
            self.slots.free_bytes -= removed.len() as u64 * class_bytes(class);
        }
        // Slot frames without a window.
        for id in std::mem::take(&mut self.idle_frames) {
            if self
                .frames
                .get(id)
                .is_some_and(|frame| frame.windows.is_empty())
            {
                self.drop_frame_if_unused(id);
            } else {
                self.idle_frames.insert(id);
            }
        }
        result
    }
}
