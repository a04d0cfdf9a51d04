//! What stays in the pool: after a trim that keeps some, after an allocation that failed, and after a compaction that was
//! refused half-way.

use super::fake::{Fake, KIB, MIB, PAGE};
use super::model::{Model, Numbers};
use cuguard_pool::{Pool, PoolError, Settings};
use std::time::{Duration, Instant};

/// Blocks of one size that are freed, with their streams done.
fn idle(settings: Settings, bytes: u64, count: usize) -> Model {
    let mut model = Model::new(4 << 30, settings);
    for _ in 0..count {
        model.allocate(0, bytes).unwrap();
    }
    model.free_where(0, |_| true);
    model.fake.complete_all();
    model
}

#[test]
fn trim_keeps_what_it_is_told_to() {
    for (bytes, count) in [(64 * MIB, 8), (8 * MIB, 64), (MIB, 512), (64 * KIB, 8192)] {
        let model = idle(Settings::default(), bytes, count);
        assert_eq!(model.pool.stats().held, 512 * MIB);
        let released = model.pool.trim(256 * MIB).unwrap();
        let held = model.pool.stats().held;
        assert_eq!((released, held), (256 * MIB, 256 * MIB), "{bytes}");
        // There is nothing more to release.
        assert_eq!(model.pool.trim(256 * MIB), Ok(0));
        assert_eq!(model.pool.trim(0), Ok(256 * MIB));
        model.destroy();
    }
}

#[test]
fn decay_keeps_what_the_settings_say() {
    let settings = Settings {
        keep: 256 * MIB,
        decay: Duration::from_secs(1),
        ..Settings::default()
    };
    let model = idle(settings, 8 * MIB, 64);
    let start = Instant::now();
    for seconds in 0..4 {
        model
            .pool
            .decay(start + Duration::from_secs(seconds))
            .unwrap();
    }
    assert_eq!(model.pool.stats().held, 256 * MIB);
    model.destroy();
}

/// What stays is the memory that was freed last, still mapped: a block of it needs no call of the driver.
#[test]
fn what_is_kept_stays_mapped() {
    let mut model = idle(Settings::default(), 8 * MIB, 64);
    model.pool.trim(256 * MIB).unwrap();
    model.fake.forbid_calls(true);
    for _ in 0..32 {
        model.allocate(0, 8 * MIB).unwrap();
    }
    model.fake.forbid_calls(false);
    model.destroy();
}

/// The pages of a block for whose remainder there is no page.
#[test]
fn an_allocation_that_fails_leaves_no_pages() {
    let mut model = Model::new(3 * PAGE, Settings::default());
    let error = model.allocate(0, 3 * PAGE + MIB).unwrap_err();
    assert!(
        matches!(
            error,
            PoolError::Driver {
                function: "create",
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(model.fake.held(), 0);
    model.allocate(0, 3 * PAGE).unwrap();
    model.destroy();
}

/// A compaction in which a page could not be mapped again.
fn stuck() -> (Fake, Pool<Fake>, Vec<cuguard_pool::Block>) {
    let fake = Fake::new(1 << 30);
    let pool = Pool::new(fake.clone(), Settings::default());
    let mut blocks: Vec<_> = (0..64).map(|_| pool.allocate(&0, MIB).unwrap()).collect();
    let mut number = 0;
    blocks.retain(|&block| {
        number += 1;
        let keep = number % 2 == 0;
        if !keep {
            pool.free(&0, block);
        }
        keep
    });
    pool.flush();
    fake.complete_all();
    fake.quiet(true);
    fake.refuse_functions(&["map"]);
    assert!(pool.compact(u64::MAX).is_err());
    assert_eq!(pool.stats().stuck_windows, 1);
    (fake, pool, blocks)
}

/// While a page with blocks is not mapped, no block is handed out: it may be one of that page.
#[test]
fn no_cache_hands_out_blocks_while_a_page_is_stuck() {
    let (fake, pool, mut blocks) = stuck();
    while let Some(block) = blocks.pop() {
        pool.free(&0, block);
        assert_eq!(
            pool.allocate(&0, MIB),
            Err(PoolError::Stuck { windows: 1 }),
            "{} blocks are left",
            blocks.len()
        );
    }
    assert_eq!(pool.cached_by_threads(), 0);
    // The driver works again, and so do the caches.
    fake.refuse_functions(&[]);
    let block = pool.allocate(&0, MIB).unwrap();
    fake.write(block.address, 1);
    pool.free(&0, block);
    assert_ne!(pool.cached_by_threads(), 0);
    pool.destroy().unwrap();
    fake.assert_empty();
}

/// Slots of windows that were moved, when the frame that they came from was not emptied: all of them can be had again.
#[test]
fn no_slot_is_lost_when_a_compaction_is_refused() {
    let mut partly = 0;
    for refused in 0..250 {
        let mut model = Model::new(1 << 30, Settings::default());
        for _ in 0..8 * 32 {
            model.allocate(0, 64 * KIB).unwrap();
        }
        let mut numbers = Numbers(refused + 1);
        model.free_where(0, |_| numbers.below(3) > 0);
        let start = model.fake.calls();
        model.fake.refuse(start + refused..start + refused + 1);
        let compacted = model.compact(u64::MAX);
        model.fake.refuse(0..0);
        let is_partly = compacted.map_or(true, |compacted| compacted.refused);
        if !is_partly || model.pool.stats().merged_windows == 0 {
            model.destroy();
            continue;
        }
        partly += 1;
        // One block of each frame stays, at most. Empty windows are unmapped, and nothing moves.
        model.free_where(0, |number| number % 24 != 0);
        model.fake.refuse_functions(&["copy"]);
        let _ = model.compact(u64::MAX);
        model.fake.refuse_functions(&["create"]);
        let frames = model.pool.stats().frames;
        while model.allocate(0, 64 * KIB).is_ok() {}
        model.fake.refuse_functions(&[]);
        model.check();
        model.check_overlap();
        assert_eq!(model.live.len(), frames * 32, "call {refused} is refused");
        model.destroy();
    }
    assert!(partly > 5, "{partly}");
}
