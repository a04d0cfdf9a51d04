//! Windows come onto frames and leave them.

use crate::driver::Driver;
use crate::mask;
use crate::size::{GRANULE, class_bytes};
use crate::slab::{FrameId, WindowId};
use crate::state::State;
use crate::streams::Freed;
use crate::windows::{Content, Window};

impl<D: Driver> State<D> {
    /// Enters a mapped window.
    pub(crate) fn attach(&mut self, window: Window) -> WindowId {
        let (page, frame) = (window.page, window.frame);
        let id = self.windows.insert(window);
        self.pages.insert(page, id);
        self.join(id, frame);
        id
    }

    /// Removes a window that is not mapped. A frame without windows becomes an idle handle.
    pub(crate) fn detach(&mut self, id: WindowId) -> Window {
        self.leave(id);
        self.put_back_slots(id);
        let window = self.windows.remove(id);
        self.stuck.retain(|&other| other != id);
        self.pages.remove(&window.page);
        self.drop_frame_if_unused(window.frame);
        window
    }

    /// The slots of a window that has left its frame can be in another window of the frame that they were dealt of, if that
    /// exists. It need not be the frame that the window has left.
    pub(crate) fn put_back_slots(&mut self, id: WindowId) {
        if let Content::Slots(slots) = &self.windows[id].content
            && let Some(&frame) = self.slots.homes.get(&u64::from(slots.home))
            && let Some(home) = &mut self.frames[frame].home
        {
            self.slots.classes[home.class].homes.insert(frame);
            home.waiting.push(slots.slots.clone());
        }
    }

    /// Adds a window to the frame that it is mapped onto.
    pub(crate) fn join(&mut self, id: WindowId, frame_id: FrameId) {
        let window = &mut self.windows[id];
        window.frame = frame_id;
        let frame = &mut self.frames[frame_id];
        frame.windows.push(id);
        frame.used |= window.mask;
        frame.pins += u32::from(window.pins > 0);
        match &window.content {
            Content::Slots(slots) => {
                frame.slot_windows += 1;
                frame.live_slots += slots.live_count;
            }
            Content::Range(_) | Content::Kept => frame.range_windows += 1,
            Content::Vacant => frame.vacant += 1,
        }
        self.update_mixed(frame_id);
        self.update_idle(frame_id);
        self.frames.reindex(frame_id);
    }

    /// Takes a window off its frame.
    pub(crate) fn leave(&mut self, id: WindowId) {
        let window = &self.windows[id];
        let frame_id = window.frame;
        let frame = &mut self.frames[frame_id];
        frame.windows.retain(|&other| other != id);
        frame.pins -= u32::from(window.pins > 0);
        match &window.content {
            Content::Slots(slots) => {
                frame.slot_windows -= 1;
                frame.live_slots -= slots.live_count;
            }
            Content::Range(_) | Content::Kept => frame.range_windows -= 1,
            Content::Vacant => frame.vacant -= 1,
        }
        self.update_mixed(frame_id);
        self.update_idle(frame_id);
        self.granules_freed(frame_id);
    }

    /// Brings a frame up to date after a window's mask became smaller.
    pub(crate) fn granules_freed(&mut self, frame_id: FrameId) {
        let windows = &self.windows;
        let frame = &mut self.frames[frame_id];
        frame.used = frame
            .windows
            .iter()
            .fold(0, |used, &id| used | windows[id].mask);
        self.frames.reindex(frame_id);
        self.unblock(frame_id);
    }

    /// Notes that a frame has no block, if that is so. Until the note is used, the frame may have one again.
    pub(crate) fn update_idle(&mut self, id: FrameId) {
        let frame = &mut self.frames[id];
        if frame.is_idle() {
            frame.idle_since = self.now;
            if !frame.noted_idle {
                frame.noted_idle = true;
                self.idle_frames.insert(id);
            }
        }
    }

    /// A frame without windows becomes an idle handle; without windows of slots, other blocks can be placed in it.
    pub(crate) fn drop_frame_if_unused(&mut self, id: FrameId) {
        let frame = &mut self.frames[id];
        if frame.slot_windows == 0
            && let Some(home) = frame.home.take()
        {
            self.slots.classes[home.class].homes.remove(&id);
            self.slots.homes.remove(&u64::from(home.id));
            self.frames.reindex(id);
        }
        if !self.frames[id].windows.is_empty() {
            return;
        }
        let frame = self.frames.remove(id);
        if frame.noted_idle {
            self.idle_frames.remove(&id);
        }
        self.handles.put(frame.handle, self.now);
    }

    /// Whether a window that slots were not dealt together with uses granules of the frame.
    pub(crate) fn is_blocked(&self, window: &Window, granules: u128) -> bool {
        let frame = &self.frames[window.frame];
        frame.mixed
            && frame.windows.iter().any(|&other| {
                let other = &self.windows[other];
                other.mask & granules != 0 && other.page != window.page && !other.dealt_with(window)
            })
    }

    fn update_mixed(&mut self, id: FrameId) {
        let frame = &self.frames[id];
        let own = frame.home.as_ref().map(|home| home.id);
        let home_of = |window: WindowId| self.windows[window].slots().map(|slots| slots.home);
        let mixed = frame.windows.iter().any(|&id| home_of(id) != own);
        self.frames[id].mixed = mixed;
    }

    /// Lists blocked slots whose granules are free now.
    pub(crate) fn unblock(&mut self, frame_id: FrameId) {
        for at in 0..self.frames[frame_id].windows.len() {
            let id = self.frames[frame_id].windows[at];
            let window = &self.windows[id];
            let Some(slots) = window.slots().filter(|slots| !slots.blocked.is_empty()) else {
                continue;
            };
            let class = slots.class;
            let (still, free): (Vec<u16>, Vec<u16>) = slots
                .blocked
                .iter()
                .partition(|&&slot| self.is_blocked(window, slot_granules(class, slot)));
            if let Some(slots) = self.windows[id].slots_mut() {
                slots.blocked = still;
            }
            for slot in free {
                self.slots.put(class, id, slot, Freed::CLEAN);
            }
        }
    }
}

/// The granules that a slot touches.
pub(crate) fn slot_granules(class: usize, slot: u16) -> u128 {
    let bytes = class_bytes(class);
    mask::touched(u64::from(slot) * bytes, bytes)
}

/// The granules of a mask that no busy slot of a window touches.
pub(crate) fn unused_granules(window: &Window, granules: u128) -> u128 {
    let Some(slots) = window.slots() else {
        return 0;
    };
    let bytes = class_bytes(slots.class);
    let mut unused = 0;
    for (start, count) in mask::runs(granules) {
        for granule in start..start + count {
            let begin = u64::from(granule) * GRANULE;
            let (first, last) = (begin / bytes, (begin + GRANULE - 1) / bytes);
            if !slots.busy.any(first as usize, last as usize) {
                unused |= 1 << granule;
            }
        }
    }
    unused
}
