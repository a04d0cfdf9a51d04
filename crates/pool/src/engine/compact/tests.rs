//! Slots of windows that are moved, with a driver that refuses nothing.

use crate::engine::attach::slot_granules;
use crate::engine::test_driver::Numbers;
use crate::random::Random;
use crate::settings::Settings;
use crate::size::rounded;
use crate::state::State;

const SLOT: u64 = 64 << 10;
const RANGE: u64 = 1 << 20;

/// A pool and its live blocks.
struct Used {
    state: State<Numbers>,
    blocks: Vec<(u64, u64)>,
    random: Random,
}

impl Used {
    fn new(seed: u64) -> Self {
        Self {
            state: State::new(Numbers::default(), Settings::default()),
            blocks: Vec::new(),
            random: Random::new(seed),
        }
    }

    fn allocate(&mut self, bytes: u64, count: usize) {
        for _ in 0..count {
            let address = match bytes {
                SLOT => self.state.allocate_slot(0, rounded(SLOT)),
                _ => self.state.allocate_range(0, rounded(bytes)),
            };
            self.blocks.push((address.unwrap(), bytes));
        }
    }

    /// Frees all but about one block in `of`.
    fn keep_one_in(&mut self, of: u32) {
        for (address, bytes) in std::mem::take(&mut self.blocks) {
            if self.random.below(of) == 0 {
                self.blocks.push((address, bytes));
            } else if bytes == SLOT {
                self.state.free_slot(&0, address, bytes);
            } else {
                self.state.free_range(&0, address, bytes);
            }
        }
    }

    /// Allocates all slots that are free, so that those which are blocked are found.
    fn fill_slots(&mut self) {
        let class = crate::size::class_of(SLOT);
        while let Some(address) = self.state.take_slot(class, 0) {
            self.blocks.push((address, SLOT));
        }
    }

    /// Slots in no list. Each of them is blocked.
    fn blocked_slots(&self) -> usize {
        let mut count = 0;
        for id in self.state.windows.keys() {
            let window = &self.state.windows[id];
            if let Some(slots) = window.slots() {
                for &slot in &slots.blocked {
                    let granules = slot_granules(slots.class, slot);
                    assert!(self.state.is_blocked(window, granules), "slot {slot}");
                    count += 1;
                }
            }
        }
        count
    }
}

/// A slot that is blocked where its window is, and not where the window is moved to, is free again.
#[test]
fn slots_in_no_list_are_blocked() {
    let (mut blocked, mut moved) = (0, 0);
    for seed in 1..=100 {
        let mut used = Used::new(seed);
        for _ in 0..3 {
            used.allocate(SLOT, 64);
            used.allocate(RANGE, 24);
            used.keep_one_in(3);
            used.state.compact(u64::MAX).unwrap();
            used.fill_slots();
            blocked += used.blocked_slots();
            used.keep_one_in(3);
            let compacted = used.state.compact(u64::MAX).unwrap();
            moved += compacted.moved_windows;
            used.blocked_slots();
        }
    }
    assert!(blocked > 100 && moved > 100, "{blocked}, {moved}");
}
