//! Buffers of a pool: records, reuse in the order of streams, frees that do not wait, limits and budgets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::support::gate::Gate;
use crate::support::pool_blocks::{MIB, at, take};
use crate::support::*;
use cuguard::driver::api;
use cuguard::driver::sys::{CUgraph, stream_capture_mode};
use cuguard::oom::{Cause, OomPolicy, RecoveryStep};
use cuguard::report::Report;
use cuguard::{
    Context, DeviceBox, DeviceBuffer, Error, Pool, ResourceKind, Result, Stream, TrackingLevel,
    assert_no_leaks,
};

#[test]
fn buffers_of_every_size_hold_what_is_copied_to_them() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let sizes = [
        1,
        255,
        256,
        257,
        4000,
        70_000,
        255 << 10,
        256 << 10,
        (256 << 10) + 1,
        MIB,
        2 * MIB,
        2 * MIB + 1,
        3 * MIB,
        9 * MIB,
        70 * MIB + 12_345,
    ];
    let mut buffers = Vec::new();
    for (number, bytes) in sizes.into_iter().enumerate() {
        let values = vec![number as u8 + 1; bytes];
        buffers.push(DeviceBuffer::from_slice(&pool.on(&stream), &values)?);
        buffers.push(DeviceBuffer::from_slice(&pool, &values)?);
    }
    for (index, buffer) in buffers.iter().enumerate() {
        let values = vec![(index / 2) as u8 + 1; sizes[index / 2]];
        assert_eq!(at(buffer) % 256, 0);
        assert!(buffer.to_vec()? == values, "{} bytes", values.len());
    }
    let bytes: usize = 2 * sizes.iter().sum::<usize>();
    assert_eq!(context.totals(ResourceKind::Pooled).bytes, bytes as u64);
    assert!(pool.stats().used >= bytes as u64 && pool.stats().held >= pool.stats().used);
    let zeroed = DeviceBuffer::<u32>::zeroed(&pool.on(&stream), 300_000)?;
    assert!(zeroed.to_vec()?.iter().all(|value| *value == 0));
    assert!(zeroed.try_clone()?.to_vec()? == zeroed.to_vec()?);
    drop((buffers, zeroed));
    assert_eq!(context.totals(ResourceKind::Pooled).count, 0);
    drop((pool, stream));
    assert_no_leaks!(context);
    drop(context);
    turn.all_came_back();
    Ok(())
}

#[test]
fn memory_is_reused_on_its_stream_at_once_and_on_others_after_its_work() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    for bytes in [1000, MIB, 5 * MIB] {
        let pool = Pool::new(&context)?;
        let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
        let gate = Gate::on(&context, &one);
        // All that the pool has of this size.
        let first = take(&pool.on(&one), bytes)?;
        let address = at(&first);
        drop(first);
        let again = take(&pool.on(&one), bytes)?;
        assert!(bytes < 256 << 10 || at(&again) == address, "{bytes}");
        drop(again);
        // The stream has not reached the frees: the other one gets other memory.
        let elsewhere = take(&pool.on(&other), bytes)?;
        assert_ne!(at(&elsewhere), address, "{bytes}");
        gate.open();
        one.synchronize()?;
        drop(elsewhere);
    }
    Ok(())
}

/// Once the first stream is done, its memory serves the second, and the pool does not grow.
#[test]
fn another_stream_gets_the_memory_when_the_first_is_done() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    drop(take(&pool.on(&one), 8 * MIB)?);
    one.synchronize()?;
    let _second = take(&pool.on(&other), 8 * MIB)?;
    assert_eq!(pool.stats().held, 8 * MIB as u64);
    Ok(())
}

#[test]
fn a_free_does_not_wait() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let other = Stream::new(&context)?;
    let buffers = [
        take(&pool.on(&stream), 100)?,
        take(&pool.on(&stream), MIB)?,
        take(&pool.on(&other), 7 * MIB)?,
        take(&pool, 7 * MIB)?,
    ];
    let gate = Gate::on(&context, &stream);
    drop(buffers);
    let closed = take(&pool.on(&stream), 3 * MIB)?.close();
    assert_eq!(closed, Ok(()));
    // The device is still at the gate.
    assert!(!gate.is_open() && !stream.is_idle()?);
    gate.open();
    stream.synchronize()
}

