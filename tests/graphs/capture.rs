//! Captures: what fails, what goes on besides, and what cannot be captured.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use cuguard::driver::sys::CUresult;
use cuguard::{DeviceBuffer, Error, Event, Kind, PinnedBuffer, Result, Stream};

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
    assert_eq!(why.request.kind, Some(Kind::StreamOrdered));
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

/// Scratch memory that fits one by one, and not at a time: the launch fails, with the size of all of it. Where memory is
/// the program's, the diagnosis names it, and the graph can be launched once it is freed.
#[test]
fn scratch_memory_that_does_not_fit_at_a_launch_is_diagnosed() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let total = context.memory()?.total as usize;
    let capture = |bytes: usize| {
        stream.capture(|c| {
            for _ in 0..2 {
                // SAFETY: nothing reads it.
                unsafe { c.uninitialized::<u8>(bytes) }.map(drop)?;
            }
            Ok(())
        })
    };
    let (graph, ()) = capture(total / 4 * 3)?;
    let mut exec = graph.instantiate()?;
    let line = line!() + 1;
    let why = room::why(exec.launch(&stream));
    assert_eq!(why.causes()[0].name(), "larger_than_device", "{why:#}");
    assert_eq!(why.request.operation, "GraphExec::launch");
    assert_eq!(why.request.function, Some("cuGraphLaunch"));
    assert_eq!(why.request.bytes, Some(total as u64 / 4 * 6));
    assert_eq!(why.request.kind, Some(Kind::StreamOrdered));
    let site = why.request.site.as_ref().expect("the call site");
    assert!(
        site.file.ends_with("capture.rs") && site.line == line,
        "{site}"
    );
    let why = room::why(stream.scope(|s| s.launch_graph(&mut s.bind_graph(&mut exec)?)));
    assert_eq!(why.request.operation, "Scope::launch_graph");
    exec.close()?;

    let data = room::leave(&context, 256 * room::MIB)?;
    let (graph, ()) = capture(512 * room::MIB)?;
    let mut exec = graph.instantiate()?;
    let why = room::why(exec.launch(&stream));
    assert_eq!(why.causes()[0].name(), "own_data", "{why:#}");
    drop(data);
    exec.launch(&stream)?;
    drop(exec);
    drop(stream);
    context.close()?;
    turn.all_came_back();
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
        let ordered = DeviceBuffer::<u8>::zeroed_on(&stream, LEN)?;
        let pinned = PinnedBuffer::<u8>::zeroed(&context, LEN)?;
        let event = Event::new(&context)?;
        let (graph, (seen, nested)) = stream.capture(|c| {
            let mut data = c.bind_mut(&mut buffer)?;
            c.fill(&mut data, 1)?;
            // Guards are dropped, created, used on the same stream, and captured.
            drop((gone, ordered, pinned));
            let mut own = DeviceBuffer::<u8>::zeroed_on(c.stream(), LEN)?;
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
        let source = DeviceBuffer::from_slice_on(&other, &[5_u8; LEN])?;
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
