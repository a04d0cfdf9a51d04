//! Graphs: captured work that borrows what it uses, executables, launches, updates.

#[path = "support/gate.rs"]
mod gate;
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use cuguard::driver::sys::CUresult;
use cuguard::sim::{self, Fault};
use cuguard::{
    Context, DeviceBuffer, Error, Event, Kind, ManagedBuffer, PinnedBuffer, Result, Stream,
};
use gate::Gate;
use support::*;

const LEN: usize = 10_000;

fn counts(context: &Context) -> (u64, u64) {
    let count = |kind| context.totals(kind).count;
    (count(Kind::Graph), count(Kind::GraphExec))
}

#[test]
fn a_captured_graph_is_replayed() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let stream = Stream::new(&context)?;
    let input: Vec<u32> = (0..LEN as u32).collect();
    let mut middle = DeviceBuffer::<u32>::zeroed(&context, LEN)?;
    let mut output = PinnedBuffer::<u32>::zeroed(&context, LEN)?;
    let calls = AtomicU32::new(0);
    let (graph, ()) = stream.capture(|c| {
        let (mut middle, mut output) = (c.bind_mut(&mut middle)?, c.bind_host_mut(&mut output));
        c.upload(&mut middle, &c.bind_host(&input))?;
        let (mut front, _) = middle.split_at(2)?;
        c.fill(&mut front, 77)?;
        c.call_each(|| {
            calls.fetch_add(1, Ordering::Relaxed);
        })?;
        c.download(&mut output, &c.zeroed(LEN)?)?;
        Ok(())
    })?;
    assert_eq!(counts(&context), (1, 0));
    // Upload, fill, call, allocation, its fill, download, free.
    assert_eq!(graph.node_count()?, 7);
    assert_eq!(calls.load(Ordering::Relaxed), 0, "nothing was executed");
    let snapshot = context.snapshot();
    let group = snapshot.live.iter().find(|group| group.kind == Kind::Graph);
    let site = group.and_then(|group| group.origin.site.as_ref());
    assert!(site.is_some_and(|site| site.file.ends_with("graphs.rs")));
    let mut exec = graph
        .named("the graph")
        .instantiate()?
        .named("the executable");
    assert_eq!(counts(&context), (1, 1));
    for _ in 0..10 {
        exec.launch(&stream)?;
    }
    stream.scope(|s| {
        let mut graph = s.bind_graph(&mut exec)?;
        for _ in 0..990 {
            s.launch_graph(&mut graph)?;
        }
        Ok(())
    })?;
    exec.close()?;
    assert_eq!(calls.into_inner(), 1000);
    assert_eq!(*output, [0; LEN]);
    let seen = middle.to_vec()?;
    assert_eq!((&seen[..2], &seen[2..]), (&[77, 77][..], &input[2..]));
    drop((middle, output, stream));
    assert_eq!(context.live_count(), 0);
    context.trim_graph_memory()?;
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn memory_is_accessed_between_launches() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let (home, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut input = DeviceBuffer::<u32>::zeroed_on(&home, LEN)?;
    let mut output = DeviceBuffer::<u32>::zeroed(&context, LEN)?;
    let mut managed = ManagedBuffer::<u32>::zeroed(&context, LEN)?;
    let table = DeviceBuffer::from_slice(&context, &[5_u32; LEN])?;
    let (graph, (input, output, half, managed, table)) = stream.capture(|c| {
        let (input, mut output) = (c.bind_mut(&mut input)?, c.bind_mut(&mut output)?);
        let (mut managed, table) = (c.bind_mut(&mut managed)?, c.bind(&table)?);
        c.copy(&mut output, &input)?;
        c.copy(&mut managed, &table)?;
        let tokens = (c.export_mut(&input)?, c.export(&output)?);
        let (_, back) = output.split_at(LEN / 2)?;
        let half = c.export_mut(&back)?;
        Ok((
            tokens.0,
            tokens.1,
            half,
            c.export(&managed)?,
            c.export(&table)?,
        ))
    })?;
    let mut exec = graph.instantiate()?;
    for value in 1..20 {
        // In flight on the home stream when the graph is launched on another.
        exec.view_mut(&input)?.fill(value)?;
        exec.launch(if value % 2 == 0 { &stream } else { &other })?;
        assert_eq!(exec.view(&output)?.to_vec()?, [value; LEN]);
    }
    exec.view_mut(&half)?.zero()?;
    let seen = exec.view(&output)?.to_vec()?;
    assert_eq!((seen[0], seen[LEN / 2], half.len()), (19, 0, LEN / 2));
    assert_eq!(exec.view(&managed)?.to_vec()?, exec.view(&table)?.to_vec()?);
    // A view is bound in a scope like any other.
    let mut copy = vec![0; LEN];
    stream.scope(|s| {
        let output = s.bind(exec.view(&output)?)?;
        s.download(&mut s.bind_host_mut(&mut copy), &output)
    })?;
    assert_eq!(copy, seen);
    // A token of another graph.
    let mut more = DeviceBuffer::<u32>::zeroed(&context, LEN)?;
    let (other, token) = stream.capture(|c| c.export(&c.bind_mut(&mut more)?))?;
    let result = exec.view(&token).map(drop);
    assert!(
        matches!(result, Err(Error::WrongGraph { .. })),
        "{result:?}"
    );
    drop((exec, other));
    drop((more, stream, home));
    context.close()?;
    drop(turn);
    Ok(())
}

