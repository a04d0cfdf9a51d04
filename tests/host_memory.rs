//! Pinned and registered host memory goes back to the allocator, whenever it is dropped: also while its
//! context is closed, and inside a host function that the close waits for.

use std::alloc::Layout;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::support::gate::Gate;
use crate::support::*;
use cuguard::{Context, PinnedBuffer, RegisteredVec, Result, Stream};

/// Larger than anything else that this program allocates.
const LARGE: usize = 8 << 20;

/// Long enough for a thread that does not wait to get ahead.
const A_WHILE: Duration = Duration::from_millis(100);

/// Large blocks that are allocated.
static BLOCKS: AtomicIsize = AtomicIsize::new(0);

fn count(layout: Layout, change: isize) {
    if layout.size() == LARGE {
        BLOCKS.fetch_add(change, Ordering::Relaxed);
    }
}

fn blocks() -> isize {
    heap::observe(count);
    BLOCKS.load(Ordering::Relaxed)
}

/// Two blocks.
fn buffers(context: &Context) -> Result<(PinnedBuffer<u8>, RegisteredVec<u8>)> {
    let before = blocks();
    let both = (
        PinnedBuffer::zeroed(context, LARGE)?,
        RegisteredVec::new(context, vec![0; LARGE])?,
    );
    assert_eq!(blocks(), before + 2);
    Ok(both)
}

#[test]
fn dropped_before_during_and_after_a_close() -> Result<()> {
    let turn = turn();
    for builder in [Context::builder(), Context::builder().dedicated()] {
        let context = builder.build()?;
        drop(buffers(&context)?);
        assert_eq!(blocks(), 0);

        let (during, after) = (buffers(&context)?, buffers(&context)?);
        let stream = Stream::new(&context)?;
        let gate = Gate::on(&context, &stream);
        thread::scope(|scope| {
            let closing = scope.spawn(|| context.close());
            // It waits for the stream then.
            assert!(soon(|| stream.is_idle().is_err()), "nothing is closed");
            drop(during);
            assert_eq!(blocks(), 4, "the device may still use it");
            gate.open();
            closing.join().unwrap()
        })?;
        assert_eq!(blocks(), 2);
        drop(after);
        assert_eq!(blocks(), 0);
        drop(stream);
    }
    turn.all_came_back();
    Ok(())
}

#[test]
fn taken_out_of_its_registration_during_a_close() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let registered = RegisteredVec::new(&context, vec![5_u8; LARGE])?;
    let stream = Stream::new(&context)?;
    let gate = Gate::on(&context, &stream);
    let values = thread::scope(|scope| {
        let closing = scope.spawn(|| context.close());
        assert!(soon(|| stream.is_idle().is_err()), "nothing is closed");
        let waiting = scope.spawn(|| registered.into_vec());
        thread::sleep(A_WHILE);
        assert!(!waiting.is_finished(), "the device may still use it");
        gate.open();
        closing.join().unwrap()?;
        waiting.join().unwrap()
    })?;
    assert!(values.iter().all(|value| *value == 5));
    drop((values, stream));
    assert_eq!(blocks(), 0);
    turn.all_came_back();
    Ok(())
}

/// The close waits for the host function, which drops memory that the close has yet to unregister.
#[test]
fn dropped_in_a_host_function_that_a_close_waits_for() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let buffers = buffers(&context)?;
    let ((say, begun), (go, wait)) = (channel(), channel());
    let bound = context.make_current()?;
    let host_function = move || {
        say.send(()).unwrap();
        wait.recv().unwrap();
        drop(buffers);
    };
    stream.add_callback(Box::new(host_function)).unwrap();
    drop(bound);
    begun.recv().unwrap();
    thread::scope(|scope| {
        let closing = scope.spawn(|| context.close());
        thread::sleep(A_WHILE);
        go.send(()).unwrap();
        closing.join().unwrap()
    })?;
    assert_eq!(blocks(), 0);
    drop(stream);
    turn.all_came_back();
    Ok(())
}

#[test]
fn dropped_in_a_host_function() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let buffers = buffers(&context)?;
    let bound = context.make_current()?;
    stream
        .add_callback(Box::new(move || drop(buffers)))
        .unwrap();
    drop(bound);
    stream.synchronize()?;
    // The next operation frees it.
    context.memory()?;
    assert_eq!(blocks(), 0);
    drop(stream);
    context.close()?;
    turn.all_came_back();
    Ok(())
}
