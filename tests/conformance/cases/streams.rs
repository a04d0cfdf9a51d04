//! Streams: making them, asking them, host functions on them.

use std::sync::atomic::Ordering;

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::host::{self, Gate};
use crate::tools::*;

cases! {"streams":
    flags_of_streams,
    priorities,
    default_streams,
    context_of_a_stream,
    empty_stream,
    query_before_and_after,
    destroy_default_stream,
    destroy_with_work,
    host_functions_run_in_order,
    host_function_arguments,
    callback,
    driver_calls_in_a_host_function,
    under_another_context,
    not_capturing,
}

/// A stream is blocking or not; other flags do not exist.
fn flags_of_streams(c: &Case) {
    primary(c);
    let (mut stream, mut flags) = (CUstream::NULL, 99);
    c.invalid("flags 7", cuStreamCreate(&mut stream, 7));
    c.invalid("into null", cuStreamCreate(std::ptr::null_mut(), 0));
    for want in [0, flags::STREAM_NON_BLOCKING] {
        c.ok(
            format_args!("create with flags {want}"),
            cuStreamCreate(&mut stream, want),
        );
        c.ok("read the flags", cuStreamGetFlags(stream, &mut flags));
        c.same("flags", flags, want);
        c.ok("destroy", cuStreamDestroy_v2(stream));
    }
}

/// A priority outside of the range is brought into it.
fn priorities(c: &Case) {
    primary(c);
    let (mut least, mut greatest) = (99, 99);
    c.require(
        "range",
        cuCtxGetStreamPriorityRange(&mut least, &mut greatest),
    );
    for (asked, want) in [
        (-100, greatest),
        (100, least),
        (greatest, greatest),
        (least, least),
    ] {
        let (mut stream, mut got) = (CUstream::NULL, 99);
        let result = cuStreamCreateWithPriority(&mut stream, 1, asked);
        c.ok(format_args!("create with priority {asked}"), result);
        c.ok("read it", cuStreamGetPriority(stream, &mut got));
        c.same("priority", got, want);
    }
}

/// The default streams exist without being made: null, the legacy one by name, the thread's own.
fn default_streams(c: &Case) {
    primary(c);
    let (mut flags, mut priority) = (99, 99);
    for (what, stream) in [
        ("null", CUstream::NULL),
        ("legacy", CUstream::LEGACY),
        ("per thread", CUstream::PER_THREAD),
    ] {
        c.ok(
            format_args!("flags of {what}"),
            cuStreamGetFlags(stream, &mut flags),
        );
        c.same("flags", flags, 0);
        c.ok(format_args!("query {what}"), cuStreamQuery(stream));
        c.ok(format_args!("wait for {what}"), cuStreamSynchronize(stream));
    }
    c.ok(
        "priority of null",
        cuStreamGetPriority(CUstream::NULL, &mut priority),
    );
    c.same("priority", priority, 0);
}

/// A stream knows its context; null is a stream of the current one.
fn context_of_a_stream(c: &Case) {
    let primary = primary(c);
    let first = stream(c, 0);
    let created = create(c);
    let second = stream(c, 0);
    let mut context = CUcontext::NULL;
    c.ok("ask the first", cuStreamGetCtx(first, &mut context));
    c.yes("it is the primary context's", context == primary);
    c.ok("ask the second", cuStreamGetCtx(second, &mut context));
    c.yes("it is the created context's", context == created);
    c.ok("ask null", cuStreamGetCtx(CUstream::NULL, &mut context));
    c.yes("it is the current context's", context == created);
}

/// A stream without work is done.
fn empty_stream(c: &Case) {
    primary(c);
    let stream = stream(c, 0);
    c.ok("query", cuStreamQuery(stream));
    c.ok("wait", cuStreamSynchronize(stream));
}

/// A stream with work to do is NOT_READY, and done when it was waited for.
fn query_before_and_after(c: &Case) {
    primary(c);
    let (stream, ptr) = (independent(c), alloc(c, MIB));
    let (gate, result) = Gate::close(stream);
    c.ok("hold the stream up", result);
    c.ok("put a fill behind it", cuMemsetD8Async(ptr, 3, MIB, stream));
    c.expect("query", cuStreamQuery(stream), Code::NOT_READY);
    c.expect("query again", cuStreamQuery(stream), Code::NOT_READY);
    gate.open();
    c.ok("wait", cuStreamSynchronize(stream));
    c.ok("query then", cuStreamQuery(stream));
    c.same("the fill is done", read(c, ptr, 2), vec![3, 3]);
}

/// The default stream is not destroyed.
fn destroy_default_stream(c: &Case) {
    primary(c);
    let result = cuStreamDestroy_v2(CUstream::NULL);
    c.expect("destroy null", result, Code::INVALID_HANDLE);
}

