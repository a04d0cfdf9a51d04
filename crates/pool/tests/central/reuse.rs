//! What is reused, released and counted.

use super::fake::{Error, Fake, KIB, MIB, PAGE};
use super::model::{Model, Numbers};
use cuguard_pool::{Block, Central, PoolError, Settings};
use std::time::{Duration, Instant};

fn model() -> Model {
    Model::new(1 << 30, Settings::default())
}

#[test]
fn a_freed_block_is_allocated_again_without_a_call_of_the_driver() {
    for bytes in [1, 300, 64 * KIB, 256 * KIB, MIB, 3 * MIB, 100 * MIB] {
        let mut model = model();
        let block = model.allocate(0, bytes).unwrap();
        model.free(0, 0);
        model.fake.forbid_calls(true);
        let again = model.pool.allocate(&0, bytes).unwrap();
        model.fake.forbid_calls(false);
        assert_eq!(block.bytes, again.bytes);
        if bytes >= 256 * KIB {
            assert_eq!(block, again);
        }
        model.pool.free(&0, again);
        model.destroy();
    }
}

#[test]
fn tails_and_heads_share_pages() {
    let mut model = model();
    for _ in 0..100 {
        model.allocate(0, 3 * MIB).unwrap();
    }
    assert_eq!(model.pool.stats().held, 300 * MIB);
    assert_eq!(model.pool.pages().len(), 50);
    assert!(
        model
            .pool
            .pages()
            .iter()
            .all(|page| page.used == u128::MAX && page.blocks == 2)
    );
    model.check_overlap();
    model.destroy();
}

#[test]
fn without_sharing_each_block_has_its_own_pages() {
    let settings = Settings {
        share_tails: false,
        ..Settings::default()
    };
    let mut model = Model::new(1 << 30, settings);
    for _ in 0..10 {
        model.allocate(0, 3 * MIB).unwrap();
    }
    assert_eq!(model.pool.stats().held, 40 * MIB);
    model.destroy();
}

#[test]
fn idle_memory_of_any_size_is_used_before_the_pool_grows() {
    let mut model = model();
    model.allocate(0, 512 * MIB).unwrap();
    model.free(0, 0);
    model.fake.complete(0);
    for _ in 0..50 {
        model.allocate(0, 10 * MIB).unwrap();
    }
    assert!(
        model.pool.stats().held <= 512 * MIB,
        "{:?}",
        model.pool.stats()
    );
    while let Some(last) = model.live.len().checked_sub(1) {
        model.free(last, 0);
    }
    model.fake.complete(0);
    // And the other way round, on a card without room for both.
    model.allocate(0, 1000 * MIB).unwrap();
    model.check();
    model.destroy();
}

#[test]
fn out_of_memory_releases_what_is_idle_and_leaves_the_pool_usable() {
    let mut model = model();
    for _ in 0..8 {
        model.allocate(0, 100 * MIB).unwrap();
    }
    let error = model.allocate(0, 300 * MIB).unwrap_err();
    assert_eq!(
        error,
        PoolError::Driver {
            function: "create",
            error: Error::OutOfMemory
        }
    );
    assert_eq!(model.pool.stats().held, 800 * MIB);
    model.free(0, 0);
    assert!(
        model.allocate(0, 300 * MIB).is_err(),
        "its stream may still use it"
    );
    model.fake.complete(0);
    model.allocate(0, 300 * MIB).unwrap();
    model.check();
    model.destroy();
}

#[test]
fn a_size_that_no_device_has_is_refused_at_once() {
    let mut model = model();
    model.allocate(0, MIB).unwrap();
    for bytes in [u64::MAX, u64::MAX - 1, 1 << 50] {
        let error = model.allocate(0, bytes).unwrap_err();
        assert!(
            matches!(
                error,
                PoolError::Driver {
                    function: "reserve",
                    ..
                }
            ),
            "{error}"
        );
    }
    model.check();
    model.destroy();
}