#[test]
fn a_recorded_stream_is_waited_for() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let (home, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let buffer = take(&pool.on(&home), 4 * MIB)?;
    let address = at(&buffer);
    let gate = Gate::on(&context, &other);
    buffer.record_stream(&other)?;
    drop(buffer);
    // On its home the memory is reused, and work on it waits for the other stream.
    let again = take(&pool.on(&home), 4 * MIB)?;
    assert_eq!(at(&again), address);
    assert!(!home.is_idle()?, "the home waits for the other stream");
    gate.open();
    home.synchronize()?;
    Ok(())
}

/// In another context, or on the stream that is another one on every thread.
#[test]
fn streams_that_a_pool_cannot_use_are_refused() -> Result<()> {
    let _turn = turn();
    let (context, other) = (context()?, context()?);
    let (pool, far) = (Pool::new(&context)?, Stream::new(&other)?);
    let error = take(&pool.on(&far), 10).unwrap_err();
    assert!(matches!(error, Error::WrongContext { .. }), "{error}");
    let text = format!(
        "DeviceBuffer::uninitialized: the pool belongs to context {}, the stream to context {}",
        context.snapshot().info.context,
        other.snapshot().info.context
    );
    assert_eq!(error.to_string(), text);
    let per_thread = cuguard::driver::sys::CUstream::PER_THREAD;
    // SAFETY: it lives as long as its context, and is used on this thread alone.
    let stream = unsafe { Stream::borrow_raw(&context, per_thread)? };
    let error = take(&pool.on(&stream), 10).unwrap_err();
    assert!(matches!(error, Error::NullHandle { .. }), "{error}");
    let far = DeviceBuffer::<u8>::zeroed(&context, 10)?;
    let error = pool.pin(&far).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Pool::pin: the buffer is not from this pool"
    );
    Ok(())
}

#[test]
fn empty_buffers_take_nothing() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let empty = DeviceBuffer::<u8>::zeroed(&pool, 0)?;
    let unit = DeviceBuffer::<[u8; 0]>::zeroed(&pool, 5)?;
    assert_eq!((at(&empty), unit.len()), (0, 5));
    // The pool itself is live.
    assert_eq!((context.live_count(), pool.stats().held), (1, 0));
    Ok(())
}

#[test]
fn a_panic_frees() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let (pool, stream) = (Pool::new(&context).unwrap(), Stream::new(&context).unwrap());
        let _buffer = take(&pool.on(&stream), 3 * MIB).unwrap();
        panic!("on purpose");
    }));
    assert!(unwound.is_err());
    assert_no_leaks!(context);
    drop(context);
    turn.all_came_back();
    Ok(())
}

#[test]
fn leaks_name_the_block_and_its_call_site() -> Result<()> {
    let _turn = turn();
    let context = Context::builder().level(TrackingLevel::Stacks).build()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let lost = take(&pool.on(&stream), 3000)?.with_label("lost");
    let line = line!() - 1;
    let snapshot = context.snapshot();
    let groups = snapshot.live.iter();
    let [group] = groups
        .filter(|group| group.kind == ResourceKind::Pooled)
        .collect::<Vec<_>>()[..]
    else {
        panic!("{}", snapshot.display());
    };
    assert_eq!(
        (group.amount.bytes, group.label.as_deref()),
        (3000, Some("lost"))
    );
    let site = group.origin.site.expect("a call site");
    assert!(
        site.file.ends_with("tests/pool.rs") && site.line == line,
        "{site}"
    );
    assert!(!group.origin.stack.is_empty());
    let text = snapshot.display().to_string();
    assert!(text.contains("pool memory"), "{text}");
    assert!(snapshot.to_json().contains("\"kind\":\"pooled\""));
    drop(lost);
    Ok(())
}

