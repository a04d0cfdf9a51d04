//! A captured graph is launched, on streams and in scopes, and its memory is accessed between launches.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use cuguard::{
    Context, DeviceBuffer, Error, ManagedBuffer, PinnedBuffer, ResourceKind, Result, Stream,
};

use super::{LEN, counts};
use crate::support::gate::Gate;
use crate::support::*;

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
    let group = snapshot
        .live
        .iter()
        .find(|group| group.kind == ResourceKind::Graph);
    let site = group.and_then(|group| group.origin.site.as_ref());
    assert!(site.is_some_and(|site| site.file.ends_with("launch.rs")));
    let mut exec = graph.instantiate()?.with_label("the executable");
    assert_eq!(counts(&context), (0, 1));
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
    let mut input = DeviceBuffer::<u32>::zeroed(&home, LEN)?;
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
