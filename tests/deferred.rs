//! What is put off in host functions, while other threads close contexts, allocate, and exit.

use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::thread;
use std::time::Duration;

use crate::support::*;
use cuguard::context::ContextBuilder;
use cuguard::driver::api;
use cuguard::report::ReportSettings;
use cuguard::snapshot::Group;
use cuguard::{
    Context, DeviceBuffer, DriverPool, Event, ResourceKind, Result, Stream, TrackingLevel, sim,
};

const MIB: usize = 1 << 20;

/// Long enough for a thread that does not wait to get ahead.
const A_WHILE: Duration = Duration::from_millis(100);

/// Has a host function called, and does not wait for it.
fn host(stream: &Stream, current: &Context, function: impl FnOnce() + Send + 'static) {
    // SAFETY: the context is alive.
    assert!(unsafe { api::cuCtxPushCurrent_v2(current.as_raw()) }.is_success());
    stream.add_callback(Box::new(function)).unwrap();
    // SAFETY: pops what was pushed above.
    assert!(unsafe { api::cuCtxPopCurrent_v2(std::ptr::null_mut()) }.is_success());
}

/// A context whose report goes into a file.
fn reported(test: &str, builder: ContextBuilder) -> Result<(Context, PathBuf)> {
    let file = format!("cuguard-deferred-{}-{test}.json", std::process::id());
    let file = temporary(&file);
    let settings = ReportSettings::json().file(file.to_str().unwrap()).unwrap();
    Ok((builder.report(settings).build()?, file))
}

fn read(file: &PathBuf) -> String {
    let report = std::fs::read_to_string(file).unwrap_or_default();
    let _ = std::fs::remove_file(file);
    report
}

/// Drops `more` in a host function, and a context before it whose teardown then waits in the queue; it
/// takes until the answer is sent to.
fn slow_teardown(
    context: &Context,
    stream: &Stream,
    more: impl Send + 'static,
) -> Result<Sender<()>> {
    let slow = Context::builder().dedicated().build()?;
    let slow_stream = Stream::new(&slow)?;
    let ((go, wait), (say, dropped)) = (channel(), channel());
    host(&slow_stream, &slow, move || {
        let _ = wait.recv_timeout(Duration::from_secs(20));
    });
    host(stream, context, move || {
        drop((slow, slow_stream));
        drop(more);
        say.send(()).unwrap();
    });
    dropped.recv().unwrap();
    thread::sleep(A_WHILE);
    Ok(go)
}

/// However many, and however long it goes on: no operation goes deeper for each of them.
#[test]
fn many_drops_beside_other_operations() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let events: Vec<_> = (0..60_000)
        .map(|_| Event::new(&context))
        .collect::<Result<_>>()?;
    let (begun, over) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let flags = (begun.clone(), over.clone());
    host(&stream, &context, move || {
        flags.0.store(true, Ordering::SeqCst);
        drop(events);
        flags.1.store(true, Ordering::SeqCst);
    });
    while !begun.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    while !over.load(Ordering::SeqCst) {
        context.memory()?;
    }
    stream.synchronize()?;
    context.memory()?;
    assert_eq!(context.live_count(), 1);
    drop(stream);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// The other context cannot be torn down before this thread goes on.
#[test]
fn what_must_not_wait_does_not() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let event = Event::new(&context)?;
    let go = slow_teardown(&context, &stream, ())?;
    stream.is_idle()?;
    event.record(&stream)?;
    other.wait_for(&event)?;
    other.order_after(&stream)?;
    drop(DeviceBuffer::<u8>::zeroed(&stream, 1000)?);
    drop((event, other));
    go.send(()).unwrap();
    stream.synchronize()?;
    drop(stream);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// A guard that a host function owns, which the close waits for.