#[test]
fn an_executable_is_updated() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut one = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let mut two = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let mut third = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let (calls, drops) = ([AtomicU32::new(0), AtomicU32::new(0)], AtomicUsize::new(0));
    struct Counted<'a>(&'a AtomicUsize);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let capture = |buffer, value, calls| {
        let counted = Counted(&drops);
        stream.capture(move |c| {
            let mut data = c.bind_mut::<&mut DeviceBuffer<u8>>(buffer)?;
            c.fill(&mut data, value)?;
            c.call_each(move || {
                let (counted, calls): (&Counted<'_>, &AtomicU32) = (&counted, calls);
                let _ = counted;
                calls.fetch_add(1, Ordering::Relaxed);
            })?;
            c.export(&data)
        })
    };
    let (first, token) = capture(&mut one, 1, &calls[0])?;
    let mut exec = first.instantiate()?;
    let (second, later) = capture(&mut two, 2, &calls[1])?;
    exec.launch(&stream)?;
    exec.update(second)?;
    assert_eq!(
        drops.load(Ordering::Relaxed),
        1,
        "the closure of the first graph"
    );
    assert_eq!(counts(&context), (1, 1));
    exec.launch(&stream)?;
    exec.launch(&stream)?;
    assert_eq!(exec.view(&token)?.to_vec()?, [1; LEN]);
    assert_eq!(exec.view(&later)?.to_vec()?, [2; LEN]);
    // Graphs that differ in more than parameters.
    let (fewer, ()) = stream.capture(|c| c.call_each(|| ()))?;
    let error = exec.update(fewer).unwrap_err();
    assert_eq!(
        error.to_string(),
        "GraphExec::update: the new graph has other nodes or dependencies \
         (CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED); the executable is unchanged"
    );
    let (types, ()) = stream.capture(|c| {
        let (mut front, back) = c.bind_mut(&mut third)?.split_at(LEN / 2)?;
        c.copy(&mut front, &back)?;
        c.call_each(|| ())
    })?;
    let error = exec.update(types).unwrap_err();
    let words = "a node of the new graph is of another type";
    assert!(error.to_string().contains(words), "{error}");
    exec.launch(&stream)?;
    drop(exec);
    assert_eq!(drops.load(Ordering::Relaxed), 2);
    assert_eq!(calls.map(AtomicU32::into_inner), [1, 3]);
    assert_eq!(third.to_vec()?, [0; LEN]);
    drop((one, two, third));
    assert_eq!(context.live_count(), 1);
    drop(stream);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_recapture_uses_the_memory_of_its_executable() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&context, LEN)?;
    let mut input = DeviceBuffer::<u32>::from_slice(&context, &[9; LEN])?;
    let mut spare = DeviceBuffer::<u32>::zeroed(&context, LEN)?;
    let (graph, (data, input)) = stream.capture(|c| {
        let (mut data, input) = (c.bind_mut(&mut buffer)?, c.bind_mut(&mut input)?);
        c.fill(&mut data, 1)?;
        c.copy(&mut data, &input)?;
        Ok((c.export_mut(&data)?, c.export_mut(&input)?))
    })?;
    let (foreign, other) = stream.capture(|c| c.export_mut(&c.bind_mut(&mut spare)?))?;
    let mut exec = graph.instantiate()?;
    for value in 0..3 {
        exec.recapture(&stream, |c| {
            let (mut data, mut input) = (c.reuse_mut(&data)?, c.reuse_mut(&input)?);
            c.fill(&mut input, value)?;
            c.copy(&mut data, &input)
        })?;
        exec.launch(&stream)?;
        assert_eq!(exec.view(&data)?.to_vec()?, [value; LEN]);
    }
    let reason = |result: Result<()>| match result {
        Err(Error::Capture { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    // Exclusively once, or shared any number of times.
    let result = exec.recapture(&stream, |c| {
        let _first = c.reuse_mut(&data)?;
        c.reuse(&data.as_ref()).map(drop)
    });
    assert!(reason(result).contains("already"));
    let result = exec.recapture(&stream, |c| {
        let _first = c.reuse(&data.as_ref())?;
        let _second = c.reuse(&data.as_ref())?;
        c.reuse_mut(&data).map(drop)
    });
    assert!(reason(result).contains("already"));
    let result = exec.recapture(&stream, |c| c.reuse_mut(&other).map(drop));
    assert!(
        matches!(result, Err(Error::WrongGraph { .. })),
        "{result:?}"
    );
    let result = exec.recapture(&stream, |c| c.fill(&mut c.reuse_mut(&data)?, 7));
    assert!(
        matches!(result, Err(Error::GraphUpdate { .. })),
        "{result:?}"
    );
    let result = stream.capture(|c| c.reuse_mut(&data).map(drop));
    assert!(
        matches!(result, Err(Error::WrongGraph { .. })),
        "{result:?}"
    );
    let result = stream.scope(|s| s.reuse_mut(&data).map(drop));
    assert!(reason(result).contains("only possible in Stream::capture"));
    exec.launch(&stream)?;
    assert_eq!(exec.view(&data)?.to_vec()?, [2; LEN]);
    drop((exec, foreign));
    Ok(())
}

/// The addresses of scratch memory belong to one graph. This does not depend on a driver that refuses the update.
#[test]
fn a_graph_with_scratch_memory_is_not_updated() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let (graph, data) = stream.capture(|c| {
        let (mut data, mut scratch) = (c.bind_mut(&mut buffer)?, c.zeroed(LEN)?);
        c.fill(&mut scratch, 1)?;
        c.copy(&mut data, &scratch)?;
        c.export_mut(&data)
    })?;
    let mut exec = graph.instantiate()?;
    let result = exec.recapture(&stream, |c| {
        let (mut data, mut scratch) = (c.reuse_mut(&data)?, c.zeroed(LEN)?);
        c.fill(&mut scratch, 2)?;
        c.copy(&mut data, &scratch)
    });
    assert!(matches!(result, Err(Error::Capture { .. })), "{result:?}");
    exec.launch(&stream)?;
    assert_eq!(exec.view(&data.as_ref())?.to_vec()?, [1; LEN]);
    // A graph without scratch memory has other nodes.
    let result = exec.recapture(&stream, |c| c.fill(&mut c.reuse_mut(&data)?, 3));
    assert!(
        matches!(result, Err(Error::GraphUpdate { .. })),
        "{result:?}"
    );
    drop(exec);
    drop((buffer, stream));
    assert_eq!(context.live_count(), 0);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

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

#[test]
fn other_contexts_are_refused() -> Result<()> {
    let _turn = turn();
    let (context, other) = (context()?, Context::builder().dedicated().build()?);
    let (stream, foreign) = (Stream::new(&context)?, Stream::new(&other)?);
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let wrong = |result: Result<()>| matches!(result, Err(Error::WrongContext { .. }));
    assert!(wrong(
        foreign.capture(|c| c.bind(&buffer).map(drop)).map(drop)
    ));
    let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 1))?;
    let mut exec = graph.instantiate()?;
    assert!(wrong(exec.launch(&foreign)));
    let (graph, ()) = foreign.capture(|c| c.call_each(|| ()))?;
    assert!(wrong(exec.update(graph)));
    exec.launch(&stream)?;
    Ok(())
}

