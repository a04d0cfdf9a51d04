//! What the driver refused is tried again.

use crate::driver::Driver;
use crate::error::PoolError;
use crate::size::PAGE;
use crate::slab::WindowId;
use crate::state::{Result, State, refused};
use crate::windows::Stuck;

impl<D: Driver> State<D> {
    /// Waits for copies that were not waited for, and maps windows with live blocks that are not mapped.
    ///
    /// # Errors
    ///
    /// The driver's, or [`PoolError::Stuck`]: it was refused again.
    pub(crate) fn retry_stuck(&mut self) -> Result<(), D> {
        if self.stuck.is_empty() && !self.unwaited {
            return Ok(());
        }
        if self.unwaited {
            self.wait_for_copies()?;
        }
        for id in std::mem::take(&mut self.stuck) {
            if !self.map_stuck(id) {
                self.stuck.push(id);
            }
        }
        match self.stuck.len() {
            0 => Ok(()),
            windows => Err(PoolError::Stuck { windows }),
        }
    }

    /// Waits until all copies are complete. Refused, nothing is allocated before they are.
    pub(crate) fn wait_for_copies(&mut self) -> Result<(), D> {
        self.unwaited = true;
        self.driver
            .wait_for_copies()
            .map_err(refused("wait_for_copies"))?;
        self.unwaited = false;
        Ok(())
    }

    /// Maps one such window onto its frame, with access. Returns whether it is.
    pub(crate) fn map_stuck(&mut self, id: WindowId) -> bool {
        let window = &mut self.windows[id];
        let handle = self.frames[window.frame].handle.id;
        if window.stuck == Some(Stuck::Unmapped)
            && self.driver.map(window.page, PAGE, handle).is_ok()
        {
            window.stuck = Some(Stuck::NoAccess);
        }
        if window.stuck == Some(Stuck::NoAccess)
            && self.driver.set_access(window.page, PAGE).is_ok()
        {
            window.stuck = None;
        }
        window.stuck.is_none()
    }

    /// Unmaps what no block uses and could not be unmapped.
    pub(crate) fn retry_kept_mappings(&mut self) {
        for kept in std::mem::take(&mut self.kept_mappings) {
            let (at, bytes) = kept.mapped;
            if self.driver.unmap(at, bytes).is_err() {
                self.kept_mappings.push(kept);
                continue;
            }
            self.recycle(kept.handles);
            if let Some(window) = kept.window {
                self.detach(window);
            }
            self.addresses.free(kept.room.start, kept.room.pages);
        }
    }
}
