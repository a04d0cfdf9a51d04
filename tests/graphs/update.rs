//! Executable graphs that are updated.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use cuguard::{DeviceBuffer, Error, Result, Stream};

use super::{LEN, counts};
use crate::support::*;

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
    assert_eq!(counts(&context), (0, 1));
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

/// An executable keeps nothing of the captures between its first and its last, however many there are: what they exported
/// is not known any more, and their closures are dropped.
#[test]
fn an_executable_keeps_nothing_of_captures_in_between() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let input = DeviceBuffer::<u8>::from_slice(&context, &[1, 2, 3, 4])?;
    let mut output = DeviceBuffer::<u8>::zeroed(&context, 1)?;
    struct Counted<'a>(&'a AtomicUsize);
    impl Counted<'_> {
        fn is_only(&self) {
            assert_eq!(self.0.load(Ordering::Relaxed), 1);
        }
    }
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let closures = AtomicUsize::new(0);
    let counted = || {
        closures.fetch_add(1, Ordering::Relaxed);
        Counted(&closures)
    };
    let (graph, (output, first)) = stream.capture(|c| {
        let (mut to, from) = (c.bind_mut(&mut output)?, c.bind(input.slice(0..1)?)?);
        c.copy(&mut to, &from)?;
        let counted = counted();
        c.call_each(move || counted.is_only())?;
        Ok((c.export_mut(&to)?, c.export(&from)?))
    })?;
    let mut exec = graph.instantiate()?;
    let mut windows = vec![first];
    for start in 1..4 {
        let window = exec.recapture(&stream, |c| {
            let from = c.bind(input.slice(start..start + 1)?)?;
            c.copy(&mut c.reuse_mut(&output)?, &from)?;
            let counted = counted();
            c.call_each(move || counted.is_only())?;
            c.export(&from)
        })?;
        windows.push(window);
        // Other nodes: refused.
        let (refused, ()) = stream.capture(|c| {
            let counted = counted();
            c.call_each(move || counted.is_only())
        })?;
        let error = exec.update(refused).unwrap_err();
        assert!(matches!(error, Error::GraphUpdate { .. }), "{error}");
        assert_eq!(closures.load(Ordering::Relaxed), 1, "of the last capture");
        exec.launch(&stream)?;
        assert_eq!(exec.view(&output)?.to_vec()?, [start as u8 + 1]);
    }
    let seen: Vec<_> = windows.iter().map(|window| exec.view(window)).collect();
    assert_eq!(seen[0].as_ref().unwrap().to_vec()?, [1]);
    assert!(matches!(seen[1], Err(Error::WrongGraph { .. })), "{seen:?}");
    assert!(matches!(seen[2], Err(Error::WrongGraph { .. })), "{seen:?}");
    assert_eq!(seen[3].as_ref().unwrap().to_vec()?, [4]);
    // The same by updates.
    let calls = |value| {
        let (graph, window) = stream.capture(|c| {
            let window = c.bind(input.slice(value..value + 1)?)?;
            c.call_each(|| ())?;
            c.export(&window)
        })?;
        Ok::<_, Error>((graph, window))
    };
    let (graph, first) = calls(0)?;
    let mut exec = graph.instantiate()?;
    let mut windows = vec![first];
    for value in 1..4 {
        let (graph, window) = calls(value)?;
        exec.update(graph)?;
        windows.push(window);
    }
    let known: Vec<_> = windows
        .iter()
        .map(|window| exec.view(window).is_ok())
        .collect();
    assert_eq!(known, [true, false, false, true]);
    Ok(())
}
