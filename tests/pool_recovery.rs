//! Memory that a pool does not use: it is found, waited for or merged before an allocation fails, and what cannot be freed is
//! recorded.

use crate::support::room;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::support::gate::Gate;
use crate::support::pool_blocks::{MIB, every_other, take};
use crate::support::*;
use cuguard::oom::{Cause, OomPolicy};
use cuguard::report::ReportSettings;
use cuguard::sim::{self, Fault};
use cuguard::{Context, DeviceBuffer, Error, Pool, Result, Stream};

/// The guard and all blocks of a pool are dropped, and its stream still works: that is waited for.
#[test]
fn a_pool_without_a_guard_is_waited_for() -> Result<()> {
    if !simulated("a_pool_without_a_guard_is_waited_for") {
        return Ok(());
    }
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let pool = Pool::new(&context)?;
    let block = take(&pool.on(&stream), 32 * MIB)?;
    let in_the_way = room::leave(&context, 8 * MIB)?;
    let gate = Gate::on(&context, &stream);
    drop((block, pool));
    let opener = gate.open_later();
    let large = room::take(&context, 24 * MIB)?;
    assert!(gate.is_open());
    opener.join().unwrap();
    drop((large, in_the_way));
    Ok(())
}

/// The diagnosis names it where it is not waited for.
#[test]
fn a_pool_without_a_guard_is_in_the_diagnosis() -> Result<()> {
    if !simulated("a_pool_without_a_guard_is_in_the_diagnosis") {
        return Ok(());
    }
    let _turn = turn();
    let context = Context::builder()
        .oom_policy(OomPolicy::new().wait(false))
        .build()?;
    let stream = Stream::new(&context)?;
    let pool = Pool::builder().with_label("scratch").build(&context)?;
    let block = take(&pool.on(&stream), 32 * MIB)?;
    let in_the_way = room::leave(&context, 8 * MIB)?;
    let gate = Gate::on(&context, &stream);
    drop((block, pool));
    let why = room::why(room::take(&context, 24 * MIB));
    let dropped = why.pools.iter().find(|pool| pool.of_cuguard);
    let dropped = dropped.expect("the diagnosis names the pool");
    assert!(
        dropped.name.contains("dropped pool \"scratch\""),
        "{dropped:?}"
    );
    assert_eq!((dropped.reserved, dropped.used), (32 << 20, 0));
    gate.open();
    drop(in_the_way);
    Ok(())
}

/// Blocks below 256 KiB that wait for their stream, in a pool with other blocks that are in use.
#[test]
fn small_blocks_that_wait_for_their_stream_are_waited_for() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::builder().limit(4 << 20).merge(false);
    let pool = pool.build(&context)?;
    let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let in_use = take(&pool.on(&other), MIB)?;
    let small = (0..32).map(|_| take(&pool.on(&stream), 64 << 10));
    let small: Vec<_> = small.collect::<Result<_>>()?;
    assert_eq!(pool.stats().held, 4 << 20);
    let gate = Gate::on(&context, &stream);
    drop(small);
    let opener = gate.open_later();
    let page = take(&pool.on(&other), 2 * MIB)?;
    assert!(gate.is_open());
    opener.join().unwrap();
    drop((page, in_use));
    Ok(())
}

/// What other pools keep does not count against the limit of a pool: they keep it.
#[test]
fn a_limit_is_no_reason_for_other_pools_to_release_memory() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let other = Pool::new(&context)?;
    drop(take(&other, 64 * MIB)?);
    context.synchronize()?;
    let limited = Pool::builder().limit(4 << 20).build(&context)?;
    let in_use = take(&limited, 3 * MIB)?;
    let why = room::why(take(&limited, 2 * MIB));
    assert_eq!(other.stats().held, 64 << 20);
    let limit = why.limit.expect("it refused");
    assert_eq!((limit.bytes, limit.held), (4 << 20, 4 << 20));
    drop(in_use);
    Ok(())
}

