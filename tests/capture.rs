//! Guards that are dropped while a stream is captured.

mod support;

use std::thread;

use cuguard::driver::api::{cuGraphDestroy, cuStreamBeginCapture_v2, cuStreamEndCapture};
use cuguard::driver::sys::{CUgraph, CUresult, CUstream, stream_capture_mode};
use cuguard::{Context, DeviceBuffer, Event, PinnedBuffer, Result, Stream};
use support::*;

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
