//! Physical memory for a block: idle memory first, then more.

use crate::driver::Driver;
use crate::error::PoolError;
use crate::frames::Place;
use crate::handles::Handle;
use crate::mask;
use crate::size::{GRANULES, LARGE_PAGES, PAGE};
use crate::slab::FrameId;
use crate::state::{Result, State, refused};

impl<D: Driver> State<D> {
    /// Handles of this many pages in all, large ones where they fit.
    ///
    /// # Errors
    ///
    /// Nothing that was created for it stays.
    pub(crate) fn acquire(&mut self, pages: u64) -> Result<Vec<Handle>, D> {
        let mut missing = Missing {
            large: pages / LARGE_PAGES,
            small: pages % LARGE_PAGES,
        };
        let mut handles = Vec::new();
        self.take_idle(&mut missing, &mut handles);
        if missing.pages() > 0 {
            self.make_idle(missing.pages());
            self.take_idle(&mut missing, &mut handles);
        }
        let created = match self.check_room(missing.pages()) {
            Ok(()) => self.create_missing(missing, &mut handles),
            Err(error) => Err(error),
        };
        match created {
            Ok(()) => Ok(handles),
            Err(error) => {
                for handle in handles {
                    self.handles.release(&self.driver, handle);
                }
                Err(error)
            }
        }
    }

    /// Fails where there is no room for this many pages more, before any is created. What no block uses has been released
    /// then.
    fn check_room(&mut self, pages: u64) -> Result<(), D> {
        // Few pages are created in no time, and asking costs a call.
        if pages <= LARGE_PAGES || self.has_room(pages).is_ok() {
            return Ok(());
        }
        self.release_all_idle();
        self.has_room(pages)
    }

    fn has_room(&self, pages: u64) -> Result<(), D> {
        // Idle handles are released for what is created.
        let more = pages.saturating_sub(self.handles.idle_pages()) * PAGE;
        let (held, limit) = (self.handles.held(), self.settings.limit);
        if held.saturating_add(more) > limit {
            return Err(PoolError::Limit { held, limit });
        }
        match self.driver.require_free(more) {
            Err(error) if D::is_out_of_memory(&error) => Err(refused("create")(error)),
            // Not known.
            _ => Ok(()),
        }
    }

    /// One page.
    pub(crate) fn acquire_page(&mut self) -> Result<Handle, D> {
        if let Some(handle) = self.handles.take(false) {
            return Ok(handle);
        }
        self.make_idle(1);
        match self.handles.take(false) {
            Some(handle) => Ok(handle),
            None => self.create_small(),
        }
    }

    /// A frame with a run of free granules at a permitted position, and the position.
    pub(crate) fn acquire_granules(
        &mut self,
        place: Place,
        granules: u32,
    ) -> Result<(FrameId, u32), D> {
        if let Some(spot) = self.frames.place(place, granules, &mut self.random) {
            return Ok(spot);
        }
        if self.handles.idle_pages() == 0 {
            self.harvest_for(|state| {
                state.handles.idle_pages() > 0
                    || state
                        .frames
                        .place(place, granules, &mut state.random)
                        .is_some()
            });
            if let Some(spot) = self.frames.place(place, granules, &mut self.random) {
                return Ok(spot);
            }
        }
        let handle = self.acquire_page()?;
        let id = self.frames.insert(handle);
        let start = match place {
            Place::Anywhere => mask::position(0, granules, &mut self.random).unwrap_or(0),
            // At random: were it always the front, then freeing every other block would leave only fronts.
            Place::FrontOrEnd if self.random.coin() => 0,
            Place::Front => 0,
            Place::FrontOrEnd => GRANULES - granules,
        };
        Ok((id, start))
    }

    fn take_idle(&mut self, missing: &mut Missing, handles: &mut Vec<Handle>) {
        for (large, count) in [(true, &mut missing.large), (false, &mut missing.small)] {
            while *count > 0
                && let Some(handle) = self.handles.take(large)
            {
                handles.push(handle);
                *count -= 1;
            }
        }
    }

    fn create_missing(&mut self, mut missing: Missing, handles: &mut Vec<Handle>) -> Result<(), D> {
        while missing.large > 0 {
            // As much as is created: the pool grows only when it has nothing idle.
            for _ in 0..LARGE_PAGES {
                let Some(small) = self.handles.take_oldest(false) else {
                    break;
                };
                self.handles.release(&self.driver, small);
            }
            match self.create(true) {
                Ok(handle) => handles.push(handle),
                Err(PoolError::Driver { error, .. }) if D::is_out_of_memory(&error) => {
                    missing.small += missing.large * LARGE_PAGES;
                    break;
                }
                Err(error) => return Err(error),
            }
            missing.large -= 1;
        }
        for _ in 0..missing.small {
            let handle = match self.handles.take(false) {
                Some(handle) => handle,
                None => self.create_small()?,
            };
            handles.push(handle);
        }
        Ok(())
    }

    /// A small handle. A large one that is idle is released for it.
    fn create_small(&mut self) -> Result<Handle, D> {
        self.handles.split_large(&self.driver);
        self.create(false)
    }

    /// Creates a handle. Out of memory, it releases everything that is idle and tries again.
    fn create(&mut self, large: bool) -> Result<Handle, D> {
        match self
            .handles
            .create(&self.driver, large, self.settings.limit)
        {
            Ok(handle) => Ok(handle),
            Err(error) => {
                let short = match error {
                    PoolError::Limit { .. } => true,
                    PoolError::Driver { error, .. } => D::is_out_of_memory(&error),
                    PoolError::Stuck { .. } => false,
                };
                if !short || self.release_all_idle() == 0 {
                    return Err(error);
                }
                self.handles
                    .create(&self.driver, large, self.settings.limit)
            }
        }
    }
}

/// Handles that are not found yet.
struct Missing {
    large: u64,
    small: u64,
}

impl Missing {
    fn pages(&self) -> u64 {
        self.large * LARGE_PAGES + self.small
    }
}
