//! Captures: what fails, what goes on besides, and what cannot be captured.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cuguard::driver::result::graph;
use cuguard::driver::sys::CUresult;
use cuguard::graph::GraphExec;
use cuguard::oom::{Cause, OomPolicy};
use cuguard::{
    Context, DeviceBuffer, DriverPool, Error, Event, PinnedBuffer, ResourceKind, Result, Stream,
};

use super::{LEN, counts};
use crate::support;
use crate::support::*;

/// Nothing leaks, and the stream is usable, however the capture ends.
#[test]
fn a_capture_that_fails_leaves_nothing() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    for ending in ["fails", "panics", "synchronizes"] {
        let drops = AtomicUsize::new(0);
        struct Counted<'a>(&'a AtomicUsize);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let counted = Counted(&drops);
        let result = catch_unwind(AssertUnwindSafe(|| {
            stream
                .capture(|c| {
                    let mut scratch = c.zeroed::<u8>(LEN)?;
                    c.fill(&mut c.bind_mut(&mut buffer)?, 7)?;
                    c.fill(&mut scratch, 8)?;
                    c.call_each(move || {
                        let _ = &counted;
                    })?;
                    match ending {
                        "fails" => Err(Error::ContextClosed {
                            operation: "on purpose",
                        }),
                        "panics" => resume_unwind(Box::new("on purpose")),
                        _ => {
                            let error = context.synchronize().unwrap_err();
                            assert_eq!(error.code(), Some(CUresult::STREAM_CAPTURE_UNSUPPORTED));
                            assert!(error.to_string().contains("is being captured"), "{error}");
                            Ok(())
                        }
                    }
                })
                .map(drop)
        }));
        assert_eq!(drops.into_inner(), 1, "{ending}");
        assert_eq!(counts(&context), (0, 0), "{ending}");
        assert_eq!(
            context.live_count(),
            2,
            "{ending}: the stream and the buffer"
        );
        match result {
            Err(_) => assert_eq!(ending, "panics"),
            Ok(Err(Error::ContextClosed { .. })) => assert_eq!(ending, "fails"),
            Ok(result) => {
                let error = result.unwrap_err();
                assert_eq!(error.code(), Some(CUresult::STREAM_CAPTURE_INVALIDATED));
                assert!(error.to_string().contains("has ended it"), "{error}");
            }
        }
        stream.scope(|s| s.fill(&mut s.bind_mut(&mut buffer)?, 1))?;
        context.synchronize()?;
        assert_eq!(buffer.to_vec()?, [1; LEN]);
    }
    drop((buffer, stream));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// The error says why, as that of any other allocation.
#[test]
fn scratch_memory_that_does_not_fit_is_diagnosed() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let captured = stream.capture(|c| c.zeroed::<u8>(1 << 50).map(drop));
    let why = match captured.map(drop) {
        Err(Error::OutOfMemory(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why.request.operation, "Scope::zeroed");
    assert_eq!(why.request.function, Some("cuMemAllocAsync"));
    assert_eq!(why.request.bytes, Some(1 << 50));
    assert_eq!(why.request.kind, Some(ResourceKind::StreamOrdered));
    let site = why.request.site.expect("the call site");
    assert!(site.file.ends_with("capture.rs"), "{site}");
    assert_eq!(why.causes()[0].name(), "larger_than_device", "{why:#}");
    assert_eq!(counts(&context), (0, 0));
    stream.synchronize()?;
    drop(stream);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// A graph with scratch memory of such sizes.
fn with_scratch<'a>(stream: &'a Stream, sizes: &[usize]) -> Result<GraphExec<'a>> {
    let (graph, ()) = stream.capture(|c| {
        for bytes in sizes {
            // SAFETY: nothing reads it.
            unsafe { c.uninitialized::<u8>(*bytes) }.map(drop)?;
        }
        Ok(())
    })?;
    graph.instantiate()
}

/// What refused launches have reserved for good, and how often a graph was launched.
fn lost_and_launched() -> Result<(u64, u64)> {
    let lost = graph::reserved_memory(0).unwrap() - graph::used_memory(0).unwrap();
    Ok((lost, cuguard_sim::counters().calls_of("cuGraphLaunch")))
}

