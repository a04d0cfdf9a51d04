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

/// Returns the number of calls and of merged windows.
fn run(refused: std::ops::Range<u64>) -> (u64, u64) {
    let mut model = Model::new(400 * MIB, Settings::default());
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

#[test]
fn nothing_is_allocated_while_copies_may_still_write() {
    let mut seen = false;
    for refused in 0..400 {
        let mut model = Model::new(1 << 30, Settings::default());
        for _ in 0..100 {
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
            for _ in 0..50 {
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
