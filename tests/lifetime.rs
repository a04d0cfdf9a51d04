//! A context that is dropped before its resources: it stays open until the last of them is dropped,
//! and is torn down then. Nothing of that is a leak.

use crate::support;
use std::mem::{self, ManuallyDrop};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::*;
use cuguard::context::ContextBuilder;
use cuguard::driver::api;
use cuguard::driver::sys::CUcontext;
use cuguard::report::ReportSettings;
use cuguard::{
    Context, DeviceBox, DeviceBuffer, DriverPool, Error, Event, ManagedBuffer, PinnedBuffer, Pool,
    RegisteredVec, Result, Stream, TrackingLevel, sim,
};

const MIB: usize = 1 << 20;

/// Written as programs in the wild are: the context comes first, and so is dropped first.
struct App {
    context: Context,
    stream: Stream,
    weights: DeviceBuffer<f32>,
    scratch: DeviceBuffer<u8>,
    pooled: DeviceBuffer<u8>,
    pool: DriverPool,
    staging: PinnedBuffer<u8>,
    registered: RegisteredVec<u8>,
    managed: ManagedBuffer<u32>,
    counter: DeviceBox<u64>,
    done: Event,
    empty: DeviceBuffer<u8>,
}

impl App {
    fn new(builder: ContextBuilder) -> Result<Self> {
        let context = builder.build()?;
        let stream = Stream::new(&context)?;
        let pool = DriverPool::new(&context)?;
        Ok(Self {
            weights: DeviceBuffer::from_slice(&context, &[1.5; 1000])?,
            scratch: DeviceBuffer::zeroed(&stream, 4 * MIB)?,
            pooled: DeviceBuffer::zeroed(&pool.on(&stream), 4 * MIB)?,
            staging: PinnedBuffer::zeroed(&context, MIB)?,
            registered: RegisteredVec::new(&context, vec![7; MIB])?,
            managed: ManagedBuffer::from_slice(&context, &[1, 2, 3])?,
            counter: DeviceBox::new(&context, &42)?,
            done: Event::new(&context)?,
            empty: DeviceBuffer::from_slice(&context, &[])?,
            context,
            stream,
            pool,
        })
    }
}

/// A report file that is removed again.
struct Report(PathBuf);

impl Report {
    fn new(test: &str) -> Self {
        let name = format!("cuguard-lifetime-{}-{test}.json", std::process::id());
        Self(temporary(&name))
    }

