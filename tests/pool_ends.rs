//! The end of pools, streams, threads, contexts and processes with blocks of a pool.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::gate::Gate;
use crate::support::pool_blocks::{MIB, take};
use crate::support::*;
use cuguard::report::ReportSettings;
use cuguard::{
    Context, DeviceBuffer, Error, Pool, ResourceKind, Result, Stream, assert_no_leaks, sim,
};

/// In every order of drops everything is freed, and the last of them closes the context.
#[test]
fn any_order_of_drops() -> Result<()> {
    let turn = turn();
    for order in 0..24 {
        let context = context()?;
        let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
        let buffer = take(&pool.on(&stream), 5 * MIB)?;
        let mut all: Vec<Box<dyn std::any::Any>> = vec![
            Box::new(context),
            Box::new(pool),
            Box::new(stream),
            Box::new(buffer),
        ];
        let mut digits = order;
        for left in (1..=4).rev() {
            drop(all.remove(digits % left));
            digits /= left;
        }
        turn.all_came_back();
    }
    Ok(())
}

#[test]
fn a_stream_is_destroyed_with_its_last_block_and_no_later() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let stream = Stream::new(&context)?;
    drop(take(&pool.on(&stream), MIB)?);
    // Blocks that are kept for the next allocation do not keep the stream.
    stream.close()?;
    assert_eq!(context.totals(ResourceKind::Stream).count, 0);
    let stream = Stream::new(&context)?;
    let buffer = take(&pool.on(&stream), MIB)?;
    let clone = buffer.try_clone()?;
    drop(stream);
    assert_eq!(context.totals(ResourceKind::Stream).count, 1);
    // The guard is dropped, so that nothing keeps the stream beside its blocks.
    let more = thread::scope(|scope| scope.spawn(|| clone.try_clone()).join().unwrap())?;
    drop((buffer, clone));
    assert_eq!(context.totals(ResourceKind::Stream).count, 1);
    drop(more);
    assert_eq!(context.totals(ResourceKind::Stream).count, 0);
    // The raw handle is the caller's where only kept blocks would share it.
    let stream = Stream::new(&context)?;
    drop(take(&pool.on(&stream), MIB)?);
    let handle = stream.into_raw().expect("no buffer shares it");
    // SAFETY: released above, in the same context.
    drop(unsafe { Stream::from_raw(&context, handle)? });
    drop(pool);
    assert_no_leaks!(context);
    Ok(())
}

/// A destroyed stream may still work on a block: its memory is not reused before.
#[test]
fn memory_of_a_destroyed_stream_is_reused_after_its_work() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let gate = Gate::on(&context, &one);
    let block = take(&pool.on(&one), 4 * MIB)?;
    let address = block.as_view().as_device_ptr();
    drop((block, one));
    let early = take(&pool.on(&other), 4 * MIB)?;
    assert_ne!(early.as_view().as_device_ptr(), address);
    assert_eq!(pool.trim()?, 0, "its stream still works");
    gate.open();
    context.synchronize()?;
    assert_eq!(pool.trim()?, 4 << 20);
    Ok(())
}