#[test]
fn the_limit_counts_physical_memory() {
    let settings = Settings {
        limit: 100 * MIB,
        ..Settings::default()
    };
    let mut model = Model::new(1 << 30, settings);
    model.allocate(0, 90 * MIB).unwrap();
    let error = model.allocate(0, 20 * MIB).unwrap_err();
    assert!(
        matches!(error, PoolError::Limit { limit, .. } if limit == 100 * MIB),
        "{error}"
    );
    model.free(0, 0);
    model.fake.complete(0);
    model.allocate(0, 20 * MIB).unwrap();
    model.allocate(0, 80 * MIB).unwrap();
    model.destroy();
}

#[test]
fn trim_releases_all_but_what_is_kept() {
    let mut model = model();
    for bytes in [100 * MIB, 3 * MIB, 10 * KIB, 512 * KIB] {
        model.allocate(0, bytes).unwrap();
    }
    while !model.live.is_empty() {
        model.free(0, 0);
    }
    assert_eq!(model.pool.trim(0), Ok(0), "work may still use all of it");
    model.fake.complete(0);
    let held = model.pool.stats().held;
    let released = model.pool.trim(10 * MIB).unwrap();
    let stats = model.pool.stats();
    assert_eq!(stats.held, held - released);
    assert!(stats.held <= 12 * MIB, "{stats:?}");
    model.pool.trim(0).unwrap();
    assert_eq!(model.pool.stats().held, 0);
    model.destroy();
}

#[test]
fn memory_decays() {
    let settings = Settings {
        decay: Duration::from_secs(10),
        ..Settings::default()
    };
    let mut model = Model::new(1 << 30, settings);
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    for bytes in [100 * MIB, 4 * MIB, 10 * KIB] {
        model.allocate(0, bytes).unwrap();
    }
    model.free(0, 0);
    model.fake.complete(0);
    assert_eq!(model.pool.decay(after(0)), Ok(0));
    model.free(0, 0);
    model.free(0, 0);
    model.fake.complete(0);
    assert_eq!(model.pool.decay(after(9)), Ok(0));
    // What was freed before the first call.
    assert_eq!(model.pool.decay(after(10)), Ok(100 * MIB));
    assert_eq!(model.pool.decay(after(18)), Ok(0));
    assert_eq!(model.pool.decay(after(19)), Ok(6 * MIB));
    assert_eq!(model.pool.stats().held, 0);
    model.destroy();
}

#[test]
fn wrong_frees_are_ignored_and_counted() {
    let mut model = model();
    let slot = model.allocate(0, KIB).unwrap();
    let range = model.allocate(0, MIB).unwrap();
    let wrong = [
        Block { address: 0, ..slot },
        Block {
            bytes: 2 * KIB,
            ..slot
        },
        Block { bytes: 0, ..slot },
        Block {
            address: slot.address + 1,
            ..slot
        },
        Block {
            bytes: 2 * MIB,
            ..range
        },
        Block {
            address: range.address + 256,
            ..range
        },
        Block {
            address: range.address,
            bytes: KIB,
        },
    ];
    for block in wrong {
        model.pool.free(&0, block);
    }
    assert_eq!(model.pool.stats().wrong_frees, wrong.len() as u64);
    assert_eq!(model.pool.stats().used, slot.bytes + range.bytes);
    model.free(0, 0);
    model.free(0, 0);
    model.pool.free(&0, slot);
    model.pool.free(&0, range);
    assert_eq!(model.pool.stats().wrong_frees, wrong.len() as u64 + 2);
    model.destroy();
}

