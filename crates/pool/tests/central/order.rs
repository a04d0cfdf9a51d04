//! Stream order: memory freed on one stream is used by another only when the first has done its work.

use super::fake::{KIB, MIB};
use super::model::Model;
use cuguard_pool::Settings;

#[test]
fn another_stream_reuses_a_block_only_after_its_point() {
    for bytes in [64 * KIB, MIB, 20 * MIB] {
        let mut model = Model::new(1 << 30, Settings::default());
        let blocks: Vec<u64> = (0..32)
            .map(|_| model.allocate(1, bytes).unwrap().address)
            .collect();
        while !model.live.is_empty() {
            model.free(0, 1);
        }
        // The model fails where memory in use is allocated.
        if bytes < 20 * MIB {
            for _ in 0..32 {
                model.allocate(2, bytes).unwrap();
            }
            assert!(
                model
                    .live
                    .iter()
                    .all(|live| !blocks.contains(&live.block.address))
            );
            while !model.live.is_empty() {
                model.free(0, 2);
            }
        }
        model.fake.complete_all();
        let held = model.pool.stats().held;
        for _ in 0..32 {
            model.allocate(3, bytes).unwrap();
        }
        assert_eq!(model.pool.stats().held, held);
        model.destroy();
    }
}

#[test]
fn one_stream_needs_no_point() {
    let mut model = Model::new(1 << 30, Settings::default());
    for round in 0..10 {
        for _ in 0..20 {
            model.allocate(1, 4 * MIB).unwrap();
            model.allocate(1, KIB).unwrap();
        }
        let calls = model.fake.calls();
        while !model.live.is_empty() {
            model.free(0, 1);
        }
        for _ in 0..20 {
            model.allocate(1, 4 * MIB).unwrap();
            model.allocate(1, KIB).unwrap();
        }
        assert_eq!(model.fake.calls(), calls, "round {round}");
        while !model.live.is_empty() {
            model.free(0, 1);
        }
    }
    model.destroy();
}

#[test]
fn what_a_stream_freed_before_it_ended_is_used_by_others() {
    let mut model = Model::new(1 << 30, Settings::default());
    let block = model.allocate(1, 4 * MIB).unwrap();
    model.free(0, 1);
    model.pool.stream_ends(&1).unwrap();
    assert_ne!(model.allocate(2, 4 * MIB).unwrap(), block);
    model.fake.complete(1);
    assert_eq!(model.allocate(2, 4 * MIB).unwrap(), block);
    model.destroy();
}

#[test]
fn a_stream_that_is_known_to_be_idle_needs_no_point() {
    let mut model = Model::new(1 << 30, Settings::default());
    let block = model.allocate(1, 4 * MIB).unwrap();
    model.free(0, 1);
    // Points are refused, as on a stream that failed.
    model.fake.refuse(model.fake.calls()..u64::MAX);
    assert!(model.pool.stream_ends(&1).is_err());
    model.fake.complete(1);
    model.pool.stream_is_idle(&1);
    assert_eq!(model.allocate(2, 4 * MIB).unwrap(), block);
    model.fake.refuse(0..0);
    model.destroy();
}

/// A stream is destroyed after its end, whatever the driver said to it: it is never used again.
#[test]
fn a_stream_that_ended_without_a_point_is_not_used_again() {
    let mut model = Model::new(1 << 30, Settings::default());
    let block = model.allocate(1, 4 * MIB).unwrap();
    model.free(0, 1);
    let calls = model.fake.calls();
    model.fake.refuse(calls..calls + 1);
    assert!(model.pool.stream_ends(&1).is_err());
    let recorded = model.fake.calls_of("record");
    model.fake.complete(1);
    // The pool does not know that it is complete.
    assert_ne!(model.allocate(2, 4 * MIB).unwrap(), block);
    model.pool.trim(0).unwrap();
    model.pool.decay(std::time::Instant::now()).unwrap();
    assert_eq!(model.fake.calls_of("record"), recorded);
    assert_eq!(model.pool.stats().cached, 4 * MIB);
    let ended = model.pool.unfinished_streams();
    assert_eq!(ended, [1]);
    model.pool.ended_streams_are_idle(&ended);
    assert!(model.pool.unfinished_streams().is_empty());
    assert_eq!(model.allocate(2, 4 * MIB).unwrap(), block);
    model.destroy();
}

/// Bytes that other streams cannot use yet are counted, those of slots in pages with live blocks too.
#[test]
fn what_waits_for_a_stream_is_counted() {
    let mut model = Model::new(400 * MIB, Settings::default());
    for bytes in [64 * KIB, 64 * KIB, 3 * MIB, 3 * MIB] {
        model.allocate(1, bytes).unwrap();
    }
    assert!(!model.pool.has_pending());
    model.free_where(1, |number| number % 2 == 0);
    assert!(model.pool.has_pending());
    assert_eq!(model.pool.pending(), 3 * MIB + 64 * KIB);
    assert_eq!(model.pool.trim(0), Ok(0));
    model.fake.complete(1);
    assert!(!model.pool.has_pending());
    assert_eq!(model.pool.pending(), 0);
    model.destroy();
}

/// The caller knows that the streams which exist are idle: none is recorded on, and one that was lost still counts.
#[test]
fn streams_that_exist_are_idle_and_a_lost_one_is_not() {
    let mut model = Model::new(400 * MIB, Settings::default());
    for stream in 0..2 {
        model.allocate(stream, 4 * MIB).unwrap();
    }
    model.free(1, 1);
    model.free(0, 0);
    model.pool.stream_is_lost(&1);
    model.fake.complete_all();
    model.pool.open_streams_are_idle();
    let recorded = model.fake.calls_of("record");
    assert!(model.pool.has_pending());
    assert_eq!(model.pool.pending(), 4 * MIB);
    assert_eq!(model.pool.unfinished_streams(), [1]);
    assert_eq!(model.pool.trim(0), Ok(4 * MIB));
    model.pool.ended_streams_are_idle(&[1]);
    assert!(!model.pool.has_pending());
    assert_eq!(model.pool.trim(0), Ok(4 * MIB));
    assert_eq!(model.fake.calls_of("record"), recorded);
    model.destroy();
}