/// A stream can be destroyed with work on it; the work is done all the same.
fn destroy_with_work(c: &Case) {
    primary(c);
    let (stream, ptr) = (independent(c), alloc(c, MIB));
    c.require("fill", cuMemsetD8_v2(ptr, 1, MIB));
    let (gate, result) = Gate::close(stream);
    c.require("cuLaunchHostFunc", result);
    c.ok("put a fill behind it", cuMemsetD8Async(ptr, 6, MIB, stream));
    c.ok("destroy", cuStreamDestroy_v2(stream));
    gate.open();
    c.ok("wait for the context", cuCtxSynchronize());
    c.same("the fill is done", read(c, ptr, 2), vec![6, 6]);
}

/// Host functions of one stream run one after the other, in order.
fn host_functions_run_in_order(c: &Case) {
    primary(c);
    let stream = stream(c, 0);
    for number in 1..=100 {
        let result = cuLaunchHostFunc(stream, Some(host::mark), host::number(number));
        c.require("cuLaunchHostFunc", result);
    }
    c.ok("wait", cuStreamSynchronize(stream));
    c.yes(
        "all ran, in order",
        host::marks() == (1..=100).collect::<Vec<_>>(),
    );
}

/// There must be a function, and there are no flags.
fn host_function_arguments(c: &Case) {
    primary(c);
    let stream = stream(c, 0);
    let null = std::ptr::null_mut();
    c.invalid("no host function", cuLaunchHostFunc(stream, None, null));
    c.invalid("no callback", cuStreamAddCallback(stream, None, null, 0));
    let result = cuStreamAddCallback(stream, Some(host::callback), null, 1);
    c.invalid("a callback with a flag", result);
}

/// A callback is told that all is well.
fn callback(c: &Case) {
    primary(c);
    let stream = stream(c, 0);
    let result = cuStreamAddCallback(stream, Some(host::callback), std::ptr::null_mut(), 0);
    c.ok("add a callback", result);
    c.ok("wait", cuStreamSynchronize(stream));
    c.ok(
        "what it was told",
        Code(host::STATUS.load(Ordering::Acquire)),
    );
}

/// Inside a host function the driver returns NOT_PERMITTED for everything but its version.
fn driver_calls_in_a_host_function(c: &Case) {
    primary(c);
    let stream = stream(c, 0);
    let result = cuLaunchHostFunc(stream, Some(host::call_driver), std::ptr::null_mut());
    c.ok("launch", result);
    c.ok("wait", cuStreamSynchronize(stream));
    let answers = host::RESULTS
        .each_ref()
        .map(|answer| Code(answer.load(Ordering::Acquire)));
    let names = [
        "allocate",
        "current context",
        "query",
        "free null",
        "version",
    ];
    for (index, (name, answer)) in names.into_iter().zip(answers).enumerate() {
        let want = if index == 4 {
            Code::SUCCESS
        } else {
            Code::NOT_PERMITTED
        };
        c.expect(name, answer, want);
    }
    let ptr = alloc(c, 16);
    c.ok("outside of it all is well", cuMemFree_v2(ptr));
}

/// A stream works although another context is current.
fn under_another_context(c: &Case) {
    primary(c);
    let (stream, event, ptr) = (independent(c), event(c, 0), alloc(c, 4096));
    create(c);
    c.ok("fill", cuMemsetD8Async(ptr, 1, 16, stream));
    c.ok("wait", cuStreamSynchronize(stream));
    let mut foreign = CUevent::NULL;
    c.require("cuEventCreate", cuEventCreate(&mut foreign, 0));
    let result = cuEventRecord(foreign, stream);
    c.expect(
        "record the other context's event",
        result,
        Code::INVALID_HANDLE,
    );
    c.ok(
        "record its own context's event",
        cuEventRecord(event, stream),
    );
    c.ok(
        "wait for the other context's event",
        cuStreamWaitEvent(stream, foreign, 0),
    );
    c.ok("wait", cuStreamSynchronize(stream));
    c.ok("query the event", cuEventQuery(event));
    let mut new = 0;
    c.ok("allocate on it", cuMemAllocAsync(&mut new, 16, stream));
    c.ok("free on it", cuMemFreeAsync(new, stream));
    let result = cuLaunchHostFunc(stream, Some(host::mark), host::number(1));
    c.ok("launch a host function on it", result);
    c.ok("destroy the stream", cuStreamDestroy_v2(stream));
    c.ok("destroy the event", cuEventDestroy_v2(event));
    c.ok("wait for the current context", cuCtxSynchronize());
}

/// A stream is not capturing unless it was told to.
fn not_capturing(c: &Case) {
    primary(c);
    let (stream, mut status) = (stream(c, 0), 99);
    c.ok("ask", cuStreamIsCapturing(stream, &mut status));
    c.same("answer", status, 0);
}
