//! Idle memory: unmapped for other blocks, or released to the driver.

use crate::driver::Driver;
use crate::engine::acquire::Missing;
use crate::size::{LARGE_PAGES, PAGE};
use crate::slab::{FrameId, RangeId, WindowId};
use crate::state::{Result, State, refused};
use crate::streams::Freed;
use crate::windows::Content;
use std::collections::{BTreeSet, HashSet};
use std::time::Instant;

/// The least that stays mapped though no block uses it.
const SLACK: u64 = 32 << 20;

impl<D: Driver> State<D> {
    /// Unmaps cached ranges that are done, oldest first, freed not later than `until`, until `enough`.
    ///
    /// # Errors
    ///
    /// The first; what could not be unmapped stays in the cache, and the rest is unmapped.
    pub(crate) fn harvest(
        &mut self,
        until: u64,
        mut enough: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), D> {
        let mut result = Ok(());
        let done: Vec<RangeId> = self
            .ranges
            .oldest_first()
            .take_while(|(_, _, cached)| cached.since <= until)
            .filter(|(_, range, cached)| range.pins == 0 && self.streams.is_done(cached.freed))
            .map(|(id, ..)| id)
            .collect();
        for id in done {
            if enough(self) {
                break;
            }
            result = result.and(self.dismantle(id));
        }
        self.ranges.drop_empty_lists();
        result
    }

    /// Makes these handles idle, if there is that much that no block uses, and a little stays mapped.
    pub(crate) fn make_idle(&mut self, missing: &Missing) {
        let is_enough = |state: &Self| {
            let [small, large] = [false, true].map(|large| state.handles.idle_count(large) as u64);
            let spare = small.checked_sub(missing.small);
            spare.is_some_and(|spare| large + spare / LARGE_PAGES >= missing.large)
        };
        self.harvest_for(|state| is_enough(state));
        if !is_enough(self) && self.idle_bytes() > self.slack() {
            // Refused, it stays mapped, and memory is created.
            let _ = self.drop_idle_frames(u64::MAX);
        }
    }

    /// Unmaps cached ranges until `enough`, or a little stays mapped.
    pub(crate) fn harvest_for(&mut self, mut enough: impl FnMut(&mut Self) -> bool) {
        self.check_idle_frames();
        let slack = self.slack();
        // As above.
        let _ = self.harvest(u64::MAX, |state| {
            enough(state) || state.idle_bytes() <= slack
        });
    }

    /// What stays mapped though no block uses it. Without it, a program that frees and allocates blocks of many sizes would
    /// unmap the windows of one size for the next, and map them again soon: 50 microseconds instead of 100 nanoseconds.
    pub(crate) fn slack(&self) -> u64 {
        SLACK.max(self.handles.held() / 128)
    }

    /// Unmaps and releases everything that no block uses. Returns the bytes released.
    pub(crate) fn release_all_idle(&mut self) -> u64 {
        self.streams.record_and_poll(&self.driver);
        // The caller has an error of its own; what is refused here is retried.
        let _ = self.harvest(u64::MAX, |_| false);
        let _ = self.drop_idle_frames(u64::MAX);
        self.retry_kept_mappings();
        let mut released = self.handles.retry(&self.driver).0;
        for large in [false, true] {
            while let Some(handle) = self.handles.take_oldest(large) {
                released += self.handles.release(&self.driver, handle);
            }
        }
        released
    }

    /// Releases idle memory until at most `keep` bytes are idle.
    pub(crate) fn trim(&mut self, keep: u64) -> Result<u64, D> {
        self.retry_stuck()?;
        self.trim_older(keep, u64::MAX)
    }

    /// Releases what is idle longer than the decay time.
    pub(crate) fn decay(&mut self, now: Instant) -> Result<u64, D> {
        self.retry_stuck()?;
        let mut until = None;
        while let Some(&(mark, at)) = self.marks.front()
            && now.saturating_duration_since(mark) >= self.settings.decay
        {
            until = Some((mark, at));
            self.marks.pop_front();
        }
        if self.marks.back().is_none_or(|&(last, _)| {
            now.saturating_duration_since(last) >= self.settings.decay / 16
        }) {
            // What is freed later has a later number.
            self.marks.push_back((now, self.now));
            self.now += 1;
        }
        match until {
            Some((mark, until)) => {
                // What is not done yet is looked at the next time.
                self.marks.push_front((mark, until));
                self.trim_older(self.settings.keep, until)
            }
            None => Ok(0),
        }
    }

    fn trim_older(&mut self, keep: u64, until: u64) -> Result<u64, D> {
        if self.ranges.cached_count() > 0 || !self.idle_frames.is_empty() {
            self.streams.record_and_poll(&self.driver);
        }
        self.retry_kept_mappings();
        self.check_idle_frames();
        // One handle that is refused does not keep the rest from being released.
        let (mut released, _) = self.handles.retry(&self.driver);
        released += self.release_idle(keep, until);
        let before = [false, true].map(|large| self.handles.idle_count(large));
        // Released one range at a time: to unmap it makes its memory idle, and does not make the pool smaller.
        let mut result = self.harvest(until, |state| {
            released += state.release_newest(keep, before);
            state.idle_bytes() <= keep
        });
        released += self.release_newest(keep, before);
        if self.idle_bytes() > keep {
            result = result.and(self.drop_idle_frames(until));
            released += self.release_newest(keep, before);
        }
        let (late, refused) = self.handles.retry(&self.driver);
        result.and(refused).map(|()| released + late)
    }