#[test]
fn dropped_while_a_close_waits_is_no_leak() -> Result<()> {
    let turn = turn();
    let others = context()?;
    for builder in [
        Context::builder(),
        Context::builder().level(TrackingLevel::Counts),
        Context::builder().free_leaks(false),
    ] {
        let before = in_hand(&others)?;
        let (context, file) = reported("waits", builder)?;
        let stream = Stream::new(&context)?;
        let buffer = DeviceBuffer::<u8>::zeroed(&context, 8 * MIB)?;
        let (go, wait) = channel::<()>();
        host(&stream, &context, move || {
            wait.recv().unwrap();
            // Until the close has begun to wait.
            thread::sleep(A_WHILE);
            drop(buffer);
        });
        drop(stream);
        go.send(()).unwrap();
        context.close()?;
        let report = read(&file);
        assert!(report.contains(r#""leaked":false"#), "{report}");
        assert!(report.contains(r#""late_drops":[]"#), "{report}");
        others.synchronize()?;
        before.all_freed();
    }
    others.close()?;
    turn.all_came_back();
    Ok(())
}

/// Another thread is tearing a context down, with this buffer behind it in the queue.
#[test]
fn a_close_beside_a_slow_teardown_loses_nothing() -> Result<()> {
    let turn = turn();
    let others = context()?;
    for builder in [
        Context::builder(),
        Context::builder().level(TrackingLevel::Counts),
        Context::builder().free_leaks(false),
    ] {
        let stream = Stream::new(&others)?;
        let before = in_hand(&others)?;
        let (context, file) = reported("beside", builder)?;
        let buffer = DeviceBuffer::<u8>::zeroed(&context, 64 * MIB)?;
        let go = slow_teardown(&others, &stream, buffer)?;
        let teardown = CallsOf::new("cuCtxSynchronize");
        thread::scope(|scope| {
            scope.spawn(|| others.memory().unwrap());
            teardown.wait();
            let closed = context.close();
            go.send(()).unwrap();
            closed
        })?;
        others.synchronize()?;
        before.all_freed();
        let report = read(&file);
        assert!(report.contains(r#""leaked":false"#), "{report}");
    }
    others.close()?;
    turn.all_came_back();
    Ok(())
}

/// Its memory is dropped, and comes back although a teardown stands before it.
#[test]
fn an_allocation_beside_a_slow_teardown() -> Result<()> {
    let turn = turn();
    let others = context()?;
    let stream = Stream::new(&others)?;
    let context = Context::builder().memory_limit(64 << 20).build()?;
    let ordered = Stream::new(&context)?;
    for on_stream in [false, true] {
        let buffer = DeviceBuffer::<u8>::zeroed(&context, 64 * MIB)?;
        let go = slow_teardown(&others, &stream, buffer)?;
        let again = thread::scope(|scope| {
            if !on_stream {
                let teardown = CallsOf::new("cuCtxSynchronize");
                scope.spawn(|| others.memory().unwrap());
                teardown.wait();
                let again = DeviceBuffer::<u8>::zeroed(&context, 64 * MIB);
                go.send(()).unwrap();
                return again;
            }
            // An allocation that does not wait itself frees it before it fails.
            go.send(()).unwrap();
            DeviceBuffer::<u8>::zeroed(&ordered, 64 * MIB)
        });
        drop(again?);
        ordered.synchronize()?;
        others.memory()?;
    }
    drop((stream, ordered));
    context.close()?;
    others.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_new_context_comes_after_one_that_waits_to_be_torn_down() -> Result<()> {
    let turn = turn();
    let others = context()?;
    let stream = Stream::new(&others)?;
    let context = Context::builder().dedicated().build()?;
    let before = sim::counters().contexts;
    let (say, dropped) = channel();
    host(&stream, &others, move || {
        drop(context);
        say.send(()).unwrap();
    });
    dropped.recv().unwrap();
    thread::sleep(A_WHILE);
    let new = Context::builder().dedicated().build()?;
    assert_eq!(sim::counters().contexts, before);
    drop((new, stream));
    others.close()?;
    turn.all_came_back();
    Ok(())
}

/// The process exits while a thread tears a context down, with more behind it in the queue.
#[test]
fn an_exit_beside_a_slow_teardown_reports_no_leak() {
    const TEST: &str = "an_exit_beside_a_slow_teardown_reports_no_leak";
    if part().is_some() {
        let others: &'static Context = Box::leak(Box::new(context().unwrap()));
        let stream: &'static Stream = Box::leak(Box::new(Stream::new(others).unwrap()));
        let context = Context::builder().dedicated().build().unwrap();
        let work = Stream::new(&context).unwrap();
        let buffer = DeviceBuffer::<u8>::zeroed(&work, MIB).unwrap();
        let go = slow_teardown(others, stream, (buffer, work, context)).unwrap();
        thread::spawn(|| others.memory().unwrap());
        thread::sleep(A_WHILE);
        std::mem::forget(go);
        std::process::exit(0);
    }
    let output = child(TEST, "exit", &[("LEAK_REPORT", "1")]);
    let (_, err) = succeeded(&output);
    // The one that was forgotten, in the first context.
    assert_eq!(err.matches("leaked 1 stream").count(), 2, "{err}");
    assert_eq!(err.matches("leaked 1").count(), 2, "{err}");
}

/// A pool that stays for memory which was released to the program.
#[test]
fn a_pool_that_stays_for_released_memory_is_no_leak() -> Result<()> {
    let _turn = turn();
    let others = context()?;
    for close in [true, false] {
        let (context, file) = reported("pool", Context::builder())?;
        let stream = Stream::new(&context)?;
        let pool = DriverPool::new(&context)?;
        let address = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), MIB)?.into_raw();
        drop((pool, stream));
        match close {
            true => context.close()?,
            false => drop(context),
        }
        let report = read(&file);
        assert!(report.contains(r#""leaked":false"#), "{report}");
        let escaped = report.split(r#""escaped":"#).nth(1).unwrap();
        assert!(escaped.contains(r#""kind":"memory_pool""#), "{report}");
        let _bound = others.make_current()?;
        // SAFETY: released above, and nobody else has it.
        assert!(unsafe { api::cuMemFree_v2(address) }.is_success());
    }
    others.close()
}

/// A buffer that is dropped in a host function keeps its stream and its pool until it is freed. None of them is a leak.
#[test]
fn what_a_deferred_buffer_keeps_is_no_leak() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (stream, pool) = (Stream::new(&context)?, DriverPool::new(&context)?);
    let others = Stream::new(&context)?;
    let buffer = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000)?;
    let (say, dropped) = channel();
    host(&others, &context, move || {
        drop(buffer);
        say.send(()).unwrap();
    });
    dropped.recv().unwrap();
    drop((stream, pool));
    let snapshot = context.snapshot();
    let kinds = |groups: &[Group]| -> Vec<_> { groups.iter().map(|group| group.kind).collect() };
    assert_eq!(
        kinds(&snapshot.live),
        [ResourceKind::Stream],
        "of this test"
    );
    let deferred = [
        ResourceKind::StreamOrdered,
        ResourceKind::Stream,
        ResourceKind::MemoryPool,
    ];
    assert_eq!(kinds(&snapshot.deferred), deferred);
    drop(others);
    context.synchronize()?;
    assert_eq!(context.live_count(), 0);
    Ok(())
}
