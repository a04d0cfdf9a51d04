//! What a capture permits: on its own streams, on the default stream, on its thread.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::graphs::*;
use crate::host;
use crate::tools::*;
use stream_capture_mode::{GLOBAL, RELAXED, THREAD_LOCAL};

cases! {"capture_rules":
    what_a_capturing_stream_refuses,
    captured_events,
    the_default_stream,
    the_whole_context,
    unsafe_calls,
    safe_calls,
    modes_of_the_thread,
    other_threads,
}

/// Begins a capture in a mode.
fn begin_in(c: &Case, stream: CUstream, mode: u32) {
    let result = cuStreamBeginCapture_v2(stream, mode);
    c.require("cuStreamBeginCapture", result);
}

/// Expects that a call fails with `want` and invalidates a capture, which begins before and ends after it.
fn refuses(
    c: &Case,
    (stream, mode): (CUstream, u32),
    what: &str,
    want: CUresult,
    call: impl FnOnce() -> CUresult,
) {
    begin_in(c, stream, mode);
    c.expect(what, call(), want);
    c.same(format_args!("{what}: status"), status(c, stream), 2);
    let result = cuStreamEndCapture(stream, &mut CUgraph(1));
    let invalidated = Code::STREAM_CAPTURE_INVALIDATED;
    c.expect(format_args!("{what}: end"), result, invalidated);
}

/// Expects that a call succeeds during a capture and does not disturb it.
fn permits(c: &Case, (stream, mode): (CUstream, u32), what: &str, call: impl FnOnce() -> CUresult) {
    begin_in(c, stream, mode);
    c.ok(what, call());
    c.same(format_args!("{what}: status"), status(c, stream), 1);
    let result = cuStreamEndCapture(stream, &mut CUgraph(1));
    c.ok(format_args!("{what}: end"), result);
}

const UNSUPPORTED: CUresult = Code::STREAM_CAPTURE_UNSUPPORTED;

/// A capturing stream does not execute, so nothing can wait for it, and not all work can be captured.
fn what_a_capturing_stream_refuses(c: &Case) {
    let context = primary(c);
    let (stream, a, b) = (independent(c), alloc(c, 64), alloc(c, 64));
    let memory = managed(c, 4096);
    let exec = instantiate(c, graph(c));
    let here = CUmemLocation {
        type_: mem_location_type::DEVICE,
        id: 0,
    };
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        let refuses = |what: &str, call: &dyn Fn() -> CUresult| {
            refuses(c, (stream, mode), what, UNSUPPORTED, call);
        };
        refuses("wait", &|| cuStreamSynchronize(stream));
        refuses("query", &|| cuStreamQuery(stream));
        let null = std::ptr::null_mut();
        refuses("callback", &|| {
            cuStreamAddCallback(stream, Some(host::callback), null, 0)
        });
        refuses("copy between contexts", &|| {
            cuMemcpyPeerAsync(a, context, b, context, 64, stream)
        });
        refuses("launch", &|| cuGraphLaunch(exec, stream));
        refuses("upload", &|| cuGraphUpload(exec, stream));
        refuses("prefetch", &|| {
            cuMemPrefetchAsync_v2(memory, 4096, here, 0, stream)
        });
        refuses("attach", &|| {
            cuStreamAttachMemAsync(stream, memory, 0, mem_attach_flags::SINGLE)
        });
    }
}

/// A captured event never completes.
fn captured_events(c: &Case) {
    primary(c);
    let (stream, mark) = (independent(c), event(c, 0));
    for mode in [GLOBAL, RELAXED] {
        let refuses = |what: &str, call: &dyn Fn() -> CUresult| {
            refuses(c, (stream, mode), what, Code::CAPTURED_EVENT, || {
                c.ok("record", cuEventRecord(mark, stream));
                call()
            });
        };
        refuses("query", &|| cuEventQuery(mark));
        refuses("wait", &|| cuEventSynchronize(mark));
        begin_in(c, stream, mode);
        c.ok("record", cuEventRecord(mark, stream));
        let mut elapsed = 0.0;
        let result = cuEventElapsedTime(&mut elapsed, mark, mark);
        c.expect("time", result, Code::CAPTURED_EVENT);
        c.same("status", status(c, stream), 1);
        c.ok("end", cuStreamEndCapture(stream, &mut CUgraph(1)));
        permits(c, (stream, mode), "destroy", || {
            let mark = event(c, 0);
            c.ok("record", cuEventRecord(mark, stream));
            cuEventDestroy_v2(mark)
        });
    }
}

