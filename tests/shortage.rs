//! What happens before an allocation fails: callbacks, waiting for frees, trimming; and the budget of
//! a context.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use crate::support::gate::Gate;
use crate::support::room::*;
use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::oom::{Cause, OomPolicy, RecoveryStep};
use cuguard::{Context, DeviceBuffer, Error, ManagedBuffer, ResourceKind, Result, Stream};

/// Frees that have not happened yet: the recovery steps wait for them; without the steps the error names them.
#[test]
fn frees_that_wait_for_their_stream() -> Result<()> {
    let turn = turn();
    if !simulated("frees_that_wait_for_their_stream") {
        return Ok(());
    }
    for wait in [false, true] {
        let settings = OomPolicy::new().wait(wait);
        let context = Context::builder().oom_policy(settings).build()?;
        let stream = Stream::new(&context)?;
        let buffer = take_on(&stream, 3 * GIB)?;
        stream.synchronize()?;
        let gate = Gate::on(&context, &stream);
        drop(buffer);
        let opener = wait.then(|| gate.open_later());
        let second = take(&context, 2 * GIB);
        if wait {
            assert!(gate.is_open(), "it did not wait");
            drop(second?);
        } else {
            let why = why(second);
            let cause = Cause::PendingFrees {
                bytes: 3 * GIB as u64,
                streams: 1,
            };
            assert_eq!(why.causes(), [cause], "{why:#}");
            let wait = why
                .recovery
                .iter()
                .find(|attempt| attempt.step == RecoveryStep::Wait);
            assert!(wait.is_some_and(|wait| !wait.allowed && !wait.tried));
            assert!(why.to_text().contains("OomPolicy::wait(true)"), "{why:#}");
            gate.open();
        }
        if let Some(opener) = opener {
            opener.join().expect("no panic");
        }
        drop((stream, context));
    }
    turn.all_came_back();
    Ok(())
}

#[test]
fn callbacks_are_called_in_order_until_there_is_enough() -> Result<()> {
    let turn = turn();
    if !simulated("callbacks_are_called_in_order_until_there_is_enough") {
        return Ok(());
    }
    let context = context()?;
    let calls = Arc::new(Mutex::new(Vec::new()));
    let mut caches = Vec::new();
    let mut callbacks = Vec::new();
    for number in 0..3 {
        let cache = Arc::new(Mutex::new(Some(take(&context, GIB)?)));
        let (calls, held) = (calls.clone(), cache.clone());
        callbacks.push(context.release_on_oom(move |bytes| {
            calls.lock().unwrap().push((number, bytes));
            drop(held.lock().unwrap().take());
        }));
        caches.push(cache);
    }
    let buffer = take(&context, 2 * GIB)?;
    let asked = 2 * GIB as u64;
    assert_eq!(*calls.lock().unwrap(), [(0, asked), (1, asked)]);
    drop(buffer);
    // Callbacks that are gone are not called.
    callbacks.clear();
    calls.lock().unwrap().clear();
    let why = why(take(&context, 4 * GIB - 64 * MIB));
    assert!(calls.lock().unwrap().is_empty());
    assert!(why.recovery.iter().all(|attempt| !attempt.tried), "{why:#}");
    drop((caches, context));
    turn.all_came_back();
    Ok(())
}