/// All levels: a pair leaves no trace.
#[test]
fn a_pair_at_every_level() -> Result<()> {
    let _turn = turn();
    for level in [
        TrackingLevel::Counts,
        TrackingLevel::Sites,
        TrackingLevel::Stacks,
    ] {
        let context = Context::builder().level(level).build()?;
        let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
        for _ in 0..100 {
            drop(take(&pool.on(&stream), MIB)?);
        }
        let totals = context.totals(ResourceKind::Pooled);
        assert_eq!((totals.count, totals.allocated), (0, 100));
        assert_eq!(pool.stats().held, 2 * MIB as u64);
    }
    Ok(())
}

#[test]
fn a_pool_for_all_buffers_of_a_context() -> Result<()> {
    let turn = turn();
    let context = Context::builder().pool(Pool::builder()).build()?;
    let stream = Stream::new(&context)?;
    let zeroed = DeviceBuffer::<u8>::zeroed(&context, 5000)?;
    let copied = DeviceBuffer::from_slice(&context, &[1_u8, 2, 3])?;
    let on = DeviceBuffer::from_slice(&stream, &[4_u8, 5])?;
    let boxed = DeviceBox::new(&context, &7_u64)?;
    let clone = copied.try_clone()?;
    assert_eq!(context.totals(ResourceKind::Pooled).count, 5);
    assert_eq!(context.totals(ResourceKind::Device).count, 0);
    assert_eq!(context.totals(ResourceKind::StreamOrdered).count, 0);
    assert_eq!(zeroed.to_vec()?, vec![0; 5000]);
    assert_eq!((clone.to_vec()?, on.to_vec()?), (vec![1, 2, 3], vec![4, 5]));
    assert_eq!(boxed.get()?, 7);
    let mut seen = [0_u8; 3];
    stream.scope(|s| {
        let mut scratch = s.zeroed(3)?;
        assert_eq!(context.totals(ResourceKind::Pooled).count, 6);
        s.copy(&mut scratch, &s.bind(&copied)?)?;
        s.download(&mut s.bind_host_mut(&mut seen), &scratch)
    })?;
    assert_eq!(seen, [1, 2, 3]);
    assert_eq!(context.totals(ResourceKind::Pooled).count, 5);
    drop((zeroed, copied, on, boxed, clone, stream));
    assert_no_leaks!(context);
    drop(context);
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_budget_counts_what_is_asked_for() -> Result<()> {
    let _turn = turn();
    let context = Context::builder().memory_limit(3 << 20).build()?;
    let pool = Pool::new(&context)?;
    let first = take(&pool, 2 * MIB)?;
    let second = take(&pool, MIB)?;
    assert!(matches!(take(&pool, 1), Err(Error::OutOfMemory(_))));
    let address = second.into_raw();
    let third = take(&pool, MIB)?;
    // SAFETY: released above, with this length.
    let second = unsafe { DeviceBuffer::<u8>::from_raw(&context, address, MIB) };
    drop((first, second, third));
    drop(take(&pool, 3 * MIB)?);
    Ok(())
}

/// A fill would become a node of the graph, which may run after the memory is freed.
#[test]
fn no_fill_where_other_code_captures_the_stream() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let mut buffer = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000)?;
    let handle = stream.as_raw();
    // SAFETY: the stream is alive.
    let begun = unsafe { api::cuStreamBeginCapture_v2(handle, stream_capture_mode::RELAXED) };
    assert!(begun.is_success(), "{begun}");
    let zero = buffer.zero();
    let zeroed = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000);
    let mut graph = CUgraph::default();
    // SAFETY: begun above; the graph has no other owner.
    unsafe {
        let ended = api::cuStreamEndCapture(handle, &mut graph);
        assert!(ended.is_success(), "{ended}");
        assert!(api::cuGraphDestroy(graph).is_success());
    }
    assert!(matches!(zero, Err(Error::Capture { .. })), "{zero:?}");
    assert!(matches!(zeroed, Err(Error::Capture { .. })), "{zeroed:?}");
    assert_eq!(context.totals(ResourceKind::Pooled).count, 1);
    Ok(())
}