/// A panic in a host function of a graph continues where the graph was launched, and the graph can be launched again.
#[test]
fn a_panic_in_a_graph_is_carried_to_the_launch() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let mut round = 0;
    let (graph, data) = stream.capture(|c| {
        let mut data = c.bind_mut(&mut buffer)?;
        c.call_each(|| {
            round += 1;
            if round % 2 == 1 {
                resume_unwind(Box::new(round));
            }
        })?;
        c.fill(&mut data, 3)?;
        c.export(&data)
    })?;
    let mut exec = graph.instantiate()?;
    for round in 1..=6 {
        let result = catch_unwind(AssertUnwindSafe(|| exec.launch(&stream)));
        match result {
            Ok(result) => {
                assert_eq!(round % 2, 0);
                result?;
            }
            Err(panic) => assert_eq!(panic.downcast_ref(), Some(&round)),
        }
        assert_eq!(exec.view(&data)?.to_vec()?, [3; LEN]);
    }
    drop(exec);
    assert_eq!(round, 6);
    drop((buffer, stream));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_launch_is_in_stream_order_and_waited_for() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut output = PinnedBuffer::<u8>::zeroed(&context, LEN)?;
    let source = DeviceBuffer::from_slice(&context, &[7_u8; LEN])?;
    let (graph, ()) =
        stream.capture(|c| c.download(&mut c.bind_host_mut(&mut output), &c.bind(&source)?))?;
    let mut exec = graph.instantiate()?;
    let gate = Gate::on(&context, &stream);
    let mut opener = None;
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        stream.scope(|s| {
            s.launch_graph(&mut s.bind_graph(&mut exec)?)?;
            opener = Some(gate.open_later());
            resume_unwind(Box::new("on purpose")) as Result<()>
        })
    }));
    assert!(unwound.is_err() && gate.is_open());
    opener
        .expect("the gate was opened")
        .join()
        .expect("no panic");
    drop(exec);
    assert_eq!(*output, [7; LEN]);
    Ok(())
}

