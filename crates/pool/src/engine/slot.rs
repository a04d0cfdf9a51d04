//! Blocks below 256 KiB.

use super::attach::{slot_granules, unused_granules};
use crate::bits::Bits;
use crate::driver::Driver;
use crate::frames::Home;
use crate::ranges::Room;
use crate::size::{PAGE, class_bytes, class_of};
use crate::slab::{FrameId, WindowId};
use crate::slots::{self, Class, SlotRef};
use crate::state::{Result, State, refused};
use crate::streams::Freed;
use crate::windows::{Content, SlotWindow, Window};

/// Slot frames that are looked at for one with slots to open: after merging, those of many frames are all blocked.
const HOMES: usize = 32;

impl<D: Driver> State<D> {
    /// Allocates a slot.
    pub(crate) fn allocate_slot(&mut self, stream: u64, bytes: u64) -> Result<u64, D> {
        let class = class_of(bytes);
        if let Some(address) = self.take_slot(class, stream) {
            return Ok(address);
        }
        // Slots that other streams freed may be usable by now, and so may the pages of other blocks.
        self.streams.record_and_poll(&self.driver);
        self.sweep_slots(class);
        loop {
            if let Some(address) = self.take_slot(class, stream) {
                return Ok(address);
            }
            if !self.open_windows(class)? {
                self.deal_frame(class)?;
            }
        }
    }

    /// Allocates a slot where that needs no call of the driver.
    pub(crate) fn take_slot(&mut self, class: usize, stream: u64) -> Option<u64> {
        let SlotRef { window, slot, .. } = loop {
            let (slot, clean) = self.slots.take(class, stream, &mut self.random)?;
            if !clean || self.occupy(class, slot) {
                break slot;
            }
        };
        let window = &mut self.windows[window];
        let (frame, page) = (window.frame, window.page);
        if let Some(slots) = window.slots_mut() {
            slots.live.set(slot);
            slots.live_count += 1;
        }
        self.frames[frame].live_slots += 1;
        let bytes = class_bytes(class);
        self.used += bytes;
        Some(page + u64::from(slot) * bytes)
    }

    /// Frees a slot. It stays busy: its stream may still use it.
    pub(crate) fn free_slot(&mut self, stream: &D::Stream, address: u64, bytes: u64) {
        let page = address & !(PAGE - 1);
        let class = class_of(bytes);
        let offset = address - page;
        let slot = (offset / bytes) as u16;
        let Some(&id) = self.pages.get(&page) else {
            self.wrong_frees += 1;
            return;
        };
        let window = &mut self.windows[id];
        let frame = window.frame;
        match window.slots_mut() {
            Some(slots)
                if slots.class == class && offset.is_multiple_of(bytes) && slots.live.has(slot) =>
            {
                slots.live.clear(slot);
                slots.live_count -= 1;
            }
            _ => {
                self.wrong_frees += 1;
                return;
            }
        }
        if !self.slot_pins.is_empty() {
            self.unpin_freed(address);
        }
        let freed = self.streams.free_on(stream);
        self.used -= bytes;
        self.now += 1;
        self.slots.put(class, id, slot, freed);
        self.frames[frame].live_slots -= 1;
        if self.frames[frame].live_slots == 0 {
            self.update_idle(frame);
        }
    }

    /// Makes free slots of a class usable by any stream, where their stream is done.
    pub(crate) fn sweep_slots(&mut self, class: usize) {
        let streams = &self.streams;
        let clean = Freed::CLEAN.stream;
        let mut done = self.slots.classes[class].shelf.extract(|stream, slot| {
            let epoch = slot.epoch;
            stream != clean && streams.is_done(Freed { stream, epoch })
        });
        // By window, so that each is brought up to date once.
        done.sort_unstable_by_key(|slot| slot.window);
        for of_window in done.chunk_by(|one, two| one.window == two.window) {
            let window = &mut self.windows[of_window[0].window];
            let mut granules = 0;
            for slot in of_window {
                granules |= slot_granules(class, slot.slot);
                if let Some(slots) = window.slots_mut() {
                    slots.busy.clear(slot.slot);
                }
            }
            window.mask &= !unused_granules(window, granules);
            let frame = window.frame;
            self.granules_freed(frame);
        }
        self.slots.classes[class].shelf.list(clean).extend(done);
    }

    /// Makes a clean slot busy, unless another window uses its granules.
    fn occupy(&mut self, class: usize, slot: SlotRef) -> bool {
        let granules = slot_granules(class, slot.slot);
        let window = &self.windows[slot.window];
        let blocked = self.is_blocked(window, granules);
        let window = &mut self.windows[slot.window];
        let Some(slots) = window.slots_mut() else {
            return false;
        };
        if blocked {
            slots.blocked.push(slot.slot);
            return false;
        }
        slots.busy.set(slot.slot);
        window.mask |= granules;
        self.frames[window.frame].used |= granules;
        true
    }