#[test]
fn threads_that_allocate_and_free_leave_nothing_behind() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let (pool, shared) = (Pool::new(&context)?, Stream::new(&context)?);
    thread::scope(|scope| {
        let (send, receive) = channel();
        let threads = [0_usize, 1, 2, 3, 4, 5].map(|number| {
            let (pool, shared, context, send) = (&pool, &shared, &context, send.clone());
            scope.spawn(move || {
                let own = Stream::new(context).unwrap();
                for round in 0..200 {
                    let bytes = 1 << ((number + round) % 21);
                    let values = vec![(number * 31 + round) as u8; bytes.min(1000)];
                    let stream = if round % 2 == 0 { &own } else { shared };
                    let mut buffer = take(&pool.on(stream), values.len()).unwrap();
                    buffer.copy_from_slice(&values).unwrap();
                    let large = take(&pool.on(stream), bytes).unwrap();
                    assert_eq!(buffer.to_vec().unwrap(), values);
                    // Freed on another thread.
                    if round % 3 == 0 {
                        send.send((buffer, large)).unwrap();
                    }
                }
            })
        });
        drop(send);
        receive.into_iter().for_each(drop);
        // A scope does not wait for the thread-local variables of its threads, in which each has what it knows of the stream.
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!(context.totals(ResourceKind::Pooled).count, 0);
    drop((pool, shared));
    assert_no_leaks!(context);
    drop(context);
    turn.all_came_back();
    Ok(())
}

/// Runs `check` with the pool and the stream while another thread lives that has allocated and freed blocks of them.
fn beside_a_thread_that_used(pool: Pool, stream: Stream, check: impl FnOnce(Pool, Stream)) {
    let both = Arc::new((pool, stream));
    let used = both.clone();
    let (ready, wait) = channel();
    let (end, ended) = channel::<()>();
    let other = thread::spawn(move || {
        let (pool, stream) = &*used;
        for _ in 0..3 {
            let blocks = (0..40).map(|_| take(&pool.on(stream), 1000).unwrap());
            drop(blocks.collect::<Vec<_>>());
        }
        drop(used);
        ready.send(()).unwrap();
        let _ = ended.recv();
    });
    wait.recv().expect("the other thread got this far");
    let (pool, stream) = Arc::into_inner(both).expect("the other thread has dropped its own");
    check(pool, stream);
    drop(end);
    other.join().unwrap();
}

/// Nothing that a thread keeps for its next block outlives the guard of the pool or that of the stream, though the thread
/// lives on.
#[test]
fn a_thread_that_lives_on_keeps_neither_pool_nor_stream() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    for stream_first in [false, true] {
        let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
        beside_a_thread_that_used(pool, stream, |pool, stream| {
            // This thread has blocks of its own, and one that outlives both guards.
            let own = take(&pool.on(&stream), MIB).unwrap();
            drop(take(&pool.on(&stream), MIB).unwrap());
            match stream_first {
                true => drop((stream, pool)),
                false => drop((pool, stream)),
            }
            let streams = || context.totals(ResourceKind::Stream).count;
            assert_eq!(streams(), 1, "the block keeps it");
            drop(own);
            assert_eq!(streams(), 0);
            before.all_freed();
        });
    }
    assert_no_leaks!(context);
    Ok(())
}

/// Blocks that other threads free while the guards of their pool and stream are dropped: each goes back to the pool, and the
/// last one ends it.
#[test]
fn blocks_are_freed_on_other_threads_while_the_guards_are_dropped() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let (to_free, frees): (Vec<_>, Vec<_>) = (0..3).map(|_| channel()).unzip();
    thread::scope(|scope| {
        let (done, all_done) = channel();
        let threads: Vec<_> = frees
            .into_iter()
            .map(|blocks| {
                let done = done.clone();
                scope.spawn(move || {
                    for block in blocks {
                        drop::<DeviceBuffer<u8>>(block);
                        done.send(()).unwrap();
                    }
                })
            })
            .collect();
        for round in 0..200 {
            let (pool, stream) = (Pool::new(&context).unwrap(), Stream::new(&context).unwrap());
            for to_free in &to_free {
                to_free
                    .send(take(&pool.on(&stream), 1000).unwrap())
                    .unwrap();
            }
            // Spares of this thread, and blocks that the others free meanwhile.
            drop(take(&pool.on(&stream), 1000).unwrap());
            match round % 2 {
                0 => drop((pool, stream)),
                _ => drop((stream, pool)),
            }
            to_free.iter().for_each(|_| all_done.recv().unwrap());
            assert_eq!(context.totals(ResourceKind::Pooled).count, 0);
        }
        drop(to_free);
        // The end of a scope does not wait for thread-local variables, which may have the last block's home.
        threads.into_iter().for_each(|one| one.join().unwrap());
    });
    assert_eq!(context.totals(ResourceKind::Stream).count, 0);
    // A pool whose last block was freed before its stream ended is destroyed in the background.
    let begin = Instant::now();
    while !before.is_all_freed() && begin.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(5));
    }
    before.all_freed();
    assert_no_leaks!(context);
    Ok(())
}

