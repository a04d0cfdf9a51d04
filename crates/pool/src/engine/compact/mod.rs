//! Merging: maps the windows of half-empty frames onto other frames, whose granules in use are disjoint from theirs.
//!
//! [`plan`] is bin packing, without the driver. This file copies windows to other frames and maps them there. It
//! empties a frame whole or not at all, because only a whole frame can be released.

mod plan;
#[cfg(test)]
mod tests;

use crate::driver::Driver;
use crate::mask;
use crate::size::{GRANULE, PAGE};
use crate::slab::{FrameId, WindowId};
use crate::state::{Result, State, refused};
use crate::stats::Compacted;
use crate::windows::{Content, Stuck};
use plan::{Candidate, Source, plan};

/// Frames that are emptied together: their copies are waited for once.
const BATCH: usize = 64;
/// A frame that received windows can be emptied in the next round only.
const ROUNDS: usize = 4;
/// How often a call that maps live blocks is tried before the window is stuck.
const TRIES: usize = 3;

impl<D: Driver> State<D> {
    /// Releases idle memory, then merges until `wanted` bytes are released. No work is in flight.
    ///
    /// # Errors
    ///
    /// The driver's, where it released nothing, or where blocks wait for a call that must be retried first. What is released
    /// before another refusal can be used: that is no error.
    pub(crate) fn compact(&mut self, wanted: u64) -> Result<Compacted, D> {
        self.retry_stuck()?;
        self.streams.finish_all();
        let mut done = Compacted {
            released: self.release_all_idle(),
            ..Compacted::default()
        };
        if !self.settings.merge || done.released >= wanted {
            return Ok(done);
        }
        // The frames of those that are refused are not emptied.
        done.refused = self.drop_empty_windows(self.windows.keys()).is_err();
        done.released += self.release_idle(0, u64::MAX);
        for _ in 0..ROUNDS {
            let before = done.merged_frames;
            let missing = wanted.saturating_sub(done.released).div_ceil(PAGE);
            if missing == 0 {
                break;
            }
            let candidates = self.candidates();
            let sources = plan(candidates, missing as usize);
            for batch in sources.chunks(BATCH) {
                let Err(error) = self.relocate(batch, &mut done) else {
                    continue;
                };
                // The frames that were emptied before.
                done.released += self.release_idle(0, u64::MAX);
                if done.released == 0 || self.unwaited || !self.stuck.is_empty() {
                    return Err(error);
                }
                done.refused = true;
                return Ok(done);
            }
            if done.merged_frames == before {
                break;
            }
        }
        Ok(done)
    }

    /// The frames that can be merged: every window is mapped, with access. Those with a pin only receive.
    fn candidates(&self) -> Vec<Candidate> {
        self.frames
            .iter()
            .filter(|(_, frame)| {
                let is_usable = |&id: &WindowId| {
                    let window = &self.windows[id];
                    window.stuck.is_none() && !matches!(window.content, Content::Kept)
                };
                !frame.windows.is_empty() && frame.windows.iter().all(is_usable)
            })
            .map(|(id, frame)| Candidate {
                frame: id,
                used: frame.used,
                pinned: frame.pins > 0,
                windows: frame
                    .windows
                    .iter()
                    .map(|&id| (id, self.windows[id].mask))
                    .collect(),
            })
            .collect()
    }

    /// Empties frames as planned, and releases them.
    ///
    /// The copies are complete before the first window is unmapped: until then nothing that a block sees has changed, and
    /// from then on the bytes are in both frames.
    fn relocate(&mut self, sources: &[Source], done: &mut Compacted) -> Result<(), D> {
        let moves = || sources.iter().flat_map(|source| &source.moves);
        let mut copied = 0;
        let mut result = Ok(());
        for &(window, target) in moves() {
            match self.copy_window(window, target) {
                Ok(bytes) => copied += bytes,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        // Copies that were enqueued write to granules that are free: after an error too, they must end before others use them.
        let waited = self.wait_for_copies();
        result?;
        waited?;
        done.copied_bytes += copied;
        for source in sources {
            for &(window, target) in &source.moves {
                if let Err(error) = self.remap(window, target) {
                    self.drop_frame_if_unused(source.frame);
                    return Err(error);
                }
                done.moved_windows += 1;
                self.merged_windows += 1;
            }
            self.drop_frame_if_unused(source.frame);
            done.merged_frames += 1;
            self.merged_frames += 1;
        }
        done.released += self.release_idle(0, u64::MAX);
        Ok(())
    }

    /// Enqueues the copies of a window's granules, through a page that is mapped onto the target. Returns the bytes.
    fn copy_window(&self, id: WindowId, target: FrameId) -> Result<u64, D> {
        let window = &self.windows[id];
        let through = self.windows[self.frames[target].windows[0]].page;
        for (start, count) in mask::runs(window.mask) {
            let offset = u64::from(start) * GRANULE;
            let bytes = u64::from(count) * GRANULE;
            self.driver
                .copy(through + offset, window.page + offset, bytes)
                .map_err(refused("copy"))?;
        }
        Ok(u64::from(window.mask.count_ones()) * GRANULE)
    }

    /// Maps a window onto the target, to which its bytes are copied. Refused, it is mapped onto its old frame again.
    fn remap(&mut self, id: WindowId, target: FrameId) -> Result<(), D> {
        let page = self.windows[id].page;
        let handle = self.frames[target].handle.id;
        self.driver.unmap(page, PAGE).map_err(refused("unmap"))?;
        if let Err(error) = self.driver.map(page, PAGE, handle) {
            self.windows[id].stuck = Some(Stuck::Unmapped);
            self.map_or_stuck(id);
            return Err(refused("map")(error));
        }
        self.leave(id);
        self.join(id, target);
        // Slots of the window that were blocked where it was are perhaps free here.
        self.unblock(target);
        if let Err(error) = self.driver.set_access(page, PAGE) {
            self.windows[id].stuck = Some(Stuck::NoAccess);
            self.map_or_stuck(id);
            return Err(refused("set_access")(error));
        }
        Ok(())
    }

    fn map_or_stuck(&mut self, id: WindowId) {
        if !(0..TRIES).any(|_| self.map_stuck(id)) {
            self.stuck.push(id);
        }
    }
}