/// Teardown destroys graphs and ends captures; the guards are inert then.
#[test]
fn a_context_that_is_closed() -> Result<()> {
    let turn = turn();
    let context = Context::builder().dedicated().build()?;
    let stream = Stream::new(&context)?;
    let mut one = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let mut two = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut one)?, 1))?;
    let mut exec = graph.instantiate()?;
    let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut two)?, 1))?;
    let mut context = Some(context);
    let closed = |result: Result<()>| matches!(result, Err(Error::ContextClosed { .. }));
    let result = stream.capture(|c| {
        let mut scratch = c.zeroed::<u8>(LEN)?;
        context.take().map_or(Ok(()), Context::close)?;
        c.fill(&mut scratch, 1)
    });
    assert!(closed(result.map(drop)));
    assert!(closed(exec.launch(&stream)));
    assert!(closed(graph.node_count().map(drop)));
    assert!(closed(graph.instantiate().map(drop)));
    assert!(closed(exec.close()));
    assert!(closed(stream.capture(|c| c.call_each(|| ())).map(drop)));
    drop((one, two, stream));
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_leaked_graph_is_reported_and_destroyed() -> Result<()> {
    let turn = turn();
    let context = Context::new(0)?;
    let stream = Stream::new(&context)?;
    let (graph, ()) = stream.capture(|c| c.call_each(|| ()))?;
    let (more, ()) = stream.capture(|c| c.zeroed::<u8>(3).map(drop))?;
    std::mem::forget(graph.instantiate()?);
    let text = cuguard::report::Report::to_text(
        &context.snapshot(),
        &cuguard::report::ReportSettings::default(),
    );
    assert!(text.contains("executable graph"), "{text}");
    drop(more);
    drop(stream);
    let (graphs, _) = counts(&context);
    assert_eq!(graphs, 1);
    context.close()?;
    if simulated("the count of graphs") {
        turn.all_came_back();
    }
    Ok(())
}

/// Each driver call of a capture, an instantiation, a launch and an update fails in turn.
#[test]
fn each_refused_call_leaves_no_graph() -> Result<()> {
    let turn = turn();
    if !simulated("each_refused_call_leaves_no_graph") {
        return Ok(());
    }
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let functions = [
        "cuStreamCreateWithPriority",
        "cuStreamGetPriority",
        "cuStreamBeginCapture_v2",
        "cuMemAllocAsync",
        "cuMemsetD8Async",
        "cuLaunchHostFunc",
        "cuMemFreeAsync",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuGraphLaunch",
    ];
    for function in functions {
        sim::inject(Fault::nth_call_of(function, 1)).expect("there is such a function");
        let captured = stream.capture(|c| {
            let mut scratch = c.zeroed::<u8>(LEN)?;
            c.fill(&mut scratch, 8)?;
            c.call_each(|| ())?;
            c.copy(&mut c.bind_mut(&mut buffer)?, &scratch)
        });
        let result = captured
            .and_then(|(graph, ())| graph.instantiate())
            .and_then(|mut exec| exec.launch(&stream));
        sim::clear_faults();
        let error = result.unwrap_err();
        let name = function.trim_end_matches("_v2");
        assert!(error.to_string().contains(name), "{function}: {error}");
        assert_eq!(counts(&context), (0, 0), "{function}");
        assert_eq!(context.live_count(), 2, "{function}");
        assert!(context.snapshot().failed_frees.is_empty(), "{function}");
        context.synchronize()?;
    }
    drop((buffer, stream));
    context.close()?;
    turn.all_came_back();
    Ok(())
}
