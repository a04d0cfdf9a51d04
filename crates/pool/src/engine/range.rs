//! Blocks of 256 KiB or more: stitched out of pages.

use crate::driver::Driver;
use crate::engine::resize::Part;
use crate::frames::Place;
use crate::handles::Handle;
use crate::mask;
use crate::ranges::{Range, Room};
use crate::size::{GRANULE, PAGE};
use crate::slab::{FrameId, RangeId, WindowId};
use crate::state::{KeptMapping, Result, State, refused};
use crate::windows::{Content, Window};

impl<D: Driver> State<D> {
    /// Allocates a range.
    pub(crate) fn allocate_range(&mut self, stream: u64, bytes: u64) -> Result<u64, D> {
        if let Some(address) = self.take_range(stream, bytes) {
            return Ok(address);
        }
        if let Some(address) = self.take_vacant(bytes) {
            return Ok(address);
        }
        if self.ranges.cached_count() > 0 {
            self.streams.record_and_poll(&self.driver);
            if bytes < PAGE {
                self.vacate_all();
                if let Some(address) = self.take_vacant(bytes) {
                    return Ok(address);
                }
            }
        }
        let streams = &self.streams;
        self.ranges.sweep(bytes, |freed| streams.is_done(freed));
        if let Some(address) = self.take_range(stream, bytes) {
            return Ok(address);
        }
        let id = self.build(bytes)?;
        self.used += bytes;
        Ok(self.ranges[id].address)
    }

    /// Allocates a cached range of the same size, if there is one that the stream may use.
    pub(crate) fn take_range(&mut self, stream: u64, bytes: u64) -> Option<u64> {
        let id = self.ranges.take(bytes, stream)?;
        self.used += bytes;
        Some(self.ranges[id].address)
    }

    /// Frees a range: it goes into the cache.
    pub(crate) fn free_range(&mut self, stream: &D::Stream, address: u64, bytes: u64) {
        let found = self.ranges.at(address).filter(|&id| {
            let range = &self.ranges[id];
            range.bytes == bytes && range.cached.is_none()
        });
        let Some(id) = found else {
            self.wrong_frees += 1;
            return;
        };
        if self.ranges[id].pins > 0 {
            self.unpin_freed(address);
        }
        let freed = self.streams.free_on(stream);
        self.used -= bytes;
        self.now += 1;
        self.ranges.cache(id, freed, self.now);
    }

    /// Unmaps a cached range: its handles become idle, its granules free. Refused, it stays in the cache.
    pub(crate) fn dismantle(&mut self, id: RangeId) -> Result<(), D> {
        let range = &self.ranges[id];
        self.driver
            .unmap(range.base, range.pages * PAGE)
            .map_err(refused("unmap"))?;
        self.ranges.uncache(id);
        let range = self.ranges.remove(id);
        self.recycle(range.handles);
        if let Some(window) = range.window {
            self.detach(window);
        }
        self.addresses.free(range.room.start, range.room.pages);
        Ok(())
    }

    /// Unmaps pages that no block uses. Refused, they are kept until it is not.
    pub(crate) fn unmap_or_keep(
        &mut self,
        room: Room,
        mapped: (u64, u64),
        handles: Vec<Handle>,
        window: Option<WindowId>,
    ) {
        if mapped.1 > 0 && self.driver.unmap(mapped.0, mapped.1).is_err() {
            if let Some(id) = window {
                let frame = self.windows[id].frame;
                self.leave(id);
                self.put_back_slots(id);
                self.windows[id].content = Content::Kept;
                // It cannot be moved.
                self.windows[id].pins += 1;
                self.join(id, frame);
            }
            self.kept_mappings.push(KeptMapping {
                room,
                mapped,
                handles,
                window,
            });
            return;
        }
        self.recycle(handles);
        if let Some(window) = window {
            self.detach(window);
        }
        self.addresses.free(room.start, room.pages);
    }

