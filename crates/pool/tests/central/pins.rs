//! Pinned blocks: they stay, and the rest of their pages is used all the same.

use super::fake::{KIB, MIB, PAGE};
use super::model::Model;
use cuguard_pool::Settings;

/// Pins each block of a size as soon as it is allocated, and returns how much the pool holds.
fn held_with_pins(model: &mut Model, bytes: u64, count: usize) -> u64 {
    for _ in 0..count {
        let block = model.allocate(0, bytes).unwrap();
        assert!(model.pool.pin(block.address));
    }
    model.pool.stats().held
}

#[test]
fn other_blocks_are_placed_in_pinned_pages() {
    let mut model = Model::new(1 << 30, Settings::default());
    // Six blocks of 304 KiB fit a page.
    let held = held_with_pins(&mut model, 300 * KIB, 120);
    assert_eq!(held, 20 * PAGE);
    model.check();
    model.check_overlap();
    model.destroy();
}

#[test]
fn the_remainder_of_a_long_block_is_placed_in_a_pinned_page() {
    let mut model = Model::new(1 << 30, Settings::default());
    // Each has one page of its own and half of another one.
    let held = held_with_pins(&mut model, 3 * MIB, 40);
    assert_eq!(held, 60 * PAGE);
    model.check_overlap();
    model.destroy();
}

#[test]
fn freed_blocks_of_pinned_pages_are_reused_by_other_sizes() {
    let mut model = Model::new(1 << 30, Settings::default());
    for _ in 0..20 {
        model.allocate(0, MIB).unwrap();
    }
    let held = model.pool.stats().held;
    for live in model.live.iter().step_by(2) {
        assert!(model.pool.pin(live.block.address));
    }
    model.free_where(0, |number| number % 2 == 1);
    model.fake.complete_all();
    for _ in 0..20 {
        model.allocate(0, 500 * KIB).unwrap();
    }
    assert_eq!(model.pool.stats().held, held);
    model.check();
    model.check_overlap();
    model.destroy();
}

#[test]
fn pages_are_merged_into_pinned_ones() {
    let mut model = Model::new(1 << 30, Settings::default());
    let pages = 128;
    for _ in 0..2 * pages {
        model.allocate(0, MIB).unwrap();
    }
    assert_eq!(model.pool.stats().held, pages as u64 * PAGE);
    // One block of each page stays; in every other page it is pinned.
    model.free_where(0, |number| number % 2 == 1);
    let mut before = Vec::new();
    for live in model.live.iter().step_by(2) {
        let address = live.block.address;
        assert!(model.pool.pin(address));
        before.push((address, model.fake.extents(address, MIB).unwrap()));
    }
    let compacted = model.compact(u64::MAX).unwrap();
    // Not more than half of those that are not pinned fit each other.
    assert!(
        compacted.merged_frames > pages * 3 / 8,
        "{compacted:?} of {pages} pages"
    );
    for (address, extents) in before {
        assert_eq!(model.fake.extents(address, MIB).unwrap(), extents);
    }
    model.check();
    model.check_overlap();
    model.destroy();
}
