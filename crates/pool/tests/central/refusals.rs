//! Every call of the driver is refused in turn: once, and from there on.

use super::fake::{KIB, MIB};
use super::model::{Model, Numbers};
use cuguard_pool::{PoolError, Settings};

/// A program that makes every kind of call. Errors are permitted; wrong bytes are not.
fn scenario(model: &mut Model) {
    let sizes = [3 * MIB, 512 * KIB, 64 * KIB, MIB];
    let mut numbers = Numbers(99);
    for round in 0..2 {
        let _ = model.allocate(0, 65 * MIB);
        for (number, &bytes) in sizes.iter().cycle().take(26).enumerate() {
            let _ = model.allocate(number as u64 % 2, bytes);
        }
        intact(model);
        for at in (0..model.live.len()).rev() {
            if numbers.below(5) < 3 && !stuck(model) {
                let stream = model.live[at].stream;
                model.free(at, stream);
            }
        }
        model.fake.complete(0);
        if round == 0 {
            let _ = model.pool.trim(0);
            intact(model);
        }
        let _ = model.compact(u64::MAX);
        intact(model);
    }
}

fn stuck(model: &Model) -> bool {
    model.pool.stats().stuck_windows > 0
}

/// Blocks are intact, unless windows are stuck: then the pool must say so.
fn intact(model: &mut Model) {
    if stuck(model) {
        match model.pool.allocate(&0, 256) {
            Err(PoolError::Stuck { windows }) => assert!(windows > 0),
            Err(PoolError::Driver {
                function: "wait_for_copies",
                ..
            }) => {}
            Err(error) => panic!("{error}"),
            // The retry was not refused.
            Ok(block) => model.pool.free(&0, block),
        }
    }
    if !stuck(model) {
        model.check();
        model.check_overlap();
    }
}

/// Sizes change a little from step to step, up and down: cached blocks are resized.
fn resizing(model: &mut Model) {
    for step in [0, 1, 3, 1] {
        for block in 0..3 {
            let _ = model.allocate(block % 2, (18 + block * 13 + step * 3) * MIB);
        }
        intact(model);
        for at in (0..model.live.len()).rev() {
            let stream = model.live[at].stream;
            model.free(at, stream);
        }
        model.fake.complete(0);
        model.fake.complete(1);
    }
    let _ = model.allocate(0, 30 * MIB);
    intact(model);
}

/// Returns the number of calls and of merged windows.
fn run(refused: std::ops::Range<u64>) -> (u64, u64) {
    run_of(scenario, refused)
}

fn run_of(scenario: fn(&mut Model), refused: std::ops::Range<u64>) -> (u64, u64) {
    let mut model = Model::new(400 * MIB, Settings::default());
    // Some of the blocks have no addresses to grow into.
    model.fake.limit_reservations(80 * MIB);
    model.fake.refuse(refused);
    scenario(&mut model);
    let calls = model.fake.calls();
    let merged = model.pool.stats().merged_windows;
    // The driver works again: nothing was lost.
    model.fake.refuse(0..0);
    model.fake.quiet(true);
    model.pool.trim(0).unwrap();
    model.fake.quiet(false);
    let stats = model.pool.stats();
    assert_eq!(
        (stats.stuck_windows, stats.kept_handles, stats.kept_mappings),
        (0, 0, 0)
    );
    model.check();
    model.check_overlap();
    let before = model.live.len();
    model.compact(u64::MAX).unwrap();
    for bytes in [3 * MIB, 64 * KIB, MIB] {
        model.allocate(1, bytes).unwrap();
    }
    model.check();
    assert_eq!(model.live.len(), before + 3);
    model.destroy();
    (calls, merged)
}

#[test]
fn each_call_refused_once() {
    let (calls, merged) = run(0..0);
    assert!(merged > 1, "{merged}");
    assert!(calls > 100, "{calls}");
    for call in 0..calls {
        run(call..call + 1);
    }
}

#[test]
fn each_call_of_resizing_refused() {
    let (calls, _) = run_of(resizing, 0..0);
    assert!(calls > 100, "{calls}");
    for call in 0..calls {
        let refused = [call + 1, call + 5, u64::MAX][call as usize % 3];
        run_of(resizing, call..call + 1);
        run_of(resizing, call..refused);
    }
}

