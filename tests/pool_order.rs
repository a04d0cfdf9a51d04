//! Work that a pool must wait for, captures that it must not end, and devices that cannot access its memory.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::support::gate::Gate;
use crate::support::pool_blocks::{MIB, every_other, take};
use crate::support::*;
use cuguard::driver::api;
use cuguard::driver::sys::{CUgraph, CUstream, stream_capture_mode};
use cuguard::{Context, DeviceBuffer, Error, Pool, Result, Stream};

/// A block that is owned again on the per-thread default stream, which is another one on each thread: a thread that releases
/// idle memory waits for the work of the thread that freed it.
#[test]
fn a_block_of_the_per_thread_stream_is_not_released_early() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    // SAFETY: it lives as long as its context.
    let per_thread = unsafe { Stream::borrow_raw(&context, CUstream::PER_THREAD)? };
    let address = take(&pool, 8 * MIB)?.into_raw();
    // SAFETY: released above, with this length.
    let block = unsafe { DeviceBuffer::<u8>::from_raw_on(&per_thread, address, 8 * MIB) };
    let gate = Gate::on(&context, &per_thread);
    drop(block);
    let released = std::thread::scope(|scope| scope.spawn(|| pool.trim()).join().unwrap());
    gate.open();
    assert_eq!(released?, 0, "its stream still works");
    context.synchronize()?;
    assert_eq!(pool.trim()?, 8 << 20);
    drop((pool, per_thread));
    drop(context);
    turn.all_came_back();
    Ok(())
}

/// A guard is closed while another one of the same context captures: its pool is destroyed, with a block that leaked.
#[test]
fn a_pool_is_destroyed_while_another_guard_captures() -> Result<()> {
    let _turn = turn();
    let other = context()?;
    // A driver keeps memory for the streams and graphs of later.
    close_while_capturing(&other)?;
    let before = other.memory()?.free;
    close_while_capturing(&other)?;
    assert_eq!(other.memory()?.free, before);
    Ok(())
}

fn close_while_capturing(other: &Context) -> Result<()> {
    let capturing = Stream::new(other)?;
    let mut target = DeviceBuffer::<u8>::zeroed(other, 1000)?;
    let context = Context::new(0)?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let _lost = ManuallyDrop::new(take(&pool.on(&stream), 8 * MIB)?);
    drop(take(&pool.on(&stream), 16 * MIB)?);
    drop(take(&pool.on(&Stream::new(&context)?), 64 << 10)?);
    let mut closed = Ok(());
    let graph = capturing.capture(|s| {
        s.fill(&mut s.bind_mut(&mut target)?, 3)?;
        closed = context.close();
        Ok(())
    });
    closed?;
    drop(graph?);
    drop((pool, stream));
    Ok(())
}

/// A thread allocates a block on a borrowed stream and ends; meanwhile the guard and the block are dropped, and the program
/// destroys the stream. `keep` says whether the thread sends the block, or drops it.
fn destroy_a_borrowed_stream(keep: bool) -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    for _ in 0..1000 {
        let raw = Stream::new(&context)?.into_raw().unwrap();
        // SAFETY: alive until the guard and the block are dropped.
        let stream = Arc::new(unsafe { Stream::borrow_raw(&context, raw)? });
        let (done, is_done) = mpsc::channel();
        std::thread::scope(|scope| {
            let (stream_there, pool) = (stream.clone(), &pool);
            scope.spawn(move || {
                let block = take(&pool.on(&stream_there), 1000).unwrap();
                drop(stream_there);
                done.send(keep.then_some(block)).unwrap();
                // What the thread kept for its next block is dropped now.
            });
            let block = is_done.recv().unwrap();
            drop(stream);
            drop(block);
            let _current = context.make_current().unwrap();
            // SAFETY: created above, and used by no guard any more.
            let destroyed = unsafe { api::cuStreamDestroy_v2(raw) };
            assert!(destroyed.is_success(), "{destroyed}");
        });
    }
    Ok(())
}

#[test]
fn a_borrowed_stream_is_not_used_after_its_guard() -> Result<()> {
    destroy_a_borrowed_stream(false)
}

#[test]
fn a_borrowed_stream_is_not_used_after_its_last_block() -> Result<()> {
    destroy_a_borrowed_stream(true)
}