/// Equal blocks of more than half a page leave the rest of each page unused: no pool hoards it.
#[test]
fn the_rest_of_pages_with_blocks_is_named_as_such() -> Result<()> {
    if !simulated("the_rest_of_pages_with_blocks_is_named_as_such") {
        return Ok(());
    }
    let _turn = turn();
    let context = context()?;
    let in_the_way = room::leave(&context, 64 * MIB)?;
    let pool = Pool::new(&context)?;
    let mut blocks = Vec::new();
    let why = loop {
        match take(&pool, 1100 << 10) {
            Ok(block) => blocks.push(block),
            refused => break room::why(refused),
        }
    };
    let text = format!("{why:#}");
    let unused = pool.stats().held - pool.stats().used;
    let cause = Cause::HoardedByPools { bytes: unused };
    assert!(why.causes().contains(&cause), "{text}");
    for part in [
        "blocks in pools leave",
        "fill pages of 2 MiB in part",
        "no pool of the driver has unused memory",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    drop((blocks, in_the_way));
    Ok(())
}

/// Small blocks that are left on every page, so that no two can be merged: the error says what they keep, with and without
/// a limit.
#[test]
fn pages_that_scattered_small_blocks_keep_are_named_as_such() -> Result<()> {
    if !simulated("pages_that_scattered_small_blocks_keep_are_named_as_such") {
        return Ok(());
    }
    let _turn = turn();
    let context = context()?;
    const HELD: usize = 16 * MIB;
    let has = |text: &str, parts: &[&str]| {
        for part in parts {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    };
    for limited in [true, false] {
        let builder = Pool::builder();
        let pool = match limited {
            true => builder.limit(HELD as u64),
            false => builder,
        }
        .build(&context)?;
        let blocks: Vec<_> = (0..HELD / 1024)
            .map(|_| take(&pool, 1024))
            .collect::<Result<_>>()?;
        assert_eq!(pool.stats().held, HELD as u64);
        let kept: Vec<_> = blocks.into_iter().step_by(4).collect();
        context.synchronize()?;
        let in_the_way = match limited {
            true => None,
            false => Some(room::leave(&context, 4 * MIB)?),
        };
        let text = format!("{:#}", room::why(take(&pool, 10 * MIB)));
        has(&text, &["small blocks are scattered over these pages"]);
        match limited {
            true => has(
                &text,
                &[
                    "it holds 16 MiB of the 16 MiB that it may have; 12 MiB lie unused in pages that blocks keep",
                ],
            ),
            false => has(
                &text,
                &["blocks in pools leave 12 MiB of their pages unused"],
            ),
        }
        drop((kept, in_the_way));
    }
    Ok(())
}

/// What a stream still uses is not called kept by blocks, whether it was waited for or not.
#[test]
fn blocks_that_a_stream_still_uses_are_not_called_unused() -> Result<()> {
    if !simulated("blocks_that_a_stream_still_uses_are_not_called_unused") {
        return Ok(());
    }
    let _turn = turn();
    let shortly = OomPolicy::new().wait_at_most(Duration::from_millis(50));
    for policy in [shortly.clone().wait(false), shortly] {
        let context = Context::builder().oom_policy(policy).build()?;
        let pool = Pool::builder().limit(16 << 20).build(&context)?;
        let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
        let small = take(&pool.on(&other), 1024)?;
        let large = take(&pool.on(&stream), 12 * MIB)?;
        let gate = Gate::on(&context, &stream);
        drop(large);
        let text = format!("{:#}", room::why(take(&pool.on(&other), 10 * MIB)));
        assert!(text.contains("it holds 14 MiB of the 16 MiB"), "{text}");
        assert!(!text.contains("that blocks keep"), "{text}");
        assert!(!text.contains("are scattered"), "{text}");
        gate.open();
        drop(small);
    }
    Ok(())
}

/// A block takes whole pages, and the limit is of pages: the error says so.
#[test]
fn a_limit_that_is_exceeded_by_the_rest_of_a_page() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let limited = Pool::builder().limit(3 << 20).build(&context)?;
    let Err(error) = take(&limited, 3 * MIB) else {
        panic!("two pages are 4 MiB");
    };
    let text = error.to_string();
    assert!(
        text.contains(
            "it holds 0 B of the 3 MiB that it may have, and 3 MiB take more than the rest, in \
             pages of 2 MiB"
        ),
        "{text}"
    );
    // Blocks of the pool may wait for their streams, so that the step is one that helps; here there are none.
    let text = format!("{error:#}");
    let (_, tried) = text.split_once("what was tried:").expect("the steps");
    let wait = tried.lines().find(|line| line.contains("wait for frees"));
    let wait = wait.expect("the step");
    assert!(wait.contains("no frees are pending"), "{text}");
    Ok(())
}

/// A stream that ended where no event could be recorded in it: the context is waited for, also where no page may be merged.
#[test]
fn a_stream_that_ended_without_an_event_is_waited_for() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::builder().limit(8 << 20).merge(false);
    let pool = pool.build(&context)?;
    let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let last = take(&pool.on(&stream), 6 * MIB)?;
    let (say, done) = channel();
    let (go, wait) = channel::<()>();
    let bound = context.make_current()?;
    stream
        .add_callback(Box::new(move || {
            wait.recv().unwrap();
            drop(last);
            say.send(()).unwrap();
        }))
        .unwrap();
    // The block is the last that keeps the stream.
    drop((bound, stream));
    go.send(()).unwrap();
    done.recv().unwrap();
    let next = take(&pool.on(&other), 4 * MIB)?;
    drop(next);
    Ok(())
}