#[test]
fn five_calls_in_a_row_refused() {
    let (calls, merged) = run(0..0);
    assert!(merged > 1, "{merged}");
    for call in (0..calls).step_by(3) {
        run(call..call + 5);
    }
}

#[test]
fn each_call_refused_for_good() {
    let (calls, merged) = run(0..0);
    assert!(merged > 1, "{merged}");
    for call in 0..calls {
        run(call..u64::MAX);
    }
}

#[test]
fn destroy_retries_what_was_refused() {
    let mut calls = 0;
    for refused in 0.. {
        let mut model = Model::new(400 * MIB, Settings::default());
        for bytes in [3 * MIB, 512 * KIB, 64 * KIB, 70 * MIB, 20 * KIB] {
            model.allocate(0, bytes).unwrap();
        }
        model.free(0, 0);
        model.fake.complete_all();
        let start = model.fake.calls();
        model.fake.quiet(true);
        model.fake.refuse(start + refused..start + refused + 1);
        let result = model.pool.destroy();
        model.fake.refuse(0..0);
        if refused == 0 {
            calls = model.fake.calls() - start;
        }
        let after = model.fake.calls() - start;
        if result.is_err() {
            model.live.clear();
            model.fake.forget_live();
        }
        model.destroy();
        if refused > after {
            break;
        }
    }
    assert!(calls > 10);
}

/// A block is unmapped whose page is stuck: the page is not tried again.
#[test]
fn destroy_forgets_pages_without_access() {
    let mut model = Model::new(400 * MIB, Settings::default());
    for _ in 0..100 {
        model.allocate(0, MIB).unwrap();
    }
    model.free_where(0, |number| number % 2 == 0);
    model.fake.refuse_functions(&["set_access"]);
    let _ = model.compact(u64::MAX);
    assert!(stuck(&model));
    model.fake.complete_all();
    model.fake.quiet(true);
    model.fake.refuse_functions(&["set_access", "release"]);
    assert!(model.pool.destroy().is_err());
    model.fake.refuse_functions(&[]);
    model.live.clear();
    model.fake.forget_live();
    model.destroy();
}

#[test]
fn nothing_is_allocated_while_copies_may_still_write() {
    let mut seen = false;
    for refused in 0..200 {
        let mut model = Model::new(1 << 30, Settings::default());
        for _ in 0..40 {
            model.allocate(0, MIB).unwrap();
        }
        model.free_where(0, |number| number % 2 == 0);
        let start = model.fake.calls();
        model.fake.refuse(start + refused..start + refused + 1);
        let result = model.compact(u64::MAX);
        model.fake.refuse(0..0);
        if let Err(PoolError::Driver {
            function: "wait_for_copies",
            ..
        }) = result
        {
            seen = true;
            // They go where the copies went, which the model does only now.
            for _ in 0..20 {
                model.allocate(0, MIB).unwrap();
            }
            model.check();
            model.compact(u64::MAX).unwrap();
            model.check();
        }
        model.destroy();
    }
    assert!(seen);
}

#[test]
fn a_handle_that_is_refused_does_not_keep_the_rest() {
    let mut model = Model::new(400 * MIB, Settings::default());
    for _ in 0..4 {
        model.allocate(0, 4 * MIB).unwrap();
    }
    model.fake.refuse_first_handle(true);
    model.free_where(0, |number| number < 2);
    model.fake.complete_all();
    assert!(model.pool.trim(0).is_err());
    assert_eq!(
        (model.fake.held(), model.pool.stats().kept_handles),
        (10 * MIB, 1)
    );
    // The same handle is refused again, and the others are released all the same.
    model.free_where(0, |_| true);
    model.fake.complete_all();
    assert!(model.pool.trim(0).is_err());
    assert_eq!(model.fake.held(), 2 * MIB);
    model.fake.refuse_first_handle(false);
    assert_eq!(model.pool.trim(0), Ok(2 * MIB));
    model.destroy();
}