/// Teardown destroys streams before pools: nothing is recorded in them any more, also where a block escaped.
#[test]
fn idle_memory_of_destroyed_streams_is_released() -> Result<()> {
    let _turn = turn();
    let other = context()?;
    let context = Context::new(0)?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let escaped = take(&pool.on(&stream), MIB)?.into_raw();
    drop(take(&pool.on(&stream), 8 * MIB)?);
    let before = other.memory()?.free;
    context.close()?;
    let after = other.memory()?.free;
    assert_eq!(after, before + (8 << 20), "all but {escaped:#x}");
    drop((pool, stream));
    Ok(())
}

/// Other code captures a stream that is known: a compaction fails, and does not end the capture.
#[test]
fn a_compaction_does_not_end_a_capture_of_other_code() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let captured = Stream::new(&context)?;
    let blocks = every_other(&pool, 32)?;
    context.synchronize()?;
    let handle = captured.as_raw();
    // SAFETY: the stream is alive.
    let begun = unsafe { api::cuStreamBeginCapture_v2(handle, stream_capture_mode::RELAXED) };
    assert!(begun.is_success(), "{begun}");
    let compacted = pool.compact();
    let mut graph = CUgraph::default();
    // SAFETY: begun above; the graph has no other owner.
    unsafe {
        let ended = api::cuStreamEndCapture(handle, &mut graph);
        assert!(ended.is_success(), "{ended}, {compacted:?}");
        assert!(api::cuGraphDestroy(graph).is_success());
    }
    let Err(Error::Pool { reason, .. }) = compacted else {
        panic!("{compacted:?}");
    };
    assert!(reason.contains("captured"), "{reason}");
    assert!(pool.compact()?.merged > 0);
    drop(blocks);
    Ok(())
}

/// Host functions on a blocking stream free blocks, and wait for a compaction that has begun: it does not wait for them.
#[test]
fn a_compaction_does_not_wait_for_blocking_streams() -> Result<()> {
    unsafe extern "C" fn free(block: *mut c_void) {
        // SAFETY: made by `Box::into_raw` below, for this one call.
        drop(unsafe { Box::from_raw(block.cast::<DeviceBuffer<u8>>()) });
    }
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let blocking = Stream::builder(&context).blocking().build()?;
    let freed: Vec<_> = (0..300).map(|_| take(&pool, 1000)).collect::<Result<_>>()?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _current = context.make_current().unwrap();
            for block in freed {
                let block = Box::into_raw(Box::new(block)).cast();
                // Not through the guard, which would stop it during a compaction.
                // SAFETY: the stream is alive, and the function takes the block.
                let code = unsafe { api::cuLaunchHostFunc(blocking.as_raw(), Some(free), block) };
                assert!(code.is_success(), "{code}");
                std::thread::sleep(Duration::from_micros(300));
            }
            is_over.store(true, Ordering::Release);
        });
        while !is_over.load(Ordering::Acquire) {
            let blocks = every_other(&pool, 64).unwrap();
            // It may be busy.
            let _ = pool.compact();
            drop(blocks);
        }
    });
    blocking.synchronize()?;
    let blocks = every_other(&pool, 64)?;
    assert!(!pool.compact()?.refused);
    drop(blocks);
    Ok(())
}

/// Only the device of a pool has access to its pages, also through the view of a graph that uses them.
#[test]
fn no_view_of_a_graph_for_scopes_of_other_devices() -> Result<()> {
    const TEST: &str = "no_view_of_a_graph_for_scopes_of_other_devices";
    if !simulated(TEST) {
        return Ok(());
    }
    if part().is_none() {
        let devices = [("CUGUARD_DRIVER", "sim"), ("CUGUARD_SIM", "devices=2")];
        succeeded(&child(TEST, "two devices", &devices));
        return Ok(());
    }
    let (first, second) = (Context::new(0)?, Context::new(1)?);
    let pool = Pool::new(&first)?;
    let (stream, remote) = (Stream::new(&first)?, Stream::new(&second)?);
    for is_pooled in [true, false] {
        let mut buffer = match is_pooled {
            true => DeviceBuffer::from_slice(&pool, &[1_u8, 2, 3])?,
            false => DeviceBuffer::from_slice(&first, &[1_u8, 2, 3])?,
        };
        let (graph, data) = stream.capture(|s| s.export_mut(&s.bind_mut(&mut buffer)?))?;
        let mut exec = graph.instantiate()?;
        let view = exec.view(&data)?;
        let bound = remote.scope(|s| s.bind_peer(view).map(drop));
        assert_eq!(bound.is_err(), is_pooled, "{bound:?}");
        let view = exec.view_mut(&data)?;
        let bound = remote.scope(|s| s.bind_peer_mut(view).map(drop));
        assert_eq!(bound.is_err(), is_pooled, "{bound:?}");
    }
    Ok(())
}