/// Work on the legacy default stream would synchronize with a blocking stream that captures, and not with
/// others.
fn the_default_stream(c: &Case) {
    primary(c);
    let (other, blocking, a) = (independent(c), stream(c, 0), alloc(c, 64));
    let (mark, legacy) = (event(c, 0), CUstream::NULL);
    let mut byte = 0_u8;
    let target = (&raw mut byte).cast::<c_void>();
    permits(c, (other, RELAXED), "fill", || {
        cuMemsetD8Async(a, 1, 8, legacy)
    });
    permits(c, (other, RELAXED), "copy", || {
        cuMemcpyDtoH_v2(target, a, 1)
    });
    permits(c, (other, RELAXED), "wait", || cuStreamSynchronize(legacy));
    permits(c, (other, GLOBAL), "fill at once", || {
        cuMemsetD8_v2(a, 1, 8)
    });
    let refuses = |what: &str, call: &dyn Fn() -> CUresult| {
        let implicit = Code::STREAM_CAPTURE_IMPLICIT;
        refuses(c, (blocking, RELAXED), what, implicit, call);
    };
    refuses("fill", &|| cuMemsetD8Async(a, 1, 8, legacy));
    refuses("copy", &|| cuMemcpyDtoH_v2(target, a, 1));
    refuses("wait", &|| cuStreamSynchronize(legacy));
    refuses("query", &|| cuStreamQuery(legacy));
    refuses("record", &|| cuEventRecord(mark, legacy));
    permits(c, (blocking, RELAXED), "free", || cuMemFree_v2(a));
    begin_in(c, blocking, RELAXED);
    let mut found = 9;
    let result = cuStreamIsCapturing(legacy, &mut found);
    c.expect("status", result, Code::STREAM_CAPTURE_IMPLICIT);
    c.ok("end", cuStreamEndCapture(blocking, &mut CUgraph(1)));
    begin_in(c, other, RELAXED);
    c.ok("record", cuEventRecord(mark, other));
    let result = cuStreamWaitEvent(legacy, mark, 0);
    c.expect(
        "wait for a captured event",
        result,
        Code::STREAM_CAPTURE_IMPLICIT,
    );
    c.same("status", status(c, other), 2);
}

/// What concerns all streams of a context is refused in every mode.
fn the_whole_context(c: &Case) {
    let context = primary(c);
    let (stream, mark) = (independent(c), event(c, 0));
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        let refuses = |what: &str, call: &dyn Fn() -> CUresult| {
            refuses(c, (stream, mode), what, UNSUPPORTED, call);
        };
        refuses("wait", &|| cuCtxSynchronize());
        refuses("record", &|| cuCtxRecordEvent(context, mark));
        refuses("wait for an event", &|| cuCtxWaitEvent(context, mark));
    }
}

/// What may wait for other streams is refused, except in the relaxed mode.
fn unsafe_calls(c: &Case) {
    primary(c);
    let (stream, other, done) = (independent(c), independent(c), event(c, 0));
    let third = independent(c);
    let page = pages(4096).cast::<c_void>();
    c.require("record", cuEventRecord(done, other));
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        let (a, host) = (alloc(c, 64), pinned(c, 64));
        let (pooled, graph) = (alloc_async(c, 64, other), graph(c));
        let (exec, pool) = (instantiate(c, graph), default_pool(c));
        wait_for(c, other);
        let calls: [(&str, &dyn Fn() -> CUresult); 15] = [
            ("cuMemAlloc", &|| cuMemAlloc_v2(&mut 0, 64)),
            ("cuMemAllocHost", &|| {
                cuMemAllocHost_v2(&mut std::ptr::null_mut(), 64)
            }),
            ("cuMemAllocManaged", &|| {
                cuMemAllocManaged(&mut 0, 64, flags::MEM_ATTACH_GLOBAL)
            }),
            ("cuMemAllocAsync", &|| cuMemAllocAsync(&mut 0, 64, third)),
            ("cuMemFreeAsync", &|| cuMemFreeAsync(pooled, third)),
            ("cuMemHostRegister", &|| cuMemHostRegister_v2(page, 4096, 0)),
            ("cuEventQuery", &|| cuEventQuery(done)),
            ("cuEventSynchronize", &|| cuEventSynchronize(done)),
            ("cuStreamQuery", &|| cuStreamQuery(other)),
            ("cuStreamSynchronize", &|| cuStreamSynchronize(other)),
            ("cuGraphInstantiate", &|| {
                cuGraphInstantiateWithFlags(&mut CUgraphExec(0), graph, 0)
            }),
            ("cuGraphExecDestroy", &|| cuGraphExecDestroy(exec)),
            ("cuMemPoolTrimTo", &|| cuMemPoolTrimTo(pool, 0)),
            ("cuMemFreeHost", &|| cuMemFreeHost(host)),
            ("cuMemFree", &|| cuMemFree_v2(a)),
        ];
        for (what, call) in calls {
            match mode {
                RELAXED => permits(c, (stream, mode), what, call),
                _ => refuses(c, (stream, mode), what, UNSUPPORTED, call),
            }
        }
    }
}