#[test]
fn trim_returns_what_was_refused() {
    for bytes in [4 * MIB, MIB, 64 * KIB] {
        let mut model = Model::new(400 * MIB, Settings::default());
        model.allocate(0, bytes).unwrap();
        model.free(0, 0);
        model.fake.complete_all();
        model.fake.refuse_functions(&["unmap"]);
        let trimmed = model.pool.trim(0);
        assert!(
            matches!(
                trimmed,
                Err(PoolError::Driver {
                    function: "unmap",
                    ..
                })
            ),
            "{bytes}: {trimmed:?}"
        );
        model.fake.refuse_functions(&[]);
        assert_ne!(model.pool.trim(0), Ok(0));
        assert_eq!(model.pool.stats().held, 0);
        model.destroy();
    }
}

/// The windows of some of a frame's slots get no access, and cannot be unmapped: their slots are not lost.
#[test]
fn slots_come_back_after_a_refused_window() {
    let mut model = Model::new(400 * MIB, Settings::default());
    // The first call after the page is created and some windows are mapped: fewer windows will do.
    model.allocate(0, 64 * KIB).unwrap();
    model.free(0, 0);
    model.fake.complete_all();
    model.pool.trim(0).unwrap();
    let start = model.fake.calls();
    // create, then eight times map.
    model.fake.refuse(start + 4..start + 5);
    model.allocate(0, 64 * KIB).unwrap();
    model.fake.refuse(0..0);
    let stats = model.pool.stats();
    assert!((1..8).contains(&stats.windows), "{stats:?}");
    model
        .fake
        .refuse_functions(&["set_access", "unmap", "create"]);
    while model.allocate(0, 64 * KIB).is_ok() {}
    assert!(model.pool.stats().kept_mappings > 0);
    model.fake.refuse_functions(&["create"]);
    model.pool.trim(0).unwrap();
    assert_eq!(model.pool.stats().kept_mappings, 0);
    while model.live.len() < 32 {
        model.allocate(0, 64 * KIB).expect("a slot of the frame");
    }
    model.fake.refuse_functions(&[]);
    model.check();
    model.check_overlap();
    model.destroy();
}

/// What a compaction released before the driver refused a call can be used: it is no error.
#[test]
fn a_compaction_that_is_refused_returns_what_it_released() {
    let mut model = Model::new(400 * MIB, Settings::default());
    for _ in 0..100 {
        model.allocate(0, MIB).unwrap();
    }
    model.allocate(0, 8 * MIB).unwrap();
    model.free_where(0, |number| number % 2 == 0);
    // The idle range is released, and then nothing can be merged.
    model.fake.refuse_functions(&["copy"]);
    let compacted = model.compact(u64::MAX).unwrap();
    assert!(
        compacted.refused && compacted.released >= 8 * MIB,
        "{compacted:?}"
    );
    assert_eq!(compacted.merged_frames, 0);
    model.check();
    // Nothing is left to release without merging.
    assert!(model.compact(u64::MAX).is_err());
    model.fake.refuse_functions(&[]);
    let compacted = model.compact(u64::MAX).unwrap();
    assert!(
        !compacted.refused && compacted.merged_frames > 0,
        "{compacted:?}"
    );
    model.check();
    model.destroy();
}

/// A page without a block whose unmapping is refused is merged with none, least of all with itself.
#[test]
fn an_empty_page_that_stays_mapped_is_not_merged() {
    for refused in 0..24 {
        let mut model = Model::new(400 * MIB, Settings::default());
        model.allocate(0, 64 * KIB).unwrap();
        model.free(0, 0);
        let calls = model.fake.calls();
        model.fake.refuse(calls..calls + refused);
        let compacted = model.compact(u64::MAX);
        model.fake.refuse(0..0);
        let stats = model.pool.stats();
        assert_eq!((stats.merged_frames, stats.merged_windows), (0, 0));
        if let Ok(compacted) = compacted {
            assert_eq!(compacted.merged_frames, 0);
            assert!(compacted.refused || stats.held == 0, "{compacted:?}");
        }
        model.check();
        model.check_overlap();
        model.destroy();
    }
}