#[test]
fn pinned_blocks_stay_on_their_pages() {
    let mut model = model();
    for _ in 0..400 {
        model.allocate(0, MIB).unwrap();
    }
    for _ in 0..800 {
        model.allocate(0, 64 * KIB).unwrap();
    }
    model.free_where(0, |number| number % 4 != 0);
    let places: Vec<_> = model
        .live
        .iter()
        .map(|live| model.fake.extents(live.block.address, live.block.bytes))
        .collect();
    let mut numbers = 0;
    for live in &mut model.live {
        numbers += 1;
        live.pinned = numbers % 3 == 0;
        if live.pinned {
            assert!(model.pool.pin(live.block.address));
        }
    }
    assert!(!model.pool.pin(1) && !model.pool.unpin(1));
    let compacted = model.compact(u64::MAX).unwrap();
    assert!(compacted.moved_windows > 0);
    for (live, before) in model.live.iter().zip(&places) {
        if live.pinned {
            assert_eq!(
                &model.fake.extents(live.block.address, live.block.bytes),
                before
            );
        }
    }
    model.check();
    for live in &mut model.live {
        if std::mem::take(&mut live.pinned) {
            assert!(model.pool.unpin(live.block.address));
        }
    }
    model.destroy();
}

#[test]
fn merging_stops_when_enough_is_released_and_can_be_switched_off() {
    for merge in [true, false] {
        let settings = Settings {
            merge,
            ..Settings::default()
        };
        let mut model = Model::new(1 << 30, settings);
        for _ in 0..400 {
            model.allocate(0, MIB).unwrap();
        }
        model.free_where(0, |number| number % 2 == 0);
        let compacted = model.compact(10 * MIB).unwrap();
        if merge {
            assert!(
                compacted.released >= 10 * MIB && compacted.released <= 130 * MIB,
                "{compacted:?}"
            );
        } else {
            assert_eq!(compacted.moved_windows, 0);
        }
        model.check();
        model.destroy();
    }
}

#[test]
fn blocks_of_one_size_come_many_at_a_time() {
    let mut model = model();
    assert_eq!(model.allocate_many(0, 256, 64), Ok(64));
    assert_eq!(model.allocate_many(0, MIB, 64), Ok(1));
    while !model.live.is_empty() {
        model.free(0, 0);
    }
    for _ in 0..5 {
        model.allocate(0, MIB).unwrap();
    }
    let addresses: Vec<u64> = model.live.iter().map(|live| live.block.address).collect();
    for live in std::mem::take(&mut model.live) {
        model.fake.freed(0, live.block.address);
    }
    model.pool.free_many(&0, MIB, &addresses);
    assert_eq!(model.allocate_many(0, MIB, 64), Ok(5));
    model.check();
    model.check_overlap();
    model.destroy();
}

#[test]
fn the_pool_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Central<Fake>>();
    let pool = Central::new(Fake::new(4 << 30), Settings::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..50 {
                pool.trim(8 * MIB).unwrap();
                pool.compact(u64::MAX).unwrap();
            }
        });
        for thread in 0..4u64 {
            let pool = &pool;
            scope.spawn(move || {
                let mut blocks = Vec::new();
                for step in 0..2000u64 {
                    let bytes = 256 << ((step * 7 + thread) % 14);
                    blocks.push(pool.allocate(&thread, bytes).unwrap());
                    if step % 3 != 0 {
                        let block = blocks.swap_remove((step * 31) as usize % blocks.len());
                        pool.free(&thread, block);
                    }
                }
                blocks
                    .into_iter()
                    .for_each(|block| pool.free(&thread, block));
            });
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.used, stats.wrong_frees), (0, 0));
    assert_eq!(stats.held % PAGE, 0);
    pool.destroy().unwrap();
}