#[test]
fn a_closed_context_frees_what_leaked_and_guards_are_inert() -> Result<()> {
    let turn = turn();
    let file = temporary("pool.json");
    let settings = ReportSettings::json().file(file.to_str().unwrap()).unwrap();
    let context = Context::builder().report(settings).build()?;
    let others = Context::new(0)?;
    let before = in_hand(&others)?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let lost = take(&pool.on(&stream), 5 * MIB)?.with_label("lost");
    context.close()?;
    // Freed although another guard keeps the primary context.
    before.all_freed();
    let report = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(report.contains("\"kind\":\"pooled\"") && report.contains("\"label\":\"lost\""));
    assert!(matches!(lost.to_vec(), Err(Error::ContextClosed { .. })));
    assert!(matches!(
        take(&pool.on(&stream), 1),
        Err(Error::ContextClosed { .. })
    ));
    assert!(matches!(pool.trim(), Err(Error::ContextClosed { .. })));
    assert!(matches!(pool.compact(), Err(Error::ContextClosed { .. })));
    let calls = sim::counters().calls;
    drop((lost, pool, stream));
    assert_eq!(sim::counters().calls, calls, "no call after the close");
    drop(others);
    turn.all_came_back();
    Ok(())
}

#[test]
fn leaks_stay_where_they_are_not_to_be_freed() -> Result<()> {
    let _turn = turn();
    let others = Context::new(0)?;
    let context = Context::builder().free_leaks(false).build()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let lost = ManuallyDrop::new(take(&pool.on(&stream), 8 * MIB)?);
    drop(take(&pool.on(&stream), 16 * MIB)?);
    stream.synchronize()?;
    let before = others.memory()?.free;
    context.close()?;
    // The idle block is released, the other one stays.
    let after = others.memory()?.free;
    assert_eq!(after, before + (16 << 20), "{lost:?}");
    Ok(())
}

#[test]
fn an_escaped_block_is_owned_again_or_stays() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let mut buffer = take(&pool.on(&stream), 3 * MIB)?.with_label("away");
    buffer.fill(7)?;
    let address = buffer.into_raw();
    assert_eq!(context.snapshot().escaped.len(), 1);
    drop(pool);
    // The pool is kept by the block.
    // SAFETY: released above, with this length.
    let buffer = unsafe { DeviceBuffer::<u8>::from_raw_on(&stream, address, 3 * MIB) };
    assert_eq!(context.totals(ResourceKind::Pooled).count, 1);
    assert!(buffer.to_vec()? == vec![7; 3 * MIB]);
    let snapshot = context.snapshot();
    let group = snapshot
        .live
        .iter()
        .find(|group| group.kind == ResourceKind::Pooled);
    assert_eq!(group.unwrap().label.as_deref(), Some("away"));
    let address = buffer.into_raw();
    // SAFETY: as above.
    let buffer = unsafe { DeviceBuffer::<u8>::from_raw(&context, address, 3 * MIB) };
    assert!(buffer.to_vec()? == vec![7; 3 * MIB]);
    drop((buffer, stream));
    assert_no_leaks!(context);
    Ok(())
}

/// The new owner has fewer values than there were: the whole block is freed.
#[test]
fn an_escaped_block_is_owned_again_with_a_smaller_length() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    for (bytes, fewer) in [(3 * MIB, 2 * MIB), (MIB, 5), (100_000, 10)] {
        let address = take(&pool.on(&stream), bytes)?.into_raw();
        // SAFETY: released above, with a length that is not smaller.
        let buffer = unsafe { DeviceBuffer::<u8>::from_raw_on(&stream, address, fewer) };
        assert_eq!(buffer.len(), fewer);
        drop(buffer);
        stream.synchronize()?;
        assert_ne!(pool.trim()?, 0, "{bytes}");
        assert_eq!(pool.stats().held, 0, "{bytes}");
    }
    assert_eq!(context.live_bytes(), 0);
    drop((pool, stream));
    assert_no_leaks!(context);
    Ok(())
}

/// The addresses of escaped memory are valid after the context was closed.
#[test]
fn escaped_memory_outlives_its_context() -> Result<()> {
    let _turn = turn();
    let others = context()?;
    let context = Context::new(0)?;
    let pool = Pool::new(&context)?;
    let address = DeviceBuffer::from_slice(&pool, &[5_u8; 1000])?.into_raw();
    context.close()?;
    drop(pool);
    // SAFETY: the memory stays until the process exits; nothing else uses it.
    let view = unsafe { DeviceBuffer::<u8>::borrow_raw(&others, address, 1000) };
    assert_eq!(view.to_vec()?, [5; 1000]);
    Ok(())
}

