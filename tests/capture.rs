//! Guards that are dropped while a stream is captured.

use std::thread;

use crate::support::*;
use cuguard::driver::api::{cuGraphDestroy, cuStreamBeginCapture_v2, cuStreamEndCapture};
use cuguard::driver::sys::{CUgraph, CUresult, CUstream, stream_capture_mode};
use cuguard::memory::PitchedBuffer;
use cuguard::{Context, DeviceBuffer, Error, Event, PinnedBuffer, Result, Stream};

fn begin(stream: &Stream, mode: u32) {
    // SAFETY: the stream is alive, and nothing is enqueued on it until the capture ends.
    let result = unsafe { cuStreamBeginCapture_v2(CUstream(stream.as_raw().0), mode) };
    assert_eq!(result, CUresult::SUCCESS);
}

/// Ends the capture; returns the code.
fn end(stream: &Stream) -> CUresult {
    let mut graph = CUgraph::NULL;
    // SAFETY: the stream is alive; the graph is destroyed once.
    unsafe {
        let result = cuStreamEndCapture(CUstream(stream.as_raw().0), &mut graph);
        if result.is_success() {
            assert_eq!(cuGraphDestroy(graph), CUresult::SUCCESS);
        }
        result
    }
}

/// A capture in global mode prohibits frees on every thread. They end the capture, as on a real driver, and nothing leaks.
#[test]
fn memory_dropped_during_a_capture_is_freed() -> Result<()> {
    let _turn = turn();
    let context = Context::new(0)?;
    let stream = Stream::new(&context)?;
    for mode in [
        stream_capture_mode::GLOBAL,
        stream_capture_mode::THREAD_LOCAL,
    ] {
        let buffer = DeviceBuffer::<u8>::zeroed(&context, 1000)?;
        let pinned = PinnedBuffer::<u8>::zeroed(&context, 1000)?;
        let event = Event::new(&context)?;
        begin(&stream, mode);
        let dropped = move || drop((buffer, pinned, event));
        match mode {
            stream_capture_mode::GLOBAL => thread::spawn(dropped).join().expect("no panic"),
            _ => dropped(),
        }
        assert_eq!(end(&stream), CUresult::STREAM_CAPTURE_INVALIDATED);
        assert_eq!(context.live_count(), 1, "only the stream");
    }
    assert!(context.snapshot().failed_frees.is_empty());
    drop(stream);
    context.close()
}

/// While other code captures a stream that waits for the default stream, copies and fills on the default stream are errors:
/// they return at once, and work again after the capture.
#[test]
fn copies_on_the_default_stream_are_errors_during_a_capture() -> Result<()> {
    let _turn = turn();
    let (context, other) = (Context::new(0)?, Context::builder().dedicated().build()?);
    let stream = Stream::builder(&context).blocking().build()?;
    let from = DeviceBuffer::from_slice(&context, &[1_u64; 100])?;
    let mut to = DeviceBuffer::<u64>::zeroed(&context, 100)?;
    let mut far = DeviceBuffer::<u64>::zeroed(&other, 100)?;
    let mut matrix = PitchedBuffer::from_slice(&context, 2, 2, &[1, 2, 3, 4])?;
    type Operation<'a> = &'a mut dyn FnMut() -> Result<()>;
    let operations: [(&str, Operation<'_>); 8] = [
        ("copy_from", &mut || to.copy_from(&from)),
        ("copy_from_slice", &mut || {
            from.try_clone()?.copy_from_slice(&[2; 100])
        }),
        ("copy to another context", &mut || far.copy_from(&from)),
        ("to_vec", &mut || from.to_vec().map(drop)),
        ("fill", &mut || from.try_clone()?.fill(1)),
        ("fill by copies", &mut || {
            from.try_clone()?.fill(1 << 40 | 3)
        }),
        ("matrix", &mut || matrix.copy_from_slice(&[5, 6, 7, 8])),
        ("zero", &mut || from.try_clone()?.zero()),
    ];
    for (name, operation) in operations {
        begin(&stream, stream_capture_mode::RELAXED);
        let code = operation().map_err(|error| error.code());
        // A call that is refused may have invalidated the capture.
        let _ = end(&stream);
        let expected = CUresult::STREAM_CAPTURE_IMPLICIT;
        assert_eq!(code, Err(Some(expected)), "{name}");
        operation()?;
    }
    Ok(())
}

/// While other code captures the stream of stream-ordered memory, copies and fills would become nodes of its graph. They are
/// errors, and the capture goes on.
#[test]
fn copies_of_memory_whose_stream_is_captured_are_errors() -> Result<()> {
    let _turn = turn();
    let (context, other) = (Context::new(0)?, Context::builder().dedicated().build()?);
    let stream = Stream::new(&context)?;
    let mut ordered = DeviceBuffer::from_slice(&stream, &[1_u64; 100])?;
    let mut plain = DeviceBuffer::<u64>::zeroed(&context, 100)?;
    let mut far = DeviceBuffer::<u64>::zeroed(&other, 100)?;
    for _ in 0..2 {
        begin(&stream, stream_capture_mode::THREAD_LOCAL);
        let results = [
            ("copy_from_slice", ordered.copy_from_slice(&[2; 100])),
            ("to_vec", ordered.to_vec().map(drop)),
            ("copy_from", ordered.copy_from(&plain)),
            ("copy to another", plain.copy_from(&ordered)),
            ("copy from another context", ordered.copy_from(&far)),
            ("copy to another context", far.copy_from(&ordered)),
            ("fill", ordered.fill(1)),
            ("fill by copies", ordered.fill(1 << 40 | 3)),
            ("zero", ordered.slice_mut(1..)?.zero()),
            ("try_clone", ordered.try_clone().map(drop)),
        ];
        assert_eq!(end(&stream), CUresult::SUCCESS);
        for (name, result) in results {
            let is_capture = matches!(result, Err(Error::Capture { .. }));
            assert!(is_capture, "{name}: {result:?}");
        }
        assert_eq!(ordered.to_vec()?, [1; 100]);
        assert_eq!(context.live_count(), 3);
    }
    Ok(())
}