/// The same for a pool whose guard is dropped.
#[test]
fn a_dropped_pool_of_a_stream_that_ended_without_an_event_is_waited_for() -> Result<()> {
    if !simulated("a_dropped_pool_of_a_stream_that_ended_without_an_event_is_waited_for") {
        return Ok(());
    }
    let _turn = turn();
    let context = context()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let last = take(&pool.on(&stream), 32 * MIB)?;
    let in_the_way = room::leave(&context, 8 * MIB)?;
    let (say, done) = channel();
    let (go, wait) = channel::<()>();
    let bound = context.make_current()?;
    stream
        .add_callback(Box::new(move || {
            wait.recv().unwrap();
            drop(last);
            say.send(()).unwrap();
        }))
        .unwrap();
    drop((bound, stream, pool));
    go.send(()).unwrap();
    done.recv().unwrap();
    let large = room::take(&context, 24 * MIB)?;
    drop((large, in_the_way));
    Ok(())
}

/// Two guards of the same context of the driver: the allocation of one merges the pages of the other's pool.
#[test]
fn pages_of_another_guard_of_the_context_are_merged() -> Result<()> {
    if !simulated("pages_of_another_guard_of_the_context_are_merged") {
        return Ok(());
    }
    let _turn = turn();
    let (context, other) = (context()?, context()?);
    let pool = Pool::new(&other)?;
    let blocks = every_other(&pool, 96)?;
    other.synchronize()?;
    pool.trim()?;
    let in_the_way = room::leave(&context, 2 * MIB)?;
    let large = room::take(&context, 8 * MIB)?;
    assert!(pool.stats().merged > 0);
    drop((large, in_the_way, blocks));
    Ok(())
}

/// Blocks that `cust` has seen stay where they are; others share their pages.
#[test]
fn pinned_pages_are_shared() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let mut blocks = Vec::new();
    for _ in 0..60 {
        let block = take(&pool, 300 << 10)?;
        // Dereferences to the slice of `cust`.
        assert!(!block.as_device_ptr().is_null());
        blocks.push(block);
    }
    // Six of 304 KiB to a page.
    assert_eq!(pool.stats().held, 10 * (2 << 20));
    Ok(())
}

#[test]
fn merged_pages_are_counted_alike() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let blocks = (0..512).map(|_| take(&pool, 64 << 10));
    let mut blocks: Vec<_> = blocks.collect::<Result<_>>()?;
    let mut number = 0;
    blocks.retain(|_| {
        number += 1;
        number % 5 == 0
    });
    let first = pool.compact()?;
    assert!(first.merged > 0 && !first.refused, "{first:?}");
    assert_eq!(pool.stats().merged, first.merged);
    let second = pool.compact()?;
    assert_eq!(pool.stats().merged, first.merged + second.merged);
    Ok(())
}

