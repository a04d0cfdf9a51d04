//! Merging: the windows of half-empty frames are mapped onto other frames, whose use is disjoint.
//!
//! [`plan`] is bin packing, without the driver; [`relocate`] does what was planned. A frame is emptied whole or not at all,
//! because only a whole frame can be released.

mod plan;
mod relocate;
#[cfg(test)]
mod tests;

use crate::driver::Driver;
use crate::size::PAGE;
use crate::slab::WindowId;
use crate::state::{Result, State};
use crate::stats::Compacted;
use crate::windows::Content;
use plan::{Candidate, plan};

/// Frames that are emptied together: their copies are waited for once.
const BATCH: usize = 64;
/// A frame that received windows can be emptied in the next round only.
const ROUNDS: usize = 4;

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
}