/// Scratch memory that fits one by one, and not at a time: the launch fails before the driver is called, with the size of all
/// of it. Where memory is the program's, the diagnosis names it, and the graph can be launched once it is freed.
#[test]
fn scratch_memory_that_does_not_fit_at_a_launch_is_diagnosed() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let total = context.memory()?.total as usize;
    let before = lost_and_launched()?;
    let mut exec = with_scratch(&stream, &[total / 4 * 3; 2])?;
    let line = line!() + 1;
    let why = room::why(exec.launch(&stream));
    assert_eq!(why.causes()[0].name(), "larger_than_device", "{why:#}");
    assert_eq!(why.request.operation, "GraphExec::launch");
    assert_eq!(why.request.function, None, "the driver was not called");
    let line_of_error = why.to_string();
    let not_launched = "on device 0: not launched, because its memory does not fit: larger than";
    assert!(line_of_error.contains(not_launched), "{line_of_error}");
    assert_eq!(why.request.bytes, Some(total as u64 / 4 * 6));
    assert_eq!(why.request.kind, Some(ResourceKind::GraphMemory));
    let site = why.request.site.as_ref().expect("the call site");
    assert!(
        site.file.ends_with("capture.rs") && site.line == line,
        "{site}"
    );
    let why = room::why(stream.scope(|s| s.launch_graph(&mut s.bind_graph(&mut exec)?)));
    assert_eq!(why.request.operation, "Scope::launch_graph");
    exec.close()?;

    let data = room::leave(&context, 256 * room::MIB)?;
    let mut exec = with_scratch(&stream, &[512 * room::MIB; 2])?;
    let why = room::why(exec.launch(&stream));
    assert_eq!(why.causes()[0].name(), "own_data", "{why:#}");
    assert_eq!(lost_and_launched()?, before);
    drop(data);
    exec.launch(&stream)?;
    drop(exec);
    drop(stream);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// What the driver keeps for later launches counts as room, for the same graph and for others, also together with what is
/// free. A recovery step makes room as for any allocation.
#[test]
fn scratch_memory_fits_into_what_graphs_keep() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let (lost, _) = lost_and_launched()?;
    let mut first = with_scratch(&stream, &[512 * room::MIB])?;
    first.launch(&stream)?;
    let data = room::leave(&context, 112 * room::MIB)?;
    first.launch(&stream)?;
    with_scratch(&stream, &[256 * room::MIB; 2])?.launch(&stream)?;
    // 96 of the 112 MiB that are free, in chunks of 32.
    with_scratch(&stream, &[608 * room::MIB])?.launch(&stream)?;
    let mut exec = with_scratch(&stream, &[640 * room::MIB])?;
    let why = room::why(exec.launch(&stream));
    assert_eq!(why.causes()[0].name(), "own_data", "{why:#}");
    let data = Arc::new(Mutex::new(Some(data)));
    let cache = data.clone();
    let callback = context.release_on_oom(move |_| drop(cache.lock().unwrap().take()));
    exec.launch(&stream)?;
    assert!(data.lock().unwrap().is_none(), "the callback has freed it");
    assert_eq!(lost_and_launched()?.0, lost);
    drop((first, exec, callback));
    drop(stream);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// Two graphs of one scope run one after the other, in the same memory. One on another stream has it when they are done.
#[test]
fn graphs_that_do_not_run_at_a_time_share_their_scratch_memory() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let (lost, _) = lost_and_launched()?;
    let mut execs = [
        with_scratch(&stream, &[256 * room::MIB])?,
        with_scratch(&stream, &[256 * room::MIB])?,
    ];
    let mut elsewhere = with_scratch(&other, &[256 * room::MIB])?;
    let data = room::leave(&context, 304 * room::MIB)?;
    stream.scope(|s| {
        let [first, second] = &mut execs;
        let (mut first, mut second) = (s.bind_graph(first)?, s.bind_graph(second)?);
        for _ in 0..2 {
            s.launch_graph(&mut first)?;
            s.launch_graph(&mut second)?;
        }
        Ok(())
    })?;
    elsewhere.launch(&other)?;
    assert_eq!(lost_and_launched()?.0, lost);
    drop((execs, elsewhere, data));
    drop((stream, other));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// The check before a launch gets unused memory of pools, which the driver does not take for a launch, whatever recovery may do.
#[test]
fn scratch_memory_fits_into_what_pools_do_not_use() -> Result<()> {
    let turn = turn();
    let policy = OomPolicy::new().callbacks(false).wait(false).trim(false);
    let context = Context::builder().oom_policy(policy).build()?;
    let stream = Stream::new(&context)?;
    let (lost, _) = lost_and_launched()?;
    let mut exec = with_scratch(&stream, &[256 * room::MIB])?;
    let data = room::leave(&context, 304 * room::MIB)?;
    let pool = DriverPool::new(&context)?;
    pool.set_release_threshold(u64::MAX)?;
    drop(DeviceBuffer::<u8>::zeroed(
        &pool.on(&stream),
        256 * room::MIB,
    )?);
    stream.synchronize()?;
    exec.launch(&stream)?;
    assert_eq!(lost_and_launched()?.0, lost);
    drop((exec, data));
    drop((pool, stream));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// Other code launches a graph that does not fit. What is lost then is named, and is no room for a launch.
#[test]
fn what_a_refused_launch_of_other_code_has_reserved_is_named() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let (before, _) = lost_and_launched()?;
    let mut exec = with_scratch(&stream, &[256 * room::MIB])?;
    let data = room::leave(&context, 80 * room::MIB)?;
    // SAFETY: both are alive, and nothing uses them.
    let refused = unsafe { graph::launch(exec.as_raw(), stream.as_raw()) };
    assert_eq!(refused.unwrap_err().code, CUresult::OUT_OF_MEMORY);
    let (lost, _) = lost_and_launched()?;
    assert_eq!(lost - before, 64 << 20);
    let why = room::why(room::take(&context, 32 * room::MIB));
    let cause = why
        .causes()
        .into_iter()
        .find(|cause| cause.name() == "reserved_for_graphs");
    let expected = Some(Cause::ReservedForGraphs { bytes: lost, lost });
    assert_eq!(cause, expected, "{why:#}");
    let text = why.to_text();
    assert!(text.contains(" lost until the process ends"), "{text}");
    let words = "are reserved for graphs and unused: launches that failed";
    assert!(text.contains(words), "{text}");
    let why = room::why(exec.launch(&stream));
    assert_eq!(why.request.function, None, "{why:#}");
    drop(data);
    exec.launch(&stream)?;
    assert_eq!(lost_and_launched()?.0, lost);
    drop(exec);
    drop(stream);
    context.close()?;
    Ok(())
}