/// What only creates or asks is permitted in every mode, and so is work on other streams.
fn safe_calls(c: &Case) {
    primary(c);
    let (stream, other, mark) = (independent(c), independent(c), event(c, 0));
    let (a, exec) = (alloc(c, 64), instantiate(c, graph(c)));
    let place = (stream, GLOBAL);
    permits(c, place, "cuEventCreate", || {
        cuEventCreate(&mut CUevent(0), 0)
    });
    permits(c, place, "cuEventRecord", || cuEventRecord(mark, other));
    permits(c, place, "cuEventDestroy", || cuEventDestroy_v2(mark));
    permits(c, place, "cuStreamCreate", || {
        cuStreamCreate(&mut CUstream(0), 0)
    });
    permits(c, place, "cuStreamGetPriority", || {
        cuStreamGetPriority(stream, &mut 0)
    });
    permits(c, place, "cuMemsetD8Async", || {
        cuMemsetD8Async(a, 1, 8, other)
    });
    permits(c, place, "cuGraphLaunch", || cuGraphLaunch(exec, other));
    permits(c, place, "cuMemGetInfo", || cuMemGetInfo_v2(&mut 0, &mut 0));
    permits(c, place, "cuMemAddressReserve", || {
        cuMemAddressReserve(&mut 0, PAGE, 0, 0, 0)
    });
    let mut memory = 0;
    permits(c, place, "cuMemCreate", || {
        cuMemCreate(&mut memory, PAGE, &device_properties(0), 0)
    });
    permits(c, place, "cuMemRelease", || cuMemRelease(memory));
    permits(c, place, "cuDeviceGraphMemTrim", || cuDeviceGraphMemTrim(0));
    permits(c, place, "cuPointerGetAttribute", || {
        let mut kind = 0_u32;
        let which = pointer_attribute::MEMORY_TYPE;
        cuPointerGetAttribute((&raw mut kind).cast(), which, a)
    });
    let third = independent(c);
    permits(c, place, "cuStreamDestroy", || cuStreamDestroy_v2(third));
}

/// A thread may permit unsafe calls to itself.
fn modes_of_the_thread(c: &Case) {
    primary(c);
    let stream = independent(c);
    let mut mode = RELAXED;
    begin_in(c, stream, GLOBAL);
    c.ok("relaxed", cuThreadExchangeStreamCaptureMode(&mut mode));
    c.same("before", mode, GLOBAL);
    c.ok("allocate", cuMemAlloc_v2(&mut 0, 64));
    c.ok("back", cuThreadExchangeStreamCaptureMode(&mut mode));
    c.same("before", mode, RELAXED);
    c.expect("allocate", cuMemAlloc_v2(&mut 0, 64), UNSUPPORTED);
    c.same("status", status(c, stream), 2);
}

/// A global capture prohibits unsafe calls on every thread, a local one on its own.
fn other_threads(c: &Case) {
    let context = primary(c);
    let stream = independent(c);
    for (mode, refused) in [(GLOBAL, true), (THREAD_LOCAL, false), (RELAXED, false)] {
        begin_in(c, stream, mode);
        let result = host::on_another_thread(|| {
            c.require("cuCtxSetCurrent", cuCtxSetCurrent(context));
            cuMemAlloc_v2(&mut 0, 64)
        });
        let want = if refused { UNSUPPORTED } else { Code::SUCCESS };
        c.expect(format_args!("allocate, mode {mode}"), result, want);
        let want = if refused { 2 } else { 1 };
        c.same(format_args!("status, mode {mode}"), status(c, stream), want);
        let _ = cuStreamEndCapture(stream, &mut CUgraph(1));
    }
    for (mode, want) in [
        (GLOBAL, Code::STREAM_CAPTURE_WRONG_THREAD),
        (THREAD_LOCAL, Code::STREAM_CAPTURE_WRONG_THREAD),
        (RELAXED, Code::SUCCESS),
    ] {
        begin_in(c, stream, mode);
        let result = host::on_another_thread(|| {
            c.require("cuCtxSetCurrent", cuCtxSetCurrent(context));
            cuStreamEndCapture(stream, &mut CUgraph(1))
        });
        c.expect(format_args!("end, mode {mode}"), result, want);
        c.same(format_args!("ended, mode {mode}"), status(c, stream), 0);
    }
}
