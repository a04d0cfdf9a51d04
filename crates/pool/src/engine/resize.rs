//! A cached range becomes one of a similar size: only the pages in which they differ are unmapped and mapped.
//!
//! To map a page costs fifty times as much as everything else that an allocation does. A program whose sizes change a little
//! from step to step, such as training on sequences of varying length, would unmap and map most of its memory in each step.

use crate::driver::Driver;
use crate::handles::Handle;
use crate::ranges::{Range, Room};
use crate::size::{LARGE_PAGES, PAGE};
use crate::slab::{OfWindow, RangeId, Slab};
use crate::state::{Result, State, refused};
use crate::windows::Window;

/// The most pages of addresses that a range has behind it to grow into: no block of the size of the device may need more
/// addresses than the driver reserves at once.
const GROWTH: u64 = 512;
/// The cost of mapping a handle with access, where unmapping one costs 1.
const MAP: u64 = 2;
/// How many cached ranges are compared for one block.
const COMPARED: usize = 1024;
/// How many are looked at to find these: others are too short, or in use by their stream.
const LOOKED_AT: usize = 16 << 10;

/// Pages of a range that is built: its own, without the window. They are mapped, with access.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) room: Room,
    /// The first page.
    pub(crate) first: u64,
    pub(crate) handles: Vec<Handle>,
}

impl Part {
    pub(crate) fn pages(&self) -> u64 {
        pages(&self.handles)
    }

    pub(crate) fn end(&self) -> u64 {
        self.first + self.pages() * PAGE
    }
}

impl<D: Driver> State<D> {
    /// Addresses for a range of this many pages of its own, and perhaps a window. Nothing is mapped.
    pub(crate) fn empty_part(&mut self, whole: u64, window: bool) -> Result<Part, D> {
        let handles = Vec::new();
        if whole > 0 {
            // A page in front, for a window, and the rest behind.
            let pages = whole.saturating_add(whole.min(GROWTH) + 2);
            if let Ok(start) = self.addresses.allocate(&self.driver, pages) {
                return Ok(Part {
                    room: Room { start, pages },
                    first: start + PAGE,
                    handles,
                });
            }
        }
        let pages = whole + u64::from(window);
        let start = self
            .addresses
            .allocate(&self.driver, pages)
            .map_err(refused("reserve"))?;
        Ok(Part {
            room: Room { start, pages },
            first: start,
            handles,
        })
    }

    /// Takes the cached range that costs least to resize to this many pages of its own, if that costs less than to map all of
    /// them. Pages beyond that number, and its window, are unmapped.
    pub(crate) fn take_similar(&mut self, whole: u64) -> Option<Part> {
        // As for what is unmapped for other blocks: a little stays as it is.
        if whole == 0 || self.idle_bytes() <= self.slack() {
            return None;
        }
        let id = self.most_similar(whole)?;
        if let Some(window) = self.ranges[id].window {
            let page = self.windows[window].page;
            // Refused, it stays in the cache.
            self.driver.unmap(page, PAGE).ok()?;
        }
        self.ranges.uncache(id);
        let mut range = self.ranges.remove(id);
        self.ranges.drop_list_if_empty(range.bytes);
        let first = first_page(&range, &self.windows);
        if let Some(window) = range.window {
            self.detach(window);
        }
        let (kept, _) = shrunk(&range.handles, whole);
        let rest = range.handles.split_off(kept);
        let part = Part {
            room: range.room,
            first,
            handles: range.handles,
        };
        if !rest.is_empty() {
            let (from, bytes) = (part.end(), pages(&rest) * PAGE);
            if self.driver.unmap(from, bytes).is_err() {
                let mut all = part;
                all.handles.extend(rest);
                self.abandon(all);
                return None;
            }
            self.recycle(rest);
        }
        Some(part)
    }

    /// Unmaps a part that does not become a range, and releases its handles: who else asks for memory finds it.
    pub(crate) fn release_part(&mut self, part: Part) {
        let before = [false, true].map(|large| self.handles.idle_count(large));
        self.abandon(part);
        self.release_newest(0, before);
    }

    /// Unmaps a part that does not become a range.
    pub(crate) fn abandon(&mut self, part: Part) {
        let mapped = (part.first, part.pages() * PAGE);
        self.unmap_or_keep(part.room, mapped, part.handles, None);
    }

    /// The cached range that costs least to resize.
    fn most_similar(&self, whole: u64) -> Option<RangeId> {
        let mut best = None;
        // What it costs to build it out of idle handles.
        let mut least = MAP * handle_count(whole);
        let cached = self.ranges.oldest_first().take(LOOKED_AT);
        let usable = cached.filter(|(_, range, cached)| {
            let room = (range.room.end() - first_page(range, &self.windows)) / PAGE;
            // With a page behind it for the window.
            whole < room
                && !range.handles.is_empty()
                && range.pins == 0
                && self.streams.is_done(cached.freed)
        });
        for (id, range, _) in usable.take(COMPARED) {
            let (kept, left) = shrunk(&range.handles, whole);
            let unmapped = &range.handles[kept..];
            // It would make a large handle idle, and small ones would have to be created.
            if left < whole && unmapped.iter().any(|handle| handle.large) {
                continue;
            }
            let window = usize::from(range.window.is_some());
            let cost = (unmapped.len() + window) as u64 + MAP * handle_count(whole - left);
            if cost < least {
                (best, least) = (Some(id), cost);
            }
        }
        best
    }
}

/// How many of the first handles are at most this many pages, and how many pages they are.
fn shrunk(handles: &[Handle], whole: u64) -> (usize, u64) {
    let (mut kept, mut left) = (handles.len(), pages(handles));
    while left > whole {
        kept -= 1;
        left -= handles[kept].bytes() / PAGE;
    }
    (kept, left)
}

fn pages(handles: &[Handle]) -> u64 {
    handles.iter().map(|handle| handle.bytes() / PAGE).sum()
}

/// How many handles this many pages are created as.
fn handle_count(pages: u64) -> u64 {
    pages / LARGE_PAGES + pages % LARGE_PAGES
}

/// The first page of a range that is not its window.
fn first_page(range: &Range, windows: &Slab<OfWindow, Window>) -> u64 {
    let is_head = range
        .window
        .is_some_and(|window| windows[window].page == range.base);
    range.base + if is_head { PAGE } else { 0 }
}