    /// Releases idle handles, oldest first.
    pub(crate) fn release_idle(&mut self, keep: u64, until: u64) -> u64 {
        let mut released = 0;
        while self.idle_bytes() > keep {
            let [small, large] = [false, true]
                .map(|large| self.handles.oldest(large).filter(|&since| since <= until));
            let take_large = match (small, large) {
                (None, None) => break,
                (Some(small), Some(large)) => large <= small,
                (_, large) => large.is_some(),
            };
            if let Some(handle) = self.handles.take_oldest(take_large) {
                released += self.handles.release(&self.driver, handle);
            }
        }
        released
    }

    /// Releases handles that were unmapped just now, and so were idle before, until at most `keep` bytes are idle. `before`:
    /// how many small and large handles were idle before that.
    fn release_newest(&mut self, keep: u64, before: [usize; 2]) -> u64 {
        let mut released = 0;
        for (large, before) in [false, true].into_iter().zip(before) {
            while self.handles.idle_count(large) > before
                && self.idle_bytes() > keep
                && let Some(handle) = self.handles.take(large)
            {
                released += self.handles.release(&self.driver, handle);
            }
        }
        released
    }

    /// The bytes of freed blocks that their streams may still use.
    pub(crate) fn pending_bytes(&self) -> u64 {
        let ranges = self.ranges.oldest_first();
        let mut bytes: u64 = ranges
            .filter(|(_, _, cached)| !self.streams.is_done(cached.freed))
            .map(|(_, range, _)| range.bytes)
            .sum();
        for (class, slots) in self.slots.classes.iter().enumerate() {
            slots.shelf.for_each_at(|stream, _, slot| {
                let epoch = slot.epoch;
                let is_clean = stream == Freed::CLEAN.stream;
                if !is_clean && !self.streams.is_done(Freed { stream, epoch }) {
                    bytes += crate::size::class_bytes(class);
                }
            });
        }
        bytes
    }

    /// Memory that no block uses and that can be had without merging.
    pub(crate) fn idle_bytes(&self) -> u64 {
        self.handles.idle_pages() * PAGE
            + self.ranges.cached_bytes()
            + self.idle_frames.len() as u64 * PAGE
    }

    /// Forgets the notes of frames that have a block again.
    fn check_idle_frames(&mut self) {
        let frames = &mut self.frames;
        self.idle_frames.retain(|&id| {
            frames[id].noted_idle = frames[id].is_idle();
            frames[id].noted_idle
        });
    }

    /// Unmaps frames without a block, idle since `until` or longer.
    pub(crate) fn drop_idle_frames(&mut self, until: u64) -> Result<(), D> {
        self.check_idle_frames();
        let idle = self.idle_frames.iter().copied();
        let idle: Vec<FrameId> = idle
            .filter(|&id| self.frames[id].idle_since <= until)
            .collect();
        let windows: Vec<WindowId> = idle
            .iter()
            .flat_map(|&id| self.frames[id].windows.iter().copied())
            .collect();
        let result = self.drop_empty_windows(windows);
        for id in idle {
            // Its slots were dealt and no window was mapped.
            if self.idle_frames.contains(&id) && self.frames[id].windows.is_empty() {
                self.drop_frame_if_unused(id);
            }
        }
        result
    }

    /// Unmaps those of the windows that are vacant, or of slots of which no stream uses one.
    ///
    /// # Errors
    ///
    /// The first; what could not be unmapped stays, and the rest is unmapped.
    pub(crate) fn drop_empty_windows(&mut self, windows: Vec<WindowId>) -> Result<(), D> {
        let mut result = Ok(());
        let class_of = |id: &WindowId| self.windows[*id].slots().map(|slots| slots.class);
        let classes: BTreeSet<usize> = windows.iter().filter_map(class_of).collect();
        for &class in &classes {
            self.sweep_slots(class);
        }
        let empty: Vec<WindowId> = windows
            .into_iter()
            .filter(|&id| {
                let window = &self.windows[id];
                window.pins == 0
                    && window.stuck.is_none()
                    && match &window.content {
                        Content::Slots(slots) => slots.busy.is_empty(),
                        Content::Vacant => true,
                        Content::Range(_) | Content::Kept => false,
                    }
            })
            .collect();
        if empty.is_empty() {
            return result;
        }
        let mut dropped = HashSet::with_capacity(empty.len());
        for &id in &empty {
            match self.driver.unmap(self.windows[id].page, PAGE) {
                Ok(()) => drop(dropped.insert(id)),
                Err(error) => result = result.and(Err(refused("unmap")(error))),
            }
        }
        for class in classes {
            let removed = self.slots.classes[class].shelf.extract(|stream, slot| {
                stream == Freed::CLEAN.stream && dropped.contains(&slot.window)
            });
            self.slots.free_bytes -= removed.len() as u64 * crate::size::class_bytes(class);
        }
        for id in empty {
            if dropped.contains(&id) {
                let window = self.detach(id);
                self.addresses.free(window.page, 1);
            }
        }
        result
    }
}
