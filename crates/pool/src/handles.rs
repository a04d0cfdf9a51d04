//! Physical handles: those that are idle, those whose release was refused, and how much the pool holds.

use crate::driver::Driver;
use crate::error::PoolError;
use crate::size::{LARGE, LARGE_PAGES, PAGE};
use std::collections::VecDeque;

/// A physical handle of 2 MiB or 64 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) id: u64,
    pub(crate) large: bool,
}

impl Handle {
    pub(crate) fn bytes(self) -> u64 {
        if self.large { LARGE } else { PAGE }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Handles {
    /// Idle handles and when they became idle, oldest first.
    large: VecDeque<(u64, u64)>,
    small: VecDeque<(u64, u64)>,
    /// Handles whose release was refused.
    kept: Vec<Handle>,
    /// Physical memory of all handles that are not released.
    held: u64,
    /// Small handles that can be created in place of a large one that was released for them.
    split: u64,
}

impl Handles {
    /// Creates a handle, within the limit.
    pub(crate) fn create<D: Driver>(
        &mut self,
        driver: &D,
        large: bool,
        limit: u64,
    ) -> Result<Handle, PoolError<D::Error>> {
        let bytes = if large { LARGE } else { PAGE };
        if self.held.saturating_add(bytes) > limit {
            return Err(PoolError::Limit {
                held: self.held,
                limit,
            });
        }
        let id = driver.create(bytes).map_err(|error| PoolError::Driver {
            function: "create",
            error,
        })?;
        self.held += bytes;
        Ok(Handle { id, large })
    }

    /// Releases the large handle that is idle longest for small ones, once for as many as it has pages. Call it before a small
    /// handle is created.
    pub(crate) fn split_large<D: Driver>(&mut self, driver: &D) {
        if self.split > 0 {
            self.split -= 1;
        } else if let Some(large) = self.take_oldest(true) {
            self.release(driver, large);
            self.split = LARGE_PAGES - 1;
        }
    }

    /// Takes an idle handle, the one used last.
    pub(crate) fn take(&mut self, large: bool) -> Option<Handle> {
        let (id, _) = self.list(large).pop_back()?;
        Some(Handle { id, large })
    }

    /// Takes the handle that is idle longest.
    pub(crate) fn take_oldest(&mut self, large: bool) -> Option<Handle> {
        let (id, _) = self.list(large).pop_front()?;
        Some(Handle { id, large })
    }

    /// When the oldest idle handle of a size became idle.
    pub(crate) fn oldest(&self, large: bool) -> Option<u64> {
        let list = if large { &self.large } else { &self.small };
        list.front().map(|&(_, since)| since)
    }

    /// A handle with nothing mapped onto it becomes idle.
    pub(crate) fn put(&mut self, handle: Handle, now: u64) {
        self.list(handle.large).push_back((handle.id, now));
    }

    /// Releases a handle. Refused, it is kept. Returns the bytes released.
    pub(crate) fn release<D: Driver>(&mut self, driver: &D, handle: Handle) -> u64 {
        if !handle.large {
            // Those that come in its place are others.
            self.split = 0;
        }
        if driver.release(handle.id).is_err() {
            self.kept.push(handle);
            return 0;
        }
        self.held -= handle.bytes();
        handle.bytes()
    }

    /// Retries the releases that were refused. Returns the bytes released, and the first error.
    pub(crate) fn retry<D: Driver>(
        &mut self,
        driver: &D,
    ) -> (u64, Result<(), PoolError<D::Error>>) {
        let mut released = 0;
        let mut result = Ok(());
        for handle in std::mem::take(&mut self.kept) {
            match driver.release(handle.id) {
                Ok(()) => {
                    self.held -= handle.bytes();
                    released += handle.bytes();
                }
                Err(error) => {
                    self.kept.push(handle);
                    result = result.and(Err(PoolError::Driver {
                        function: "release",
                        error,
                    }));
                }
            }
        }
        (released, result)
    }

    pub(crate) fn idle_pages(&self) -> u64 {
        self.large.len() as u64 * LARGE_PAGES + self.small.len() as u64
    }

    pub(crate) fn idle_count(&self, large: bool) -> usize {
        if large {
            self.large.len()
        } else {
            self.small.len()
        }
    }

    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    pub(crate) fn kept(&self) -> usize {
        self.kept.len()
    }

    fn list(&mut self, large: bool) -> &mut VecDeque<(u64, u64)> {
        if large {
            &mut self.large
        } else {
            &mut self.small
        }
    }
}
