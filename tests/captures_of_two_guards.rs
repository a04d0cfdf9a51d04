//! Captures where two guards have one context: the device's primary context. A wait for the whole context would fail, and
//! end the capture of the other guard.

use std::thread;

use crate::support::*;
use cuguard::{Context, DeviceBuffer, Result, Stream};

/// Captures a fill, and calls `meanwhile` during the capture.
fn capture(context: &Context, meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
    let stream = Stream::new(context)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(context, 100)?;
    let (graph, ()) = stream.capture(|c| {
        let mut data = c.bind_mut(&mut buffer)?;
        c.fill(&mut data, 6)?;
        meanwhile()?;
        c.fill(&mut data, 7)
    })?;
    assert_eq!(graph.node_count()?, 2);
    graph.instantiate()?.launch(&stream)?;
    assert_eq!(buffer.to_vec()?, [7; 100]);
    Ok(())
}

#[test]
fn a_guard_is_closed_while_another_captures() -> Result<()> {
    let _turn = turn();
    let (first, second) = (Context::new(0)?, Context::new(0)?);
    let stream = Stream::new(&second)?;
    let forgotten = DeviceBuffer::from_slice(&second, &[1_u8; 100])?;
    let stream_ordered = DeviceBuffer::<u8>::zeroed(&stream, 100)?;
    std::mem::forget((forgotten, stream_ordered));
    capture(&first, || second.close())?;
    drop(stream);
    first.close()
}

#[test]
fn a_guard_is_dropped_while_another_captures() -> Result<()> {
    let _turn = turn();
    let (first, second) = (Context::new(0)?, Context::new(0)?);
    capture(&first, || {
        thread::scope(|threads| threads.spawn(|| drop(second)).join()).expect("no panic");
        Ok(())
    })?;
    first.close()
}

/// The end of the scope needs to know that the device is done: it aborts the process otherwise.
#[test]
fn a_scope_whose_guard_is_closed_while_another_captures() -> Result<()> {
    let _turn = turn();
    let (first, second) = (Context::new(0)?, Context::new(0)?);
    let stream = Stream::new(&second)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&second, 100)?;
    let (input, mut output) = ([5; 100], [0; 100]);
    capture(&first, || {
        stream.scope(|s| {
            let mut data = s.bind_mut(&mut buffer)?;
            s.upload(&mut data, &s.bind_host(&input))?;
            s.download(&mut s.bind_host_mut(&mut output), &data)?;
            second.close()
        })
    })?;
    assert_eq!(output, input);
    drop((buffer, stream));
    first.close()
}