    /// Maps the windows of a slot frame that are not mapped, if there is one with a slot that is not blocked.
    ///
    /// All of them: slots must be handed out at random over all windows of the frame, else freeing every other block leaves
    /// as many in each, and windows with one block, which fit nearly everywhere, are missing.
    fn open_windows(&mut self, class: usize) -> Result<bool, D> {
        let Some(frame_id) = self.find_home(class) else {
            return Ok(false);
        };
        let usable: Vec<usize> = self.usable(frame_id).collect();
        let handle = self.frames[frame_id].handle;
        let base = self
            .addresses
            .allocate(&self.driver, usable.len() as u64)
            .map_err(refused("reserve"))?;
        let page = |number: usize| base + number as u64 * PAGE;
        let mut mapped = 0;
        let mut result = Ok(());
        while mapped < usable.len() && result.is_ok() {
            result = self
                .driver
                .map(page(mapped), PAGE, handle.id)
                .map_err(refused("map"));
            mapped += usize::from(result.is_ok());
        }
        if mapped < usable.len() {
            self.addresses
                .free(page(mapped), (usable.len() - mapped) as u64);
        }
        if mapped == 0 {
            return result.map(|()| false);
        }
        // Fewer windows than wanted will do.
        let access = self
            .driver
            .set_access(base, mapped as u64 * PAGE)
            .map_err(refused("set_access"));
        // From the last on, so that the positions of those before stay.
        let opened: Vec<WindowId> = (0..mapped)
            .rev()
            .map(|number| self.open_window(frame_id, usable[number], page(number)))
            .collect();
        for id in opened {
            if access.is_err() {
                let page = self.windows[id].page;
                let room = Room {
                    start: page,
                    pages: 1,
                };
                self.unmap_or_keep(room, (page, PAGE), Vec::new(), Some(id));
                continue;
            }
            let slots = self.windows[id].slots().map(|slots| slots.slots.clone());
            for slot in slots.into_iter().flatten() {
                self.slots.put(class, id, slot, Freed::CLEAN);
            }
        }
        access.map(|()| true)
    }

    /// A slot frame with slots that are in no window and not all blocked.
    fn find_home(&mut self, class: usize) -> Option<FrameId> {
        let Class {
            homes, next_home, ..
        } = &self.slots.classes[class];
        let in_turn = homes.range(*next_home..).chain(homes.range(..*next_home));
        let mut looked_at = *next_home;
        let found = in_turn
            .take(HOMES)
            .inspect(|&&id| looked_at = id)
            .find(|&&id| self.usable(id).next().is_some())
            .copied();
        self.slots.classes[class].next_home = looked_at;
        found
    }

    /// Which slots of a frame that are in no window are not all blocked, by their number in the home.
    fn usable(&self, id: FrameId) -> impl Iterator<Item = usize> {
        let frame = &self.frames[id];
        let blocked = |home: &Home, slot: u16| {
            let granules = slot_granules(home.class, slot);
            frame.windows.iter().any(|&other| {
                let other = &self.windows[other];
                other.mask & granules != 0 && other.slots().map(|slots| slots.home) != Some(home.id)
            })
        };
        frame.home.iter().flat_map(move |home| {
            let usable =
                move |slots: &[u16]| !frame.mixed || slots.iter().any(|&slot| !blocked(home, slot));
            (0..home.waiting.len()).filter(move |&at| usable(&home.waiting[at]))
        })
    }

    /// Enters a mapped page as the window of slots that are in none.
    fn open_window(&mut self, frame_id: FrameId, waiting: usize, page: u64) -> WindowId {
        let home = self.frames[frame_id]
            .home
            .as_mut()
            .expect("a slot frame has a home");
        let (home_id, class) = (home.id, home.class);
        let slots = home.waiting.swap_remove(waiting);
        if home.waiting.is_empty() {
            self.slots.classes[class].homes.remove(&frame_id);
        }
        let count = (PAGE / class_bytes(class)) as usize;
        self.attach(Window {
            page,
            frame: frame_id,
            mask: 0,
            content: Content::Slots(SlotWindow {
                home: home_id,
                class,
                slots,
                live: Bits::new(count),
                live_count: 0,
                busy: Bits::new(count),
                blocked: Vec::new(),
            }),
            pins: 0,
            stuck: None,
        })
    }

    /// Makes a slot frame out of a new page.
    fn deal_frame(&mut self, class: usize) -> Result<(), D> {
        let handle = self.acquire_page()?;
        let id = self.frames.insert(handle);
        let waiting = slots::deal(class, self.settings.merge, &mut self.random);
        self.frames[id].home = Some(Home {
            id: self.slots.new_home(id),
            class,
            waiting,
        });
        self.slots.classes[class].homes.insert(id);
        self.update_idle(id);
        Ok(())
    }
}
