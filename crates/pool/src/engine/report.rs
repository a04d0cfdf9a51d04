//! What a pool says about itself.

use crate::driver::Driver;
use crate::size::PAGE;
use crate::state::State;
use crate::stats::{PageUse, Stats, Usage};
use crate::windows::Content;

impl<D: Driver> State<D> {
    pub(crate) fn stats(&self) -> Stats {
        Stats {
            used: self.used,
            cached: self.ranges.cached_bytes(),
            free_slots: self.slots.free_bytes,
            idle: self.handles.idle_pages() * PAGE,
            held: self.handles.held(),
            reserved: self.addresses.reserved(),
            frames: self.frames.len(),
            windows: self.windows.len(),
            ranges: self.ranges.len(),
            cached_ranges: self.ranges.cached_count(),
            kept_handles: self.handles.kept(),
            kept_mappings: self.kept_mappings.len(),
            stuck_windows: self.stuck.len(),
            wrong_frees: self.wrong_frees,
            merged_frames: self.merged_frames,
            merged_windows: self.merged_windows,
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        let shared = self.frames.iter().filter(|(_, frame)| frame.pins > 0);
        // The pages of a long block that are its own.
        let pinned = self.ranges.iter().filter(|range| range.pins > 0);
        let own = pinned.map(|range| range.pages - u64::from(range.window.is_some()));
        Usage {
            stats: self.stats(),
            pinned_pages: shared.count() as u64 + own.sum::<u64>(),
            // The caches are in front of this: `Pool::try_usage` adds them.
            cached_by_threads: 0,
        }
    }

    pub(crate) fn page_uses(&self) -> Vec<PageUse> {
        let mut uses: Vec<PageUse> = self
            .frames
            .iter()
            .map(|(_, frame)| {
                let windows = || frame.windows.iter().map(|&id| &self.windows[id]);
                let mut addresses: Vec<u64> = windows().map(|window| window.page).collect();
                addresses.sort_unstable();
                let blocks = |content: &Content| match content {
                    Content::Range(id) => usize::from(self.ranges[*id].cached.is_none()),
                    Content::Slots(slots) => slots.live_count as usize,
                    Content::Vacant | Content::Kept => 0,
                };
                PageUse {
                    addresses,
                    used: frame.used,
                    blocks: windows().map(|window| blocks(&window.content)).sum(),
                    pinned: frame.pins > 0,
                }
            })
            .collect();
        uses.sort_unstable_by(|one, two| one.addresses.cmp(&two.addresses));
        uses
    }
}
