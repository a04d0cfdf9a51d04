//! What a pool says about itself: plain data.

/// How much memory a pool holds and what for, in bytes, and how many parts it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Blocks that are allocated, rounded up. Blocks in the caches of threads are among them.
    pub used: u64,
    /// Freed blocks of 256 KiB or more that are still mapped.
    pub cached: u64,
    /// Free slots: blocks below 256 KiB.
    pub free_slots: u64,
    /// Physical memory that nothing is mapped onto.
    pub idle: u64,
    /// Physical memory, all of it.
    pub held: u64,
    /// Reserved addresses.
    pub reserved: u64,
    /// Physical pages that blocks share.
    pub frames: usize,
    /// Pages of addresses mapped onto them.
    pub windows: usize,
    /// Blocks of 256 KiB or more, the cached ones too.
    pub ranges: usize,
    /// The cached ones.
    pub cached_ranges: usize,
    /// Physical handles whose release was refused. They are retried and count as held.
    pub kept_handles: usize,
    /// Address ranges whose unmapping was refused. They are retried; their memory counts as held.
    pub kept_mappings: usize,
    /// Pages with live blocks that could not be mapped again.
    pub stuck_windows: usize,
    /// Frees of an address that is not that of a live block; they are ignored.
    pub wrong_frees: u64,
    /// Physical pages that were emptied into others since the pool was created.
    pub merged_frames: u64,
    /// Pages of addresses that were mapped onto another physical page since the pool was created.
    pub merged_windows: u64,
}

impl Stats {
    /// Freed blocks that are mapped, and free slots: physical memory. Free parts of merged pages are behind several
    /// addresses, and count in [`cached`](Self::cached) and [`free_slots`](Self::free_slots) for each of them.
    #[must_use]
    pub fn mapped_free(&self) -> u64 {
        let rest = self
            .held
            .saturating_sub(self.used.saturating_add(self.idle));
        self.cached.saturating_add(self.free_slots).min(rest)
    }
}

/// What a pool holds, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// How much, and what for.
    pub stats: Stats,
    /// Physical pages that must stay behind their addresses.
    pub pinned_pages: u64,
    /// Freed blocks in the caches of threads, in bytes. They count as [used](Stats::used) in `stats`.
    pub cached_by_threads: u64,
}

/// The use of one physical page that blocks share.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageUse {
    /// The addresses of the pages that are mapped onto it.
    pub addresses: Vec<u64>,
    /// The granules of 16 KiB in use, the lowest bit first.
    pub used: u128,
    /// Live blocks in it; of a longer block, its first or last page counts.
    pub blocks: usize,
    /// Whether it must stay behind its addresses.
    pub pinned: bool,
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Physical memory released to the driver, in bytes.
    pub released: u64,
    /// Physical pages that were emptied into others.
    pub merged_frames: usize,
    /// Pages of addresses that were mapped onto another physical page.
    pub moved_windows: usize,
    /// Bytes that were copied for it.
    pub copied_bytes: u64,
    /// Whether the driver refused a call, so that less was merged than can be. Every block has its bytes.
    pub refused: bool,
}
