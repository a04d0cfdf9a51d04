//! Ranges: blocks of 256 KiB or more, and the cache of freed ones.
//!
//! A freed range stays mapped, in a list of its size and stream and in one list of all by the time of the free.

use crate::handles::Handle;
use crate::hash::FastMap;
use crate::shelf::Shelf;
use crate::size::PAGE;
use crate::slab::{OfRange, RangeId, Slab, WindowId};
use crate::streams::Freed;

/// One block and its run of pages.
#[derive(Debug)]
pub(crate) struct Range {
    /// The block's address: within the first page where that is the window.
    pub(crate) address: u64,
    /// What the block occupies.
    pub(crate) bytes: u64,
    /// The first page.
    pub(crate) base: u64,
    /// All pages, with the window.
    pub(crate) pages: u64,
    pub(crate) room: Room,
    /// What the pages that are not shared are mapped onto.
    pub(crate) handles: Vec<Handle>,
    /// The page that is shared with other blocks: the first, the last, or the only one.
    pub(crate) window: Option<WindowId>,
    /// A number that no program reaches.
    pub(crate) pins: u64,
    pub(crate) cached: Option<Cached>,
}

/// Addresses that belong to a range: more than it needs, so that it can be resized in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) start: u64,
    pub(crate) pages: u64,
}

impl Room {
    pub(crate) fn end(self) -> u64 {
        self.start + self.pages * PAGE
    }
}

/// A freed range's places in the lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cached {
    pub(crate) freed: Freed,
    /// When it was freed.
    pub(crate) since: u64,
    /// The list of its size that it is in, and its position there.
    list: u64,
    at: usize,
    older: Option<RangeId>,
    newer: Option<RangeId>,
}

#[derive(Debug)]
pub(crate) struct Ranges {
    slab: Slab<OfRange, Range>,
    by_address: FastMap<RangeId>,
    shelves: FastMap<Shelf<RangeId>>,
    oldest: Option<RangeId>,
    newest: Option<RangeId>,
    cached_bytes: u64,
    cached_count: usize,
}

impl Ranges {
    pub(crate) fn new() -> Self {
        Self {
            slab: Slab::new(),
            by_address: FastMap::default(),
            shelves: FastMap::default(),
            oldest: None,
            newest: None,
            cached_bytes: 0,
            cached_count: 0,
        }
    }

    pub(crate) fn insert(&mut self, range: Range) -> RangeId {
        let address = range.address;
        let id = self.slab.insert(range);
        self.by_address.insert(address, id);
        id
    }

    /// Removes a range that is not in the cache.
    pub(crate) fn remove(&mut self, id: RangeId) -> Range {
        let range = self.slab.remove(id);
        self.by_address.remove(&range.address);
        range
    }

    pub(crate) fn at(&self, address: u64) -> Option<RangeId> {
        self.by_address.get(&address).copied()
    }

    /// Takes a cached range of this size that was freed on the stream, or that any stream may use.
    pub(crate) fn take(&mut self, bytes: u64, stream: u64) -> Option<RangeId> {
        let shelf = self.shelves.get_mut(&bytes)?;
        let of_stream = shelf.find(stream).and_then(|list| list.last().copied());
        let id = of_stream.or_else(|| shelf.find(Freed::CLEAN.stream)?.last().copied())?;
        self.uncache(id);
        Some(id)
    }

    /// Makes the cached ranges of one size that are done usable by any stream.
    pub(crate) fn sweep(&mut self, bytes: u64, is_done: impl Fn(Freed) -> bool) {
        let (slab, clean) = (&mut self.slab, Freed::CLEAN.stream);
        let Some(shelf) = self.shelves.get_mut(&bytes) else {
            return;
        };
        let done = shelf.extract(|of, &id| {
            of != clean && slab[id].cached.is_some_and(|cached| is_done(cached.freed))
        });
        shelf.list(clean).extend(done);
        shelf.for_each_at(|of, at, &id| {
            if let Some(cached) = &mut slab[id].cached {
                (cached.list, cached.at) = (of, at);
            }
        });
    }

    /// Puts a range into the cache.
    pub(crate) fn cache(&mut self, id: RangeId, freed: Freed, now: u64) {
        let range = &mut self.slab[id];
        let list = self
            .shelves
            .entry(range.bytes)
            .or_insert_with(Shelf::new)
            .list(freed.stream);
        range.cached = Some(Cached {
            freed,
            since: now,
            list: freed.stream,
            at: list.len(),
            older: self.newest,
            newer: None,
        });
        self.cached_bytes += range.bytes;
        self.cached_count += 1;
        list.push(id);
        self.link(self.newest, Some(id));
        self.newest = Some(id);
    }

    /// Takes a range out of the cache.
    pub(crate) fn uncache(&mut self, id: RangeId) {
        let range = &mut self.slab[id];
        let bytes = range.bytes;
        let Some(cached) = range.cached.take() else {
            return;
        };
        self.cached_bytes -= bytes;
        self.cached_count -= 1;
        if let Some(shelf) = self.shelves.get_mut(&bytes)
            && let Some(moved) = shelf.remove(cached.list, cached.at)
            && let Some(moved) = &mut self.slab[moved].cached
        {
            moved.at = cached.at;
        }
        self.link(cached.older, cached.newer);
        if cached.newer.is_none() {
            self.newest = cached.older;
        }
    }

    /// The cached ranges, the one freed first at the front.
    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = (RangeId, &Range, Cached)> {
        let mut next = self.oldest;
        std::iter::from_fn(move || {
            let id = next?;
            let range = &self.slab[id];
            let cached = range.cached?;
            next = cached.newer;
            Some((id, range, cached))
        })
    }

    /// Forgets the list of a size that has no cached range.
    pub(crate) fn drop_list_if_empty(&mut self, bytes: u64) {
        if self.shelves.get(&bytes).is_some_and(Shelf::is_empty) {
            self.shelves.remove(&bytes);
        }
    }

    /// Forgets the lists of sizes that have no cached range.
    pub(crate) fn drop_empty_lists(&mut self) {
        self.shelves.retain(|_, shelf| !shelf.is_empty());
    }

    pub(crate) fn cached_bytes(&self) -> u64 {
        self.cached_bytes
    }

    pub(crate) fn cached_count(&self) -> usize {
        self.cached_count
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range> {
        self.slab.iter().map(|(_, range)| range)
    }

    pub(crate) fn keys(&self) -> Vec<RangeId> {
        self.slab.keys()
    }

    /// Makes two ranges neighbours in the list by time.
    fn link(&mut self, older: Option<RangeId>, newer: Option<RangeId>) {
        match older {
            Some(older) => {
                if let Some(cached) = &mut self.slab[older].cached {
                    cached.newer = newer;
                }
            }
            None => self.oldest = newer,
        }
        if let Some(newer) = newer
            && let Some(cached) = &mut self.slab[newer].cached
        {
            cached.older = older;
        }
    }
}

impl std::ops::Index<RangeId> for Ranges {
    type Output = Range;

    #[inline]
    fn index(&self, id: RangeId) -> &Range {
        &self.slab[id]
    }
}

impl std::ops::IndexMut<RangeId> for Ranges {
    #[inline]
    fn index_mut(&mut self, id: RangeId) -> &mut Range {
        &mut self.slab[id]
    }
}