#[test]
fn a_refused_compaction_says_so() -> Result<()> {
    if !simulated("a_refused_compaction_says_so") {
        return Ok(());
    }
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let blocks = every_other(&pool, 64)?;
    drop(take(&pool, 8 * MIB)?);
    sim::inject(Fault::nth_call_of("cuMemcpyDtoDAsync_v2", 1).sticky()).unwrap();
    let compacted = pool.compact();
    sim::clear_faults();
    let compacted = compacted?;
    assert!(
        compacted.refused && compacted.released >= 8 << 20,
        "{compacted:?}"
    );
    let compacted = pool.compact()?;
    assert!(!compacted.refused && compacted.merged > 0, "{compacted:?}");
    drop(blocks);
    Ok(())
}

/// The context cannot be made current: what its pools hold is recorded as not freed.
#[test]
fn pools_of_a_context_that_cannot_be_current_are_recorded() -> Result<()> {
    if !simulated("pools_of_a_context_that_cannot_be_current_are_recorded") {
        return Ok(());
    }
    let _turn = turn();
    let file = temporary("lost.json");
    let settings = ReportSettings::json().file(file.to_str().unwrap()).unwrap();
    let context = Context::builder().dedicated().report(settings).build()?;
    let pool = Pool::new(&context)?;
    let block = take(&pool, 8 * MIB)?;
    let refused = sim::inject(Fault::nth_call_of("cuCtxPushCurrent_v2", 1).sticky()).unwrap();
    let closed = context.close();
    sim::clear_faults();
    assert!(closed.is_err() && refused.fired() > 1, "{closed:?}");
    let report = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(report.contains("\"kind\":\"physical\""), "{report}");
    assert!(report.contains(&(8 << 20).to_string()), "{report}");
    assert!(matches!(block.to_vec(), Err(Error::ContextClosed { .. })));
    drop((block, pool));
    Ok(())
}

/// A thread that does not exist in a forked child may hold the lock of the pool.
#[test]
fn the_figures_of_a_pool_in_a_forked_child() {
    const TEST: &str = "the_figures_of_a_pool_in_a_forked_child";
    if part().is_some() {
        let context = context().unwrap();
        let pool = Pool::new(&context).unwrap();
        let block = DeviceBuffer::<u8>::zeroed(&pool, MIB).unwrap();
        // SAFETY: the child only does what is under test, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends a child that hangs.
            unsafe { libc::alarm(10) };
            let is_empty = pool.stats() == Default::default();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!is_empty)) };
        }
        let mut status = -1;
        // SAFETY: our own child, and the variable can be written to.
        unsafe { libc::waitpid(child, &mut status, 0) };
        drop((block, pool, context));
        std::process::exit(if status == 0 { 7 } else { 8 });
    }
    let limit = std::time::Duration::from_secs(30);
    let output = child_within(limit, TEST, "child", &[]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{err}");
}

/// A pool at its limit has a slot whose stream still works: no page can be released, but the slot is had after a wait.
#[test]
fn a_slot_of_a_full_pool_is_waited_for() -> Result<()> {
    if !simulated("a_slot_of_a_full_pool_is_waited_for") {
        return Ok(());
    }
    let _turn = turn();
    let context = context()?;
    let (busy, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let pool = Pool::builder().limit(2 << 20).build(&context)?;
    let mut blocks = Vec::new();
    while let Ok(block) = take(&pool.on(&busy), 512) {
        blocks.push(block);
    }
    assert!(blocks.len() > 1000, "{}", blocks.len());
    busy.synchronize()?;
    let gate = Gate::on(&context, &busy);
    drop(blocks.pop());
    let opener = gate.open_later();
    let block = take(&pool.on(&other), 512)?;
    assert!(gate.is_open());
    opener.join().unwrap();
    drop((block, blocks));
    Ok(())
}