/// Only the device of a pool has access to its pages. Another context of the device has.
#[test]
fn no_memory_of_a_pool_for_scopes_of_other_devices() -> Result<()> {
    const TEST: &str = "no_memory_of_a_pool_for_scopes_of_other_devices";
    if !simulated(TEST) {
        return Ok(());
    }
    if part().is_none() {
        let devices = [("CUGUARD_DRIVER", "sim"), ("CUGUARD_SIM", "devices=2")];
        succeeded(&child(TEST, "two devices", &devices));
        return Ok(());
    }
    let (first, second) = (Context::new(0)?, Context::new(1)?);
    let dedicated = Context::builder().dedicated().build()?;
    let pool = Pool::new(&first)?;
    let mut from = DeviceBuffer::from_slice(&pool, &[1_u8, 2, 3])?;
    for (context, is_refused) in [(&second, true), (&dedicated, false)] {
        let stream = Stream::new(context)?;
        let mut to = DeviceBuffer::<u8>::zeroed(context, 3)?;
        let copied = stream.scope(|s| {
            let from = s.bind_peer(from.as_view())?;
            s.copy_from_peer(&mut s.bind_mut(&mut to)?, &from)
        });
        let bound = stream.scope(|s| s.bind_peer_mut(&mut from).map(drop));
        if is_refused {
            let text = copied.unwrap_err().to_string();
            assert_eq!(
                text,
                "Scope::bind_peer: memory of a pool can only be accessed by its own device, 0, not by device 1"
            );
            assert!(matches!(bound, Err(Error::Pool { .. })), "{bound:?}");
        } else {
            copied.and(bound)?;
            assert_eq!(to.to_vec()?, [1, 2, 3]);
        }
    }
    Ok(())
}

/// A capture in global mode prohibits frees on every thread: those of a pool, and of its thread, do not end it.
#[test]
fn no_call_of_a_pool_ends_a_capture_of_other_code() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::builder()
        .decay(Duration::from_millis(5))
        .build(&context)?;
    let (captured, stream) = (Stream::new(&context)?, Stream::new(&context)?);
    let buffer = take(&pool.on(&stream), 64 * MIB)?;
    let handle = captured.as_raw();
    // SAFETY: the stream is alive.
    let begun = unsafe { api::cuStreamBeginCapture_v2(handle, stream_capture_mode::GLOBAL) };
    assert!(begun.is_success(), "{begun}");
    let second = take(&pool.on(&stream), 6 * MIB);
    drop(buffer);
    let begin = Instant::now();
    while pool.stats().held >= 64 << 20 && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let held = pool.stats().held;
    let mut graph = CUgraph::default();
    // SAFETY: begun above; the graph has no other owner.
    unsafe {
        let ended = api::cuStreamEndCapture(handle, &mut graph);
        assert!(ended.is_success(), "{ended}");
        assert!(api::cuGraphDestroy(graph).is_success());
    }
    drop(second?);
    assert!(held < 64 << 20, "{held} bytes are held");
    Ok(())
}

/// As the driver aligns in practice, and as textures need it.
#[test]
fn every_block_is_aligned_to_512_bytes() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let mut blocks = Vec::new();
    for bytes in (1..9000).step_by(97).chain([70_000, 300_000, 3 << 20]) {
        blocks.push(take(&pool, bytes)?);
    }
    assert!(blocks.iter().all(|block| at(block).is_multiple_of(512)));
    Ok(())
}