/// What the closure does besides is executed at once, and disturbs nothing.
#[test]
fn other_work_goes_on_during_a_capture() -> Result<()> {
    let turn = turn();
    let context = context()?;
    for blocking in [false, true] {
        let builder = Stream::builder(&context);
        let stream = if blocking {
            builder.blocking()
        } else {
            builder
        }
        .build()?;
        let mut buffer = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
        let gone = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
        let ordered = DeviceBuffer::<u8>::zeroed(&stream, LEN)?;
        let pinned = PinnedBuffer::<u8>::zeroed(&context, LEN)?;
        let event = Event::new(&context)?;
        let (graph, (seen, nested)) = stream.capture(|c| {
            let mut data = c.bind_mut(&mut buffer)?;
            c.fill(&mut data, 1)?;
            // Guards are dropped, created, used on the same stream, and captured.
            drop((gone, ordered, pinned));
            let mut own = DeviceBuffer::<u8>::zeroed(c.stream(), LEN)?;
            stream.scope(|s| {
                let mut scratch = s.zeroed::<u8>(LEN)?;
                s.fill(&mut scratch, 9)?;
                s.copy(&mut s.bind_mut(&mut own)?, &scratch)?;
                s.record(&event)
            })?;
            event.synchronize()?;
            let seen = own.to_vec()?;
            let (nested, ()) = stream.capture(|c| c.call_each(|| ()))?;
            c.fill(&mut data, 2)?;
            Ok((seen, nested.node_count()?))
        })?;
        assert_eq!((graph.node_count()?, nested), (2, 1));
        assert_eq!(seen, [9; LEN]);
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(buffer.to_vec()?, [2; LEN]);
    }
    assert_eq!(context.live_count(), 0);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// Two owners of one primary context: the close of one waits for its own streams, and does not disturb the other's capture.
#[test]
fn another_owner_of_the_context_is_closed_during_a_capture() -> Result<()> {
    let turn = turn();
    let (context, twin) = (context()?, support::context()?);
    let stream = Stream::new(&context)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let (graph, ()) = stream.capture(|c| {
        let mut data = c.bind_mut(&mut buffer)?;
        c.fill(&mut data, 1)?;
        let other = Stream::new(&twin)?;
        let mut target = PinnedBuffer::<u8>::zeroed(&twin, LEN)?;
        let source = DeviceBuffer::from_slice(&other, &[5_u8; LEN])?;
        other.scope(|s| s.download(&mut s.bind_host_mut(&mut target), &s.bind(&source)?))?;
        assert_eq!(*target, [5; LEN]);
        drop((target, source, other));
        twin.close()?;
        c.fill(&mut data, 2)
    })?;
    graph.instantiate()?.launch(&stream)?;
    assert_eq!(buffer.to_vec()?, [2; LEN]);
    drop((buffer, stream));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn what_cannot_be_captured_is_an_error_that_says_so() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let event = Event::new(&context)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 1))?;
    let mut exec = graph.instantiate()?;
    let (graph, errors) = stream.capture(|c| {
        Ok([
            c.record(&event).unwrap_err().to_string(),
            c.wait(&event).unwrap_err().to_string(),
            c.call(|| ()).unwrap_err().to_string(),
            c.bind_graph(&mut exec).unwrap_err().to_string(),
            c.export(&c.zeroed::<u8>(3)?).unwrap_err().to_string(),
        ])
    })?;
    // The capture is valid: none of them reached the driver.
    graph.instantiate()?.launch(&stream)?;
    let words = [
        "Scope::record: an event cannot be recorded in a capture; record it after the launch of the graph",
        "Scope::wait: an event cannot be waited for in a capture; wait before the launch of the graph",
        "Scope::call: a closure that is called once cannot be captured; see Scope::call_each",
        "Scope::bind_graph: a graph cannot be launched in a capture",
        "Scope::export: scratch memory exists only while the graph runs",
    ];
    assert_eq!(errors, words);
    let mut other = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let result = stream.scope(|s| s.export(&s.bind_mut(&mut other)?).map(drop));
    assert!(matches!(result, Err(Error::Capture { .. })), "{result:?}");
    Ok(())
}
