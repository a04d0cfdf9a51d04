//! Cached blocks become blocks of a similar size.

use super::fake::MIB;
use super::model::Model;
use cuguard_pool::Settings;

/// A block of the first size is freed and one of the second allocated. Returns the calls of `map` and of `unmap` for that.
fn resize(from: u64, to: u64) -> (u64, u64) {
    let mut model = Model::new(1 << 30, Settings::default());
    model.allocate(0, from).unwrap();
    model.free(0, 0);
    model.fake.complete(0);
    let calls = |model: &Model| ["map", "unmap"].map(|function| model.fake.calls_of(function));
    let before = calls(&model);
    model.allocate(0, to).unwrap();
    let after = calls(&model);
    assert!(
        model.pool.stats().held <= from.max(to) + 2 * MIB,
        "{:?}",
        model.pool.stats()
    );
    model.check();
    model.check_overlap();
    model.destroy();
    (after[0] - before[0], after[1] - before[1])
}

#[test]
fn a_longer_block_is_mapped_where_it_is_longer() {
    // One call for each of two pages.
    assert_eq!(resize(100 * MIB, 104 * MIB), (2, 0));
    // The last page is another block's too, before and after.
    assert_eq!(resize(101 * MIB, 105 * MIB), (3, 1));
    assert_eq!(resize(101 * MIB, 104 * MIB), (2, 1));
}

#[test]
fn a_shorter_block_is_unmapped_where_it_was_longer() {
    // One call for all pages.
    assert_eq!(resize(104 * MIB, 100 * MIB), (0, 1));
    assert_eq!(resize(105 * MIB, 101 * MIB), (1, 2));
}

/// In one call, with a window in front or behind.
#[test]
fn access_is_permitted_once_for_a_block_that_is_not_resized() {
    let mut model = Model::new(1 << 30, Settings::default());
    for _ in 0..100 {
        model.allocate(0, 3 * MIB).unwrap();
    }
    assert_eq!(model.fake.calls_of("set_access"), 100);
    model.destroy();
}

/// Its handles are of 64 MiB: the pages that are missing would have to be created, and a large handle be released.
#[test]
fn a_block_is_not_resized_by_a_part_of_a_large_handle() {
    let mut model = Model::new(1 << 30, Settings::default());
    model.allocate(0, 256 * MIB).unwrap();
    model.free(0, 0);
    model.fake.complete(0);
    let (creates, releases) = (
        model.fake.calls_of("create"),
        model.fake.calls_of("release"),
    );
    model.allocate(0, 254 * MIB).unwrap();
    // Three of the four are used, one is released for 31 small ones.
    assert_eq!(model.fake.calls_of("create") - creates, 31);
    assert_eq!(model.fake.calls_of("release") - releases, 1);
    model.check();
    model.destroy();
}

/// One page costs one large handle, not the cache.
#[test]
fn a_small_block_leaves_cached_large_ones() {
    let mut model = Model::new(4 << 30, Settings::default());
    for _ in 0..20 {
        model.allocate(0, 128 * MIB).unwrap();
    }
    while let Some(last) = model.live.len().checked_sub(1) {
        model.free(last, 0);
    }
    model.fake.complete(0);
    model.allocate(0, 1).unwrap();
    assert!(
        model.pool.stats().cached >= 19 * 128 * MIB,
        "{:?}",
        model.pool.stats()
    );
    model.check();
    model.destroy();
}

#[test]
fn a_size_that_no_device_has_is_refused_beside_cached_blocks() {
    let mut model = Model::new(1 << 30, Settings::default());
    model.allocate(0, 100 * MIB).unwrap();
    model.free(0, 0);
    model.fake.complete(0);
    for bytes in [u64::MAX, u64::MAX - (1 << 30), 1 << 50] {
        model.allocate(0, bytes).unwrap_err();
        assert_eq!(model.pool.stats().cached, 100 * MIB, "{bytes}");
    }
    model.destroy();
}

/// A cached block that was a part of what could not be allocated is released with the rest.
#[test]
fn what_no_block_uses_is_released_when_growth_is_refused() {
    let settings = Settings {
        limit: 150 * MIB,
        ..Settings::default()
    };
    let mut model = Model::new(1 << 30, settings);
    model.allocate(0, 100 * MIB).unwrap();
    model.free(0, 0);
    model.fake.complete(0);
    model.allocate(0, 180 * MIB).unwrap_err();
    assert_eq!(model.pool.stats().held, 0, "{:?}", model.pool.stats());
    model.check();
    model.destroy();
}

/// Nothing in front of a block is mapped that has no addresses there.
#[test]
fn a_block_without_addresses_to_grow_into() {
    let mut model = Model::new(1 << 30, Settings::default());
    model.fake.limit_reservations(24 * MIB);
    for _ in 0..30 {
        model.allocate(0, 21 * MIB).unwrap();
    }
    model.check();
    model.check_overlap();
    model.destroy();
}

#[test]
fn a_block_that_its_stream_may_still_use_is_not_resized() {
    let mut model = Model::new(1 << 30, Settings::default());
    model.allocate(0, 100 * MIB).unwrap();
    model.free(0, 0);
    model.allocate(1, 104 * MIB).unwrap();
    assert!(model.pool.stats().held >= 204 * MIB);
    model.check();
    model.destroy();
}

/// Nothing but the block is in the addresses that it may grow into, and it does not grow further.
#[test]
fn a_block_that_grows_meets_no_other() {
    let mut model = Model::new(4 << 30, Settings::default());
    for _ in 0..3 {
        model.allocate(0, 40 * MIB).unwrap();
    }
    for bytes in (44..400).step_by(4) {
        model.free(1, 0);
        model.fake.complete(0);
        model.allocate(0, bytes * MIB).unwrap();
        // The block that was allocated last is the last of the model.
        let last = model.live.len() - 1;
        model.live.swap(1, last);
        model.check();
        model.check_overlap();
    }
    model.destroy();
}

/// Little memory that no block uses stays as it is: two sizes in turn need no call once both were there.
#[test]
fn a_little_is_not_resized() {
    let mut model = Model::new(1 << 30, Settings::default());
    for round in 0..10 {
        for bytes in [10 * MIB, 12 * MIB] {
            model.fake.forbid_calls(round > 1);
            model.allocate(0, bytes).unwrap();
            model.free(0, 0);
            model.fake.forbid_calls(false);
            model.fake.complete(0);
        }
    }
    model.destroy();
}

/// A large handle that is released for small ones stands for them once: not for others after these are released too.
#[test]
fn small_handles_are_created_in_place_of_a_large_one_once() {
    let mut model = Model::new(1 << 30, Settings::default());
    let large_is_idle = |model: &mut Model| {
        model.allocate(0, 64 * MIB).unwrap();
        model.free(0, 0);
        model.fake.complete_all();
    };
    large_is_idle(&mut model);
    model.allocate(1, 4 * MIB).unwrap();
    model.free(0, 1);
    model.fake.complete_all();
    model.pool.trim(0).unwrap();
    assert_eq!(model.pool.stats().held, 0);
    large_is_idle(&mut model);
    model.allocate(1, 40 * MIB).unwrap();
    assert_eq!(model.pool.stats().held, 40 * MIB);
    model.check();
    model.destroy();
}