/// A callback may allocate, close its context, and panic.
#[test]
fn callbacks_may_do_anything() -> Result<()> {
    let turn = turn();
    if !simulated("callbacks_may_do_anything") {
        return Ok(());
    }
    let context = Arc::new(context()?);
    let nested = Arc::new(AtomicUsize::new(0));
    let callback = context.release_on_oom({
        let (weak, nested) = (Arc::downgrade(&context), nested.clone());
        move |_| {
            let context = weak.upgrade().expect("alive");
            let why = why(take(&context, 8 * GIB));
            assert!(why.recovery.is_empty(), "it does not climb again");
            nested.fetch_add(1, Ordering::Relaxed);
        }
    });
    why(take(&context, 8 * GIB));
    assert_eq!(nested.load(Ordering::Relaxed), 1);
    drop(callback);

    let callback = context.release_on_oom(|_| panic!("in a callback"));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        drop(take(&context, 8 * GIB));
    }));
    assert!(caught.is_err());
    drop(callback);
    // The recovery steps run again after the panic.
    let why = why(take(&context, 8 * GIB));
    assert_eq!(why.recovery.len(), 3);

    let stream = Stream::new(&context)?;
    let last = Mutex::new(Some(context));
    let callback = last.lock().unwrap().as_ref().map(|context| {
        let weak = Arc::downgrade(context);
        context.release_on_oom(move |_| assert!(weak.upgrade().is_some()))
    });
    let owner = Mutex::new(last.into_inner().unwrap());
    drop(callback);
    let context = owner.into_inner().unwrap().expect("still there");
    let slot = Arc::new(Mutex::new(None));
    let callback = context.release_on_oom({
        let slot: Arc<Mutex<Option<Arc<Context>>>> = slot.clone();
        move |_| {
            let context = slot.lock().unwrap().take();
            let context = context.and_then(Arc::into_inner).expect("the last owner");
            context.close().unwrap();
        }
    });
    *slot.lock().unwrap() = Some(context);
    let error = take_on(&stream, 8 * GIB).unwrap_err();
    assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
    drop((callback, stream));
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_budget_holds_for_all_device_memory_and_all_threads() -> Result<()> {
    let turn = turn();
    const LIMIT: usize = 100 * MIB;
    let context = Context::builder().memory_limit(LIMIT as u64).build()?;
    let stream = Stream::new(&context)?;
    let device = take(&context, 40 * MIB)?;
    let ordered = take_on(&stream, 40 * MIB)?;
    let managed = ManagedBuffer::<u8>::zeroed(&context, 20 * MIB)?;
    let refusals = [
        why(take(&context, 1)),
        why(take_on(&stream, 1)),
        why(ManagedBuffer::<u8>::zeroed(&context, 1)),
    ];
    for why in &refusals {
        let cause = Cause::MemoryLimit {
            limit: LIMIT as u64,
            held: LIMIT as u64,
        };
        assert_eq!(why.causes(), [cause]);
        assert_eq!(why.request.function, None);
        assert!(
            why.to_text().contains("raise memory_limit from 100 MiB"),
            "{why:#}"
        );
    }
    let error = Error::OutOfMemory(Box::new(refusals[0].clone()));
    assert_eq!(error.code(), Some(CUresult::OUT_OF_MEMORY));
    // What is given away does not count, and counts again when it comes back.
    let (len, address) = (device.len(), device.into_raw());
    let more = take(&context, 40 * MIB)?;
    // SAFETY: the address was given away above.
    let device = unsafe { DeviceBuffer::<u8>::from_raw(&context, address, len) };
    drop((more, managed, ordered));
    assert!(take(&context, 60 * MIB + 1).is_err());
    drop(take(&context, 60 * MIB)?);
    drop(device);

    // Sixteen threads ask for a tenth each and keep it: ten of them have theirs, each time.
    let (barrier, had) = (Barrier::new(16), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..20 {
                    barrier.wait();
                    let buffer = take(&context, LIMIT / 10);
                    if buffer.is_ok() {
                        had.fetch_add(1, Ordering::SeqCst);
                    }
                    barrier.wait();
                    drop(buffer);
                }
            });
        }
    });
    assert_eq!(had.load(Ordering::SeqCst), 20 * 10);
    drop(take(&context, LIMIT)?);
    drop((stream, context));
    turn.all_came_back();
    Ok(())
}

#[test]
fn the_largest_block_is_found_on_demand() -> Result<()> {
    let turn = turn();
    if !simulated("the_largest_block_is_found_on_demand") {
        return Ok(());
    }
    let asking = OomPolicy::new().probe_largest(true);
    let context = Context::builder().oom_policy(asking).build()?;
    let data = leave(&context, 64 * MIB)?;
    let free = context.memory()?.free;
    assert_eq!(context.largest_block()?, free / PAGE * PAGE);
    let before = context.totals(ResourceKind::Device);
    let why = why(take(&context, GIB));
    assert_eq!(why.largest, Some(free / PAGE * PAGE));
    assert_eq!(
        context.totals(ResourceKind::Device),
        before,
        "trying leaves no trace"
    );
    drop((data, context));
    turn.all_came_back();
    Ok(())
}

/// Many threads run out of memory at once, with callbacks, pools and others that allocate.
#[test]
fn many_threads_run_out_at_once() -> Result<()> {
    let turn = turn();
    if !simulated("many_threads_run_out_at_once") {
        return Ok(());
    }
    let context = context()?;
    let data = leave(&context, 64 * MIB)?;
    let called = Arc::new(AtomicUsize::new(0));
    let callback = context.release_on_oom({
        let called = called.clone();
        move |_| {
            called.fetch_add(1, Ordering::Relaxed);
        }
    });
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let stream = Stream::new(&context).expect("a stream");
                barrier.wait();
                for round in 0..20 {
                    let small = take_on(&stream, MIB);
                    let large = match round % 2 {
                        0 => take(&context, GIB),
                        _ => take_on(&stream, GIB),
                    };
                    assert!(matches!(large, Err(Error::OutOfMemory(_))));
                    drop(small);
                }
            });
        }
    });
    assert!(called.load(Ordering::Relaxed) >= 160);
    drop((callback, data, context));
    turn.all_came_back();
    Ok(())
}