    fn settings(&self) -> ReportSettings {
        ReportSettings::json()
            .file(self.0.to_str().unwrap())
            .unwrap()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap_or_default()
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// How many contexts the simulated driver has; of a real one nobody knows.
fn contexts() -> u64 {
    sim::counters().contexts
}

#[test]
fn a_struct_with_its_context_first_leaks_nothing() -> Result<()> {
    let turn = turn();
    // Somebody else keeps the primary context alive, which would hide nothing that was lost.
    let others = context()?;
    let levels = [
        TrackingLevel::Counts,
        TrackingLevel::Sites,
        TrackingLevel::Stacks,
    ];
    for builder in levels
        .into_iter()
        .map(|level| Context::builder().level(level))
        .chain([
            Context::builder().free_leaks(false),
            Context::builder().dedicated(),
            Context::builder()
                .dedicated()
                .free_leaks(false)
                .level(TrackingLevel::Counts),
        ])
    {
        let before = in_hand(&others)?;
        let report = Report::new("first");
        let app = App::new(builder.report(report.settings()))?;
        app.stream.synchronize()?;
        drop(app);
        others.synchronize()?;
        before.all_freed();
        let report = report.text();
        assert!(report.contains(r#""reason":"drop""#), "{report}");
        assert!(report.contains(r#""leaked":false"#), "{report}");
        assert!(report.contains(r#""late_drops":[]"#), "{report}");
    }
    others.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn what_was_sampled_and_what_was_not_is_freed() {
    const TEST: &str = "what_was_sampled_and_what_was_not_is_freed";
    if part().is_some() {
        let others = context().unwrap();
        let before = in_hand(&others).unwrap();
        let app = App::new(Context::builder()).unwrap();
        app.stream.synchronize().unwrap();
        drop(app);
        others.synchronize().unwrap();
        before.all_freed();
        return;
    }
    let output = child(TEST, "sample", &[("LEAK_REPORT", "1,sample=3,exitcode=23")]);
    let (_, err) = succeeded(&output);
    assert!(!err.contains("leaked 1"), "{err}");
}

#[test]
fn everything_works_after_the_context_was_dropped() -> Result<()> {
    let turn = turn();
    let before = contexts();
    let mut app = App::new(Context::builder())?;
    let stream = Stream::new(&app.context)?;
    drop(app.context);
    assert_eq!(app.weights.to_vec()?, [1.5; 1000]);
    app.weights.copy_from_slice(&[2.5; 1000])?;
    app.stream.scope(|s| {
        let mut staging = s.bind_host_mut(&mut app.staging[..1000]);
        let mut scratch = s.bind_mut(&mut app.scratch)?;
        s.zero(&mut scratch)?;
        let (front, _) = scratch.split_at(1000)?;
        s.download(&mut staging, &front)
    })?;
    app.done.record(&app.stream)?;
    app.done.synchronize()?;
    assert_eq!(app.counter.get()?, 42);
    assert_eq!(app.empty.to_vec()?, [0_u8; 0]);
    // Allocates too, as its stream keeps the context open.
    let more = DeviceBuffer::<u8>::zeroed(&stream, 1000)?;
    assert_eq!(more.to_vec()?, [0; 1000]);
    assert_eq!(app.registered.into_vec()?, vec![7; MIB]);
    assert!(app.pool.used_bytes()? > 0);
    app.pooled.close()?;
    drop((app.weights, app.scratch, app.pool, app.staging));
    drop((app.managed, app.counter, app.done, app.empty, app.stream));
    drop(stream);
    if simulated("the count of contexts") {
        assert_eq!(contexts(), before + 1, "the last buffer keeps it open");
    }
    // The buffer keeps its stream, and that the context.
    drop(more);
    assert_eq!(contexts(), before);
    turn.all_came_back();
    Ok(())
}

#[test]
fn the_last_resource_may_be_dropped_on_any_thread() -> Result<()> {
    let turn = turn();
    for builder in [Context::builder(), Context::builder().dedicated()] {
        let context = builder.build()?;
        let buffer = DeviceBuffer::<u8>::zeroed(&context, 4 * MIB)?;
        let event = Event::new(&context)?;
        drop(context);
        drop(event);
        let other = Context::builder().dedicated().build()?;
        thread::scope(|scope| {
            scope.spawn(|| {
                // Another context is current there, and is so afterwards.
                let bound = other.make_current().unwrap();
                drop(buffer);
                let mut current = CUcontext::NULL;
                // SAFETY: the variable can be written to.
                assert!(unsafe { api::cuCtxGetCurrent(&mut current) }.is_success());
                assert_eq!(current, other.as_raw());
                drop(bound);
            });
        });
        other.close()?;
        turn.all_came_back();
    }
    Ok(())
}

#[test]
fn the_last_resource_may_be_closed_or_dropped_by_a_panic() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    drop(context);
    stream.close()?;
    turn.all_came_back();

    let context = support::context()?;
    let pool = DriverPool::new(&context)?;
    drop(context);
    pool.close()?;
    turn.all_came_back();

    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let app = App::new(Context::builder()).unwrap();
        assert_eq!(app.weights.len(), 0, "on purpose");
    }));
    assert!(unwound.is_err());
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_context_dropped_inside_its_own_scope_goes_on() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 1000)?;
    let mut target = [0_u8; 1000];
    stream.scope(|s| {
        let mut data = s.bind_mut(&mut buffer)?;
        drop(context);
        s.fill(&mut data, 9)?;
        s.download(&mut s.bind_host_mut(&mut target), &data)
    })?;
    assert_eq!(target, [9; 1000]);
    drop((stream, buffer));
    turn.all_came_back();
    Ok(())
}

/// A cache that empties itself where memory runs short owns buffers of the context that owns the
/// callback: a circle, which the drop of the context breaks.
#[test]
fn callbacks_that_own_guards_do_not_keep_their_context_open() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let cache = Mutex::new(Some(DeviceBuffer::<u8>::zeroed(&context, 4 * MIB)?));
    let callback = context.release_on_oom(move |_| drop(cache.lock().unwrap().take()));
    let stream = Stream::new(&context)?;
    drop(context);
    drop(stream);
    turn.all_came_back();
    drop(callback);
    Ok(())
}

/// Memory that was released to the program does not keep the context open, nor does its pool.
#[test]
fn released_memory_does_not_keep_a_context_open() -> Result<()> {
    let _turn = turn();
    let others = context()?;
    let before = contexts();
    let context = Context::builder().dedicated().build()?;
    let stream = Stream::new(&context)?;
    let pool = DriverPool::new(&context)?;
    let address = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), MIB)?.into_raw();
    drop((context, pool, stream));
    assert_eq!(contexts(), before);
    let bound = others.make_current()?;
    // SAFETY: released above; stream-ordered memory belongs to the device, and lives on.
    assert!(unsafe { api::cuMemFree_v2(address) }.is_success());
    drop(bound);
    others.close()
}

#[test]
fn close_is_strict() -> Result<()> {
    let turn = turn();
    let report = Report::new("strict");
    let App {
        context,
        weights,
        stream,
        ..
    } = App::new(Context::builder().report(report.settings()))?;
    let line = line!() + 1;
    context.close()?;
    turn.all_came_back();
    assert!(matches!(weights.to_vec(), Err(Error::ContextClosed { .. })));
    drop((weights, stream));
    let text = report.text();
    assert!(text.contains(r#""reason":"close""#), "{text}");
    assert!(text.contains(r#""leaked":true"#), "{text}");
    let closed_at = format!(r#""closed_at":{{"file":"tests/lifetime.rs","line":{line},"#);
    assert!(text.contains(&closed_at), "{text}");
    Ok(())
}

#[test]
fn many_threads_drop_the_last_resources_at_once() -> Result<()> {
    let turn = turn();
    let before = contexts();
    for _ in 0..40 {
        let context = context()?;
        let buffers: Vec<_> = (0..4)
            .map(|_| DeviceBuffer::<u8>::zeroed(&context, 1000))
            .collect::<Result<_>>()?;
        let barrier = Arc::new(std::sync::Barrier::new(5));
        thread::scope(|scope| {
            for buffer in buffers {
                let barrier = barrier.clone();
                scope.spawn(move || {
                    barrier.wait();
                    drop(buffer);
                });
            }
            barrier.wait();
            drop(context);
        });
        assert_eq!(contexts(), before);
    }
    turn.all_came_back();
    Ok(())
}

#[inline(never)]
fn drop_the_context(context: Context) {
    drop(context);
    // Not a tail call, which would leave no frame of this function.
    std::hint::black_box(());
}

/// What is never dropped keeps its context until the process exits, and is a leak then.
#[test]
fn a_forgotten_resource_is_reported_at_exit_with_both_call_sites() {
    const TEST: &str = "a_forgotten_resource_is_reported_at_exit_with_both_call_sites";
    if part().is_some() {
        let context = context().unwrap();
        mem::forget(DeviceBuffer::<u8>::zeroed(&context, 3 * MIB).unwrap());
        let dropped = DeviceBuffer::<u8>::zeroed(&context, MIB).unwrap();
        drop_the_context(context);
        drop(dropped);
        return;
    }
    let output = child(TEST, "text", &[("LEAK_REPORT", "1,exitcode=23")]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(23), "{text}");
    for words in [
        "3 MiB in 1 allocation of device memory",
        "kept open until exit by what leaked",
        "\n  the context was dropped by\n",
        "drop_the_context",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    assert!(!text.contains("1 MiB"), "{text}");

    // Without a report: one line.
    let (_, err) = succeeded(&child(TEST, "line", &[]));
    let lines: Vec<_> = err.lines().filter(|line| line.contains("leaked")).collect();
    let [line] = lines[..] else { panic!("{err}") };
    assert!(
        line.starts_with("cuguard: leaked 3 MiB in 1 allocation"),
        "{line}"
    );
    assert!(line.contains("(context 1, kept open until exit)"), "{line}");

    let output = child(TEST, "json", &[("LEAK_REPORT", "json")]);
    let (_, err) = succeeded(&output);
    let line = err.lines().find(|line| line.starts_with('{')).unwrap();
    json::check(line).unwrap();
    assert!(line.contains(r#""reason":"kept_open""#), "{line}");
    assert!(line.contains(r#""leaked":true"#), "{line}");
    assert!(line.contains("drop_the_context"), "{line}");
}

#[test]
fn a_guard_that_is_dropped_after_all_is_no_leak() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let mut late = ManuallyDrop::new(DeviceBuffer::<u8>::zeroed(&context, MIB)?);
    drop(context);
    assert_eq!(late.to_vec()?, vec![0; MIB]);
    // SAFETY: dropped once, and not used afterwards.
    unsafe { ManuallyDrop::drop(&mut late) };
    turn.all_came_back();
    Ok(())
}

/// A buffer without memory has no record, and keeps neither its stream nor its pool: they would seem to leak.
#[test]
fn an_empty_buffer_keeps_its_context_alone() -> Result<()> {
    let turn = turn();
    let context = Context::builder().dedicated().build()?;
    let stream = Stream::new(&context)?;
    let (pool, driver_pool) = (Pool::new(&context)?, DriverPool::new(&context)?);
    let source = driver_pool.on(&stream);
    let first = DeviceBuffer::<u8>::zeroed(&stream, 0)?;
    let empty = [
        first.try_clone()?,
        first,
        DeviceBuffer::from_slice(&stream, &[])?,
        DeviceBuffer::zeroed(&source, 0)?,
        DeviceBuffer::from_slice(&source, &[])?,
        DeviceBuffer::zeroed(&pool, 0)?,
        DeviceBuffer::zeroed(&pool.on(&stream), 0)?,
        // SAFETY: no memory.
        unsafe { DeviceBuffer::from_raw_on(&stream, 0, 0) },
    ];
    let sizeless = DeviceBuffer::<[u8; 0]>::from_slice(&stream, &[[]; 5])?;
    drop((stream, pool, driver_pool));
    let snapshot = context.snapshot();
    assert!(snapshot.is_clean(), "{:?}", snapshot.live);
    for buffer in &empty {
        assert!(buffer.to_vec()?.is_empty() && buffer.try_clone()?.is_empty());
    }
    assert_eq!(sizeless.try_clone()?.to_vec()?.len(), 5);
    drop(context);
    // They still keep the context open.
    assert_eq!(sizeless.to_vec()?.len(), 5);
    drop((empty, sizeless));
    turn.all_came_back();
    Ok(())
}