#[test]
fn blocks_below_2_mib_of_many_sizes_need_hardly_a_call_of_the_driver() {
    let mut model = Model::new(4 << 30, Settings::default());
    let mut numbers = Numbers(3);
    let mut churn = |model: &mut Model, steps: u64| {
        for _ in 0..steps {
            if model.live.len() >= 300 {
                model.free(numbers.below(300) as usize, 0);
                model.fake.complete(0);
            }
            model
                .allocate(0, 256 * KIB + numbers.below(768 * KIB))
                .unwrap();
        }
    };
    churn(&mut model, 3000);
    let before = model.fake.calls_of("map");
    churn(&mut model, 3000);
    let mapped = model.fake.calls_of("map") - before;
    assert!(mapped <= 60, "{mapped} of 3000 blocks were mapped");
    model.check();
    model.check_overlap();
    model.destroy();
}

#[test]
fn the_pins_of_a_block_end_when_it_is_freed() {
    for bytes in [64 * KIB, MIB, 3 * MIB, 4 * MIB] {
        let mut model = Model::new(1 << 30, Settings::default());
        let address = model.allocate(0, bytes).unwrap().address;
        assert!(model.pool.pin(address) && model.pool.pin(address));
        model.free(0, 0);
        assert!(!model.pool.unpin(address));
        model.fake.complete_all();
        model.pool.trim(0).unwrap();
        assert_eq!(model.pool.stats().held, 0, "{bytes}");
        model.destroy();
    }
}

#[test]
fn a_pin_is_of_one_block() {
    let mut model = Model::new(1 << 30, Settings::default());
    let mut addresses: Vec<u64> = (0..32)
        .map(|_| model.allocate(0, 64 * KIB).unwrap().address)
        .collect();
    addresses.sort_unstable();
    let together = addresses
        .windows(2)
        .find(|two| two[0] / PAGE == two[1] / PAGE);
    let [one, other] = *together.expect("two in one window") else {
        unreachable!();
    };
    assert!(model.pool.pin(one));
    assert!(!model.pool.unpin(other), "it has no pin");
    let pinned = |model: &Model| model.pool.pages().iter().filter(|page| page.pinned).count();
    assert_ne!(pinned(&model), 0);
    // The free of the other leaves the pin, too.
    let at = model
        .live
        .iter()
        .position(|live| live.block.address == other);
    model.free(at.unwrap(), 0);
    assert_ne!(pinned(&model), 0);
    assert!(model.pool.unpin(one));
    assert_eq!(pinned(&model), 0);
    model.destroy();
}

#[test]
fn the_size_of_a_block_is_known() {
    let mut model = Model::new(1 << 30, Settings::default());
    for bytes in [1, 64 * KIB, MIB + 1, 3 * MIB] {
        let block = model.allocate(0, bytes).unwrap();
        assert_eq!(model.pool.bytes_at(block.address), Some(block.bytes));
        assert_eq!(model.pool.bytes_at(block.address + 256), None);
        model.free(0, 0);
        assert_eq!(model.pool.bytes_at(block.address), None);
    }
    model.destroy();
}

/// A block that cannot fit does not take the whole device before it fails.
#[test]
fn what_cannot_fit_fails_before_anything_is_created() {
    let limited = Settings {
        limit: 500 * MIB,
        ..Settings::default()
    };
    for settings in [Settings::default(), limited] {
        let mut model = Model::new(1 << 30, settings);
        model.allocate(0, 100 * MIB).unwrap();
        for _ in 0..8 {
            model.allocate(0, 10 * MIB).unwrap();
        }
        let room = settings.limit.min(1 << 30);
        let created = model.fake.calls_of("create");
        let error = model.allocate(0, room - 100 * MIB).unwrap_err();
        let is_expected = match error {
            PoolError::Driver { error, .. } => error == Error::OutOfMemory,
            PoolError::Limit { limit, .. } => limit == settings.limit,
            PoolError::Stuck { .. } => false,
        };
        assert!(is_expected, "{error}");
        assert_eq!(model.fake.calls_of("create"), created);
        // What is idle counts as room, in handles of any size.
        model.free_where(0, |number| number > 0);
        model.fake.complete_all();
        model.allocate(0, room - 100 * MIB).unwrap();
        model.check();
        model.destroy();
    }
}