#[test]
fn the_limit_of_a_pool() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::builder()
        .limit(8 << 20)
        .with_label("small")
        .build(&context)?;
    let stream = Stream::new(&context)?;
    let first = take(&pool.on(&stream), 6 * MIB)?;
    let Err(Error::OutOfMemory(why)) = take(&pool.on(&stream), 4 * MIB) else {
        panic!("beyond the limit");
    };
    let limit = why.limit.expect("the limit refused");
    assert_eq!((limit.bytes, limit.refused), (8 << 20, true));
    assert_eq!(
        limit.held,
        6 << 20,
        "nothing that was created for the second"
    );
    assert_eq!(why.recovery[0].step, RecoveryStep::Compact);
    assert_eq!(why.request.kind, Some(ResourceKind::Pooled));
    let named = why.pools.iter().find(|pool| pool.of_cuguard);
    let named = named.expect("the diagnosis names the pool");
    assert!(named.name.contains("\"small\"") && named.reserved <= 8 << 20);
    assert!(why.to_json().contains("\"of_cuguard\":true"));
    assert!(why.to_text().contains("small"), "{}", why.to_text());
    assert!(matches!(why.causes()[0], Cause::MemoryLimit { .. }));
    // What is freed is released for another size.
    drop(first);
    stream.synchronize()?;
    drop(take(&pool.on(&stream), 4 * MIB)?);
    drop(take(&pool.on(&stream), 8 * MIB)?);
    Ok(())
}

/// What is freed on a stream that still works is waited for before an allocation fails, also where no page may be merged.
#[test]
fn blocks_that_wait_for_their_stream_are_waited_for() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::builder().limit(8 << 20).merge(false);
    let pool = pool.build(&context)?;
    let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let first = take(&pool.on(&stream), 6 * MIB)?;
    let gate = Gate::on(&context, &stream);
    drop(first);
    let opener = gate.open_later();
    let second = take(&pool.on(&other), 4 * MIB)?;
    assert!(gate.is_open());
    opener.join().unwrap();
    drop(second);
    // Not if the policy does not permit it.
    let strict = OomPolicy::new().wait(false);
    let context = Context::builder().oom_policy(strict).build()?;
    let pool = Pool::builder().limit(8 << 20).merge(false);
    let pool = pool.build(&context)?;
    let stream = Stream::new(&context)?;
    let first = take(&pool.on(&stream), 6 * MIB)?;
    let gate = Gate::on(&context, &stream);
    drop(first);
    let refused = take(&pool.on(&stream), 4 * MIB);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    gate.open();
    Ok(())
}

#[test]
fn idle_memory_goes_to_the_device_after_the_decay_time() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let soon = Pool::builder()
        .decay(Duration::from_millis(20))
        .build(&context)?;
    let never = Pool::builder().decay(Duration::MAX).build(&context)?;
    let stream = Stream::new(&context)?;
    for pool in [&soon, &never] {
        drop(take(&pool.on(&stream), 64 * MIB)?);
    }
    stream.synchronize()?;
    let begin = Instant::now();
    while soon.stats().held != 0 {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "{:?}",
            soon.stats()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(never.stats().held, 64 << 20);
    assert_eq!(never.trim()?, 64 << 20);
    assert_eq!(never.stats().held, 0);
    Ok(())
}

/// Memory that one pool does not use is had by `cuMemAlloc`, and by another pool.
#[test]
fn a_pool_holds_nothing_back() -> Result<()> {
    if !simulated("a_pool_holds_nothing_back") {
        return Ok(());
    }
    let _turn = turn();
    let context = context()?;
    let (pool, other) = (Pool::new(&context)?, Pool::new(&context)?);
    let stream = Stream::new(&context)?;
    let most = context.memory()?.free as usize / (64 * MIB) * (64 * MIB);
    drop(take(&pool.on(&stream), most)?);
    stream.synchronize()?;
    assert_eq!(pool.stats().held, most as u64);
    // SAFETY: not read.
    drop(unsafe { DeviceBuffer::<u8>::uninitialized(&context, most)? });
    drop(take(&pool.on(&stream), most)?);
    stream.synchronize()?;
    drop(take(&other.on(&stream), most)?);
    // Not where that is turned off.
    let policy = OomPolicy::new().compact(false);
    let strict = Context::builder().oom_policy(policy).build()?;
    stream.synchronize()?;
    // SAFETY: not read.
    let Err(Error::OutOfMemory(why)) =
        (unsafe { DeviceBuffer::<u8>::uninitialized(&strict, most) })
    else {
        panic!("the pool of the other context has it");
    };
    assert!(!why.recovery[0].allowed && why.recovery[0].step == RecoveryStep::Compact);
    assert_eq!(other.stats().held, most as u64, "it was released");
    Ok(())
}