/// Pools are the device's: what waits on a stream of another context is waited for, and what waits on
/// a stream that is gone.
#[test]
fn frees_of_other_contexts_and_of_streams_that_are_gone() -> Result<()> {
    let turn = turn();
    if !simulated("frees_of_other_contexts_and_of_streams_that_are_gone") {
        return Ok(());
    }
    let (one, other) = (context()?, Context::builder().dedicated().build()?);
    for gone in [false, true] {
        let stream = Stream::new(&other)?;
        let buffer = take_on(&stream, 3 * GIB)?;
        stream.synchronize()?;
        let gate = Gate::on(&other, &stream);
        drop(buffer);
        let kept = (!gone).then_some(stream);
        let opener = gate.open_later();
        drop(take(&one, 2 * GIB)?);
        assert!(gate.is_open(), "it did not wait");
        opener.join().expect("no panic");
        drop(kept);
    }
    drop((one, other));
    turn.all_came_back();
    Ok(())
}

/// A stream that does not get there is not waited for without end.
#[test]
fn a_wait_ends() -> Result<()> {
    let turn = turn();
    if !simulated("a_wait_ends") {
        return Ok(());
    }
    let shortly = OomPolicy::new().wait_at_most(std::time::Duration::from_millis(30));
    let context = Context::builder().oom_policy(shortly).build()?;
    let stream = Stream::new(&context)?;
    let buffer = take_on(&stream, 3 * GIB)?;
    stream.synchronize()?;
    let gate = Gate::on(&context, &stream);
    drop(buffer);
    let why = why(take(&context, 2 * GIB));
    let cause = Cause::PendingFrees {
        bytes: 3 * GIB as u64,
        streams: 1,
    };
    assert_eq!(why.causes(), [cause], "{why:#}");
    assert!(why.to_text().contains("OomPolicy::wait_at_most"), "{why:#}");
    gate.open();
    drop((stream, context));
    turn.all_came_back();
    Ok(())
}

/// A stream and a pool that are closed while another thread looks for memory are closed, not leaked.
#[test]
fn streams_and_pools_come_and_go_while_memory_runs_out() -> Result<()> {
    let turn = turn();
    if !simulated("streams_and_pools_come_and_go_while_memory_runs_out") {
        return Ok(());
    }
    let context = context()?;
    let data = leave(&context, 256 * MIB)?;
    let stop = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while stop.load(Ordering::Relaxed) == 0 {
                    assert!(take(&context, GIB).is_err());
                }
            });
        }
        for _ in 0..200 {
            let stream = Stream::new(&context).expect("a stream");
            let pool = cuguard::DriverPool::new(&context).expect("a pool");
            drop(DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000));
            stream.close().expect("it is closed");
            pool.close().expect("it is closed");
        }
        stop.store(1, Ordering::Relaxed);
    });
    drop(data);
    assert_eq!(context.live_count(), 0);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// A stream that always gets more to do is waited for only until it has done what it had.
#[test]
fn a_stream_that_is_never_idle_is_not_waited_for_without_need() -> Result<()> {
    let turn = turn();
    if !simulated("a_stream_that_is_never_idle_is_not_waited_for_without_need") {
        return Ok(());
    }
    let context = context()?;
    let stream = Stream::new(&context)?;
    let buffer = take_on(&stream, 3 * GIB)?;
    stream.synchronize()?;
    let first = Gate::on(&context, &stream);
    drop(buffer);
    let opener = first.open_later();
    // More comes while the free is being waited for: behind the mark that is looked at again and again.
    let looks = || {
        let counters = cuguard::sim::counters();
        counters.calls.get("cuEventQuery").copied()
    };
    let (before, over, second) = (looks(), AtomicBool::new(false), Mutex::new(None));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while looks() == before && !over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            *second.lock().unwrap() = Some(Gate::on(&context, &stream));
        });
        let granted = take(&context, 2 * GIB);
        over.store(true, Ordering::Relaxed);
        let more = second.lock().unwrap().take();
        if let Some(more) = &more {
            assert!(!more.is_open());
            more.open();
        }
        granted.map(drop)
    })?;
    opener.join().expect("no panic");
    if let Some(more) = second.lock().unwrap().as_ref() {
        more.open();
    }
    drop((stream, context));
    turn.all_came_back();
    Ok(())
}