    pub(crate) fn recycle(&mut self, handles: Vec<Handle>) {
        for handle in handles {
            self.handles.put(handle, self.now);
        }
    }

    /// Stitches a new range: whole pages, and a window for the remainder. A cached range of a similar size is a part of it.
    fn build(&mut self, bytes: u64) -> Result<RangeId, D> {
        let shared = bytes < PAGE || self.settings.share_tails;
        let granules = if shared {
            (bytes % PAGE / GRANULE) as u32
        } else {
            0
        };
        let whole = if shared {
            bytes / PAGE
        } else {
            bytes.div_ceil(PAGE)
        };
        let part = match self.take_similar(whole) {
            Some(part) => part,
            None => self.empty_part(whole, granules > 0)?,
        };
        let more = match self.acquire(whole - part.pages()) {
            Ok(handles) => handles,
            Err(error) => {
                self.release_part(part);
                return Err(error);
            }
        };
        let mut spot = None;
        if granules > 0 {
            let place = match whole {
                0 => Place::Anywhere,
                _ if part.first > part.room.start => Place::FrontOrEnd,
                _ => Place::Front,
            };
            match self.acquire_granules(place, granules) {
                Ok(found) => spot = Some(found),
                Err(error) => {
                    for handle in more {
                        self.handles.release(&self.driver, handle);
                    }
                    self.release_part(part);
                    return Err(error);
                }
            }
        }
        self.stitch(bytes, part, more, spot, granules)
    }

    /// Maps more handles behind those of a part, and the window.
    fn stitch(
        &mut self,
        bytes: u64,
        mut part: Part,
        more: Vec<Handle>,
        spot: Option<(FrameId, u32)>,
        granules: u32,
    ) -> Result<RangeId, D> {
        let mapped_before = part.end();
        let mut end = mapped_before;
        for (at, &handle) in more.iter().enumerate() {
            if let Err(error) = self.driver.map(end, handle.bytes(), handle.id) {
                self.recycle(more[at..].to_vec());
                self.abandon(part);
                self.drop_spot(spot);
                return Err(refused("map")(error));
            }
            part.handles.push(handle);
            end += handle.bytes();
        }
        // A window that is not at the front of its frame is the first page: the block begins inside it.
        let head = spot.is_some_and(|(_, start)| start > 0) && !part.handles.is_empty();
        let mut base = part.first;
        let mut address = base;
        let mut window = None;
        if let Some((frame, start)) = spot {
            let page = if head { base - PAGE } else { end };
            if let Err(error) = self.driver.map(page, PAGE, self.frames[frame].handle.id) {
                self.abandon(part);
                self.drop_spot(spot);
                return Err(refused("map")(error));
            }
            (base, end) = (base.min(page), end.max(page + PAGE));
            address = base + u64::from(start) * GRANULE;
            window = Some(self.attach(Window {
                page,
                frame,
                mask: mask::span(start, granules),
                content: Content::Kept,
                pins: 0,
                stuck: None,
            }));
        }
        // What was mapped before has access. Where nothing was, one call does it.
        let changed = match mapped_before > part.first {
            true => [(base, part.first), (mapped_before, end)],
            false => [(base, end), (end, end)],
        };
        for (from, to) in changed {
            if from < to
                && let Err(error) = self.driver.set_access(from, to - from)
            {
                self.unmap_or_keep(part.room, (base, end - base), part.handles, window);
                return Err(refused("set_access")(error));
            }
        }
        let id = self.ranges.insert(Range {
            address,
            bytes,
            base,
            pages: (end - base) / PAGE,
            room: part.room,
            handles: part.handles,
            window,
            pins: 0,
            cached: None,
        });
        if let Some(window) = window {
            self.windows[window].content = Content::Range(id);
        }
        Ok(id)
    }

    /// A place that was not used: a frame that was new becomes an idle handle.
    fn drop_spot(&mut self, spot: Option<(FrameId, u32)>) {
        if let Some((frame, _)) = spot {
            self.drop_frame_if_unused(frame);
        }
    }
}
