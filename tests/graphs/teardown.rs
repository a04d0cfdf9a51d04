//! Graphs of a context that is closed, leaked graphs, and calls that the driver refuses.

use cuguard::driver::api::cuGraphDestroy;
use cuguard::driver::sys::CUresult;
use cuguard::report::{Report, ReportSettings};
use cuguard::sim::{self, Fault};
use cuguard::{Context, DeviceBuffer, Error, ResourceKind, Result, Stream};

use super::{LEN, counts};
use crate::support::*;

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
    drop(more);
    drop(stream);
    // One leak: the driver's graph is destroyed once there is an executable.
    assert_eq!(counts(&context), (0, 1));
    let snapshot = context.snapshot();
    assert_eq!(snapshot.live.len(), 1);
    let text = Report::to_text(&snapshot, &ReportSettings::default());
    assert!(text.contains("1 executable graph"), "{text}");
    context.close()?;
    if simulated("the count of graphs") {
        turn.all_came_back();
    }
    Ok(())
}

/// Launched, with scratch memory or recaptured: a forgotten executable is one finding of the report, at the line that
/// instantiated it.
#[test]
fn a_forgotten_executable_is_one_finding() -> Result<()> {
    let _turn = turn();
    for recaptured in [false, true] {
        let context = Context::new(0)?;
        let stream = Stream::new(&context)?;
        let (graph, ()) = stream.capture(|c| match recaptured {
            true => c.call_each(|| ()),
            false => c.zeroed::<u8>(LEN).map(drop),
        })?;
        let line = line!() + 1;
        let mut exec = graph.instantiate()?;
        if recaptured {
            exec.recapture(&stream, |c| c.call_each(|| ()))?;
        }
        exec.launch(&stream)?;
        std::mem::forget(exec);
        drop(stream);
        let snapshot = context.snapshot();
        let [group] = &snapshot.live[..] else {
            panic!("{:?}", snapshot.live);
        };
        assert_eq!(
            (group.kind, group.amount.count),
            (ResourceKind::GraphExec, 1)
        );
        let site = group.origin.site.as_ref().expect("a call site");
        assert!(
            site.file.ends_with("teardown.rs") && site.line == line,
            "{site}"
        );
        let text = Report::to_text(&snapshot, &ReportSettings::default());
        assert_eq!(text.matches("teardown.rs:").count(), 1, "{text}");
        context.close()?;
    }
    Ok(())
}

/// A leaked graph is the only leak: the memory that it uses, and the stream of that memory, are freed by their guards.
#[test]
fn a_leaked_graph_keeps_no_stream() -> Result<()> {
    let _turn = turn();
    let context = Context::new(0)?;
    let captured: &'static Stream = Box::leak(Box::new(Stream::default_stream(&context)?));
    for instantiated in [false, true] {
        let streams = [Stream::new(&context)?, Stream::new(&context)?];
        let buffers = [
            DeviceBuffer::<u8>::zeroed(&streams[0], LEN)?,
            DeviceBuffer::<u8>::zeroed(&streams[1], LEN)?,
        ];
        let mut seen = [vec![0; LEN], vec![0; LEN]];
        let (graph, ()) = captured.capture(|c| {
            for (to, from) in seen.iter_mut().zip(&buffers) {
                c.download(&mut c.bind_host_mut(to), &c.bind(from)?)?;
            }
            Ok(())
        })?;
        match instantiated {
            false => std::mem::forget(graph),
            true => std::mem::forget(graph.instantiate()?),
        }
    }
    let live: Vec<_> = context.snapshot().live;
    let kinds: Vec<_> = live.iter().map(|group| group.kind).collect();
    assert_eq!(
        kinds,
        [ResourceKind::Graph, ResourceKind::GraphExec],
        "{live:?}"
    );
    assert_eq!(context.live_count(), 2);
    context.close()
}

/// An executable does not need the driver's graph. One that cannot be destroyed is no error of what it was made of, and is
/// recorded.
#[test]
fn a_graph_that_cannot_be_destroyed_is_recorded() -> Result<()> {
    let turn = turn();
    if !simulated("a_graph_that_cannot_be_destroyed_is_recorded") {
        return Ok(());
    }
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut one = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let mut two = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let failed = || {
        let groups = context.snapshot().failed_frees;
        let of_graphs = groups
            .iter()
            .filter(|group| group.function == "cuGraphDestroy");
        of_graphs
            .map(|group| group.allocated.amount.count)
            .sum::<u64>()
    };
    let refuse = || sim::inject(Fault::nth_call_of("cuGraphDestroy", 1)).expect("a function");
    let (first, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut one)?, 1))?;
    let (second, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut two)?, 2))?;
    let graphs = [first.as_raw(), second.as_raw()];

    let fault = refuse();
    let mut exec = first.instantiate()?;
    assert_eq!((fault.fired(), failed()), (1, 1));
    exec.launch(&stream)?;
    let fault = refuse();
    exec.update(second)?;
    assert_eq!((fault.fired(), failed()), (1, 2));
    sim::clear_faults();
    exec.launch(&stream)?;
    exec.close()?;
    assert_eq!((one.to_vec()?, two.to_vec()?), (vec![1; LEN], vec![2; LEN]));

    // They exist, and nothing owns them.
    for graph in graphs {
        // SAFETY: the driver refused to destroy it.
        assert_eq!(unsafe { cuGraphDestroy(graph) }, CUresult::SUCCESS);
    }
    drop((one, two, stream));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// Each driver call of a capture, an instantiation and a launch fails in turn.
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