/// A block is freed inside a host function, where the driver permits no call.
#[test]
fn a_drop_in_a_host_function() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let buffer = take(&pool.on(&stream), 5 * MIB)?;
    let last = take(&Pool::new(&context)?.on(&stream), 5 * MIB)?;
    let (say, done) = channel();
    let bound = context.make_current()?;
    stream
        .add_callback(Box::new(move || {
            // The second is the last block of its pool, which cannot be destroyed here.
            drop((buffer, last));
            say.send(()).unwrap();
        }))
        .unwrap();
    done.recv().unwrap();
    drop(bound);
    stream.synchronize()?;
    assert_eq!(context.totals(ResourceKind::Pooled).count, 0);
    drop((pool, stream));
    assert_no_leaks!(context);
    drop(context);
    turn.all_came_back();
    Ok(())
}

/// The last block of a pool is freed where the driver permits no call, and then its stream is destroyed: the pool must know
/// of that, although nothing but its context has it.
#[test]
fn a_pool_without_a_guard_knows_that_a_stream_ends() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = context.memory()?.free;
    let stream = Stream::new(&context)?;
    let last = take(&Pool::new(&context)?.on(&stream), 5 * MIB)?;
    assert!(context.memory()?.free < before);
    let (say, done) = channel();
    let bound = context.make_current()?;
    stream
        .add_callback(Box::new(move || {
            drop(last);
            say.send(()).unwrap();
        }))
        .unwrap();
    done.recv().unwrap();
    drop((bound, stream));
    context.synchronize()?;
    assert_eq!(context.memory()?.free, before);
    drop(context);
    turn.all_came_back();
    Ok(())
}

/// The pool could not be destroyed with its last block, and a stream on which the block was freed ends.
#[test]
fn a_stream_ends_after_a_pool_without_blocks() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let (home, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let last = take(&Pool::new(&context)?.on(&home), 5 * MIB)?;
    let bound = context.make_current()?;
    other.add_callback(Box::new(move || drop(last))).unwrap();
    other.synchronize()?;
    drop(bound);
    drop(home);
    context.synchronize()?;
    drop(take(&Pool::new(&context)?.on(&other), 5 * MIB)?);
    drop(other);
    assert_no_leaks!(context);
    drop(context);
    turn.all_came_back();
    Ok(())
}

/// The same where the stream ends inside the host function: the pool does not use it any more, and its memory waits until
/// the device is known to be idle.
#[test]
fn a_stream_that_ends_in_a_host_function() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let pool = Pool::builder().merge(false).build(&context)?;
    let stream = Stream::new(&context)?;
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
    drop((bound, stream));
    go.send(()).unwrap();
    done.recv().unwrap();
    context.synchronize()?;
    assert_eq!(pool.trim()?, 6 << 20);
    drop((pool, context));
    turn.all_came_back();
    Ok(())
}

/// At exit the report names the block, and nothing calls the driver.
#[test]
fn exit_reports_from_the_registry() {
    const TEST: &str = "exit_reports_from_the_registry";
    if part().is_some() {
        let context = context().unwrap();
        let (pool, stream) = (Pool::new(&context).unwrap(), Stream::new(&context).unwrap());
        std::mem::forget(take(&pool.on(&stream), 12_345).unwrap().with_label("lost"));
        std::mem::forget((context, pool, stream));
        std::process::exit(7);
    }
    let limit = Duration::from_secs(30);
    let output = child_within(limit, TEST, "child", &[("LEAK_REPORT", "1")]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{err}");
    assert!(err.contains("pool memory") && err.contains("lost"), "{err}");
}

#[test]
fn a_forked_child_frees_nothing_and_does_not_hang() {
    const TEST: &str = "a_forked_child_frees_nothing_and_does_not_hang";
    if part().is_some() {
        let context = context().unwrap();
        let (pool, stream) = (Pool::new(&context).unwrap(), Stream::new(&context).unwrap());
        let buffer = take(&pool.on(&stream), MIB).unwrap();
        drop(take(&pool.on(&stream), 1000).unwrap());
        // SAFETY: the child only does what is under test, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = take(&pool.on(&stream), 1000).is_err() && pool.trim().is_err();
            drop((buffer, pool, stream, context));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let mut status = -1;
        // SAFETY: our own child, and the variable can be written to.
        unsafe { libc::waitpid(child, &mut status, 0) };
        drop((buffer, pool, stream, context));
        std::process::exit(if status == 0 { 7 } else { 8 });
    }
    let output = child_within(Duration::from_secs(30), TEST, "child", &[]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{err}");
}
