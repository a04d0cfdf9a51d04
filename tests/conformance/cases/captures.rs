//! Stream capture: work becomes a graph.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::graphs::*;
use crate::host;
use crate::tools::*;
use graph_node_type as kind;
use stream_capture_mode::{GLOBAL, RELAXED};

cases! {"captures":
    begin_and_end,
    streams_that_capture,
    captured_work,
    work_without_bytes,
    a_captured_graph_executes,
    information,
    dependencies,
    into_a_graph,
    events_of_the_outside,
    captured_memory,
    after_the_end,
}

/// A capture has a mode, and ends where it began.
fn begin_and_end(c: &Case) {
    primary(c);
    let (stream, mut graph) = (independent(c), CUgraph(1));
    c.same("not capturing", status(c, stream), 0);
    let result = cuStreamEndCapture(stream, &mut graph);
    c.expect("end of none", result, Code::ILLEGAL_STATE);
    c.invalid("mode 3", cuStreamBeginCapture_v2(stream, 3));
    for mode in 0..3 {
        c.ok("begin", cuStreamBeginCapture_v2(stream, mode));
        c.same("capturing", status(c, stream), 1);
        let again = cuStreamBeginCapture_v2(stream, mode);
        c.expect("begin again", again, Code::ILLEGAL_STATE);
        c.same("still capturing", status(c, stream), 1);
        let graph = end(c, stream);
        c.same("nodes", types(c, graph), vec![]);
        c.same("not capturing", status(c, stream), 0);
    }
    let null = std::ptr::null_mut();
    c.invalid("status into null", cuStreamIsCapturing(stream, null));
    begin(c, stream);
    c.ok(
        "end into null",
        cuStreamEndCapture(stream, std::ptr::null_mut()),
    );
    c.same("not capturing", status(c, stream), 0);
}

/// The legacy default stream does not capture, the thread's own does.
fn streams_that_capture(c: &Case) {
    primary(c);
    for stream in [CUstream::NULL, CUstream::LEGACY] {
        let result = cuStreamBeginCapture_v2(stream, RELAXED);
        c.expect("legacy", result, Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    for stream in [CUstream::PER_THREAD, stream(c, 0)] {
        begin(c, stream);
        c.same("nodes", types(c, end(c, stream)), vec![]);
    }
}

/// Copies, fills and host functions become nodes, one after the other.
fn captured_work(c: &Case) {
    primary(c);
    let (stream, a, b) = (independent(c), alloc(c, 4096), alloc(c, 4096));
    let (pinned, mut pageable) = (pinned(c, 64), [0_u8; 64]);
    let bytes = pageable.as_mut_ptr().cast::<c_void>();
    let rows = CUDA_MEMCPY2D {
        srcMemoryType: memory_type::DEVICE,
        srcDevice: a,
        srcPitch: 16,
        dstMemoryType: memory_type::DEVICE,
        dstDevice: b,
        dstPitch: 16,
        WidthInBytes: 8,
        Height: 2,
        ..CUDA_MEMCPY2D::default()
    };
    begin(c, stream);
    c.ok("from pinned", cuMemcpyHtoDAsync_v2(a, pinned, 64, stream));
    c.ok("from pageable", cuMemcpyHtoDAsync_v2(a, bytes, 64, stream));
    c.ok("to pageable", cuMemcpyDtoHAsync_v2(bytes, a, 64, stream));
    c.ok("on the device", cuMemcpyDtoDAsync_v2(a, b, 64, stream));
    c.ok("by address", cuMemcpyAsync(a, b, 64, stream));
    c.ok("rows", cuMemcpy2DAsync_v2(&rows, stream));
    c.ok("fill", cuMemsetD8Async(a, 1, 64, stream));
    c.ok("fill rows", cuMemsetD2D32Async(a, 64, 1, 4, 2, stream));
    let call = cuLaunchHostFunc(stream, Some(host::mark), host::number(1));
    c.ok("a host function", call);
    let graph = end(c, stream);
    let mut want = vec![kind::MEMCPY; 6];
    want.extend([kind::MEMSET, kind::MEMSET, kind::HOST]);
    c.same("nodes", types(c, graph), want);
    let nodes = nodes(c, graph);
    c.same("the first", degrees(c, nodes[0]), (0, 1));
    c.same("the last", degrees(c, nodes[8]), (1, 0));
    let mut fill = CUDA_MEMSET_NODE_PARAMS::default();
    c.ok("the fill", cuGraphMemsetNodeGetParams(nodes[6], &mut fill));
    c.yes("its parameters", fill == fill_of(a, 1, 64));
    let mut copy = CUDA_MEMCPY3D::default();
    let mut of_copy = |what: &str, node, want: CUDA_MEMCPY3D| {
        c.ok(what, cuGraphMemcpyNodeGetParams(node, &mut copy));
        c.yes(format_args!("{what}: parameters"), copy == want);
    };
    of_copy("from pinned", nodes[0], upload_of(a, pinned, 64));
    of_copy("from pageable", nodes[1], upload_of(a, bytes, 64));
    of_copy("to pageable", nodes[2], download_of(bytes, a, 64));
    of_copy("on the device", nodes[3], copy_of(a, b, 64));
    let unified = CUDA_MEMCPY3D {
        srcMemoryType: memory_type::UNIFIED,
        dstMemoryType: memory_type::UNIFIED,
        ..copy_of(a, b, 64)
    };
    of_copy("by address", nodes[4], unified);
}

/// What does nothing becomes no node, and what fails does not harm the capture.
fn work_without_bytes(c: &Case) {
    primary(c);
    let (stream, a, b) = (independent(c), alloc(c, 64), alloc(c, 64));
    begin(c, stream);
    c.ok("copy", cuMemcpyAsync(a, b, 0, stream));
    c.ok("fill", cuMemsetD8Async(a, 1, 0, stream));
    c.ok("free null", cuMemFreeAsync(0, stream));
    let mut address = 1;
    c.ok("allocate", cuMemAllocAsync(&mut address, 0, stream));
    let result = cuMemcpyDtoDAsync_v2(a, b, 1 << 31, stream);
    c.invalid("out of bounds", result);
    let result = cuLaunchHostFunc(stream, None, std::ptr::null_mut());
    c.invalid("no host function", result);
    c.invalid("free cuMemAlloc", cuMemFreeAsync(a, stream));
    let wild = 0x7f00_0000_0000;
    c.invalid("from nowhere", cuMemcpyDtoDAsync_v2(a, wild, 64, stream));
    c.invalid("unaligned", cuMemsetD32Async(a + 1, 1, 4, stream));
    c.same("capturing", status(c, stream), 1);
    c.same("nodes", types(c, end(c, stream)), vec![]);
}

/// Captured work executes when the graph is launched, and not before.
fn a_captured_graph_executes(c: &Case) {
    primary(c);
    let (stream, a, b) = (independent(c), alloc(c, 64), alloc(c, 64));
    write(c, a, &[3; 64]);
    let mut target = [0_u8; 64];
    let bytes = target.as_mut_ptr().cast();
    begin(c, stream);
    c.ok("fill", cuMemsetD8Async(a, 9, 32, stream));
    c.ok("copy", cuMemcpyDtoDAsync_v2(b, a, 64, stream));
    c.ok(
        "to pageable memory",
        cuMemcpyDtoHAsync_v2(bytes, b, 64, stream),
    );
    let call = cuLaunchHostFunc(stream, Some(host::mark), host::number(1));
    c.ok("a host function", call);
    let graph = end(c, stream);
    wait_for(c, stream);
    c.same("nothing has executed", host::marks(), vec![]);
    c.same("not filled", read(c, a, 1), vec![3]);
    let exec = instantiate(c, graph);
    run(c, exec, stream);
    c.same("filled", target[..32].to_vec(), vec![9; 32]);
    c.same("copied", target[32..].to_vec(), vec![3; 32]);
    c.same("called", host::marks(), vec![1]);
}

/// A capture has a number and a graph, which can be used meanwhile.
fn information(c: &Case) {
    primary(c);
    let (stream, a) = (independent(c), alloc(c, 64));
    let (mut status, mut id, mut graph) = (99, 5, CUgraph(1));
    let (mut nodes, mut data, mut count) = (std::ptr::null(), std::ptr::null(), 99);
    let mut ask = |status: *mut u32| {
        cuStreamGetCaptureInfo_v3(
            stream, status, &mut id, &mut graph, &mut nodes, &mut data, &mut count,
        )
    };
    c.ok("of no capture", ask(&mut status));
    c.same("status", status, 0);
    c.invalid("status into null", ask(std::ptr::null_mut()));
    begin(c, stream);
    c.ok("of a capture", ask(&mut status));
    c.same("status", status, 1);
    c.ok("fill", cuMemsetD8Async(a, 1, 64, stream));
    c.ok("of a capture", ask(&mut status));
    c.same("count", count, 1);
    c.no("edges", data.is_null());
    let null = std::ptr::null_mut::<c_void>();
    let result = cuStreamGetCaptureInfo_v2(
        stream,
        &mut status,
        null.cast(),
        null.cast(),
        null.cast(),
        null.cast(),
    );
    c.ok("only the status", result);
    let mut number = 0;
    let result = cuStreamGetCaptureInfo(stream, &mut status, &mut number);
    c.ok("as of CUDA 10.1", result);
    c.yes("the same number", number == id);
    let mut exec = CUgraphExec::NULL;
    let result = cuGraphInstantiateWithFlags(&mut exec, graph, 0);
    c.ok("instantiate the graph", result);
    empty(c, graph, &[]);
    c.yes("the same graph", end(c, stream) == graph);
    c.same("nodes", types(c, graph), vec![kind::MEMSET, kind::EMPTY]);
}

/// What the next work depends on can be set.
fn dependencies(c: &Case) {
    primary(c);
    let (stream, a) = (independent(c), alloc(c, 64));
    let update = |nodes: &mut [CUgraphNode], flags| {
        cuStreamUpdateCaptureDependencies(stream, nodes.as_mut_ptr(), nodes.len(), flags)
    };
    c.expect("no capture", update(&mut [], 0), Code::ILLEGAL_STATE);
    begin(c, stream);
    c.ok("fill", cuMemsetD8Async(a, 1, 64, stream));
    let mut first = next_dependencies(c, stream);
    c.ok("fill", cuMemsetD8Async(a, 2, 64, stream));
    let mut second = next_dependencies(c, stream);
    c.ok("set the first", update(&mut first, 1));
    c.yes("the first", next_dependencies(c, stream) == first);
    c.ok("add the second", update(&mut second, 0));
    c.ok("add it again", update(&mut second, 0));
    c.same("both", next_dependencies(c, stream).len(), 2);
    c.invalid("flags 5", update(&mut first, 5));
    let mut foreign = [empty(c, graph(c), &[])];
    c.invalid("a foreign node", update(&mut foreign, 0));
    let null = std::ptr::null_mut();
    let result = cuStreamUpdateCaptureDependencies(stream, null, 1, 0);
    c.invalid("no array", result);
    c.ok("set none", update(&mut [], 1));
    c.same("none", next_dependencies(c, stream).len(), 0);
    c.same("nodes", types(c, end(c, stream)), vec![kind::MEMSET; 2]);
}

/// A capture can add to a graph, after nodes of it.
fn into_a_graph(c: &Case) {
    primary(c);
    let (stream, a, graph) = (independent(c), alloc(c, 64), graph(c));
    let node = empty(c, graph, &[]);
    let null = std::ptr::null();
    let result = cuStreamBeginCaptureToGraph(stream, graph, &node, null, 1, GLOBAL);
    c.ok("begin", result);
    c.yes("after the node", next_dependencies(c, stream) == [node]);
    c.ok("fill", cuMemsetD8Async(a, 1, 64, stream));
    c.yes("the same graph", end(c, stream) == graph);
    c.same("nodes", types(c, graph), vec![kind::EMPTY, kind::MEMSET]);
    c.same("edges", degrees(c, node), (0, 1));
    let nowhere = CUgraph::NULL;
    let result = cuStreamBeginCaptureToGraph(stream, nowhere, null.cast(), null, 0, GLOBAL);
    c.invalid("no graph", result);
    let mut other = CUgraph::NULL;
    c.require("create", cuGraphCreate(&mut other, 0));
    let result = cuStreamBeginCaptureToGraph(stream, other, &node, null, 1, GLOBAL);
    c.invalid("a foreign node", result);
    let result = cuStreamBeginCaptureToGraph(stream, graph, null.cast(), null, 0, GLOBAL);
    c.ok("begin", result);
    let result = cuGraphDestroy(graph);
    c.expect("destroy the graph", result, Code::ILLEGAL_STATE);
    let result = cuStreamSynchronize(stream);
    c.expect("wait", result, Code::STREAM_CAPTURE_UNSUPPORTED);
    let result = cuStreamEndCapture(stream, &mut other);
    c.expect("end", result, Code::STREAM_CAPTURE_INVALIDATED);
    let mut count = 0;
    let result = cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count);
    c.invalid("the graph is destroyed", result);
}

/// External records and waits become nodes. A wait for an event of the outside is an error otherwise.
fn events_of_the_outside(c: &Case) {
    primary(c);
    let (stream, other) = (independent(c), independent(c));
    let (done, mark, never) = (event(c, 0), event(c, 0), event(c, 0));
    c.require("record", cuEventRecord(done, other));
    begin(c, stream);
    let result = cuEventRecordWithFlags(mark, stream, event_record_flags::EXTERNAL);
    c.ok("an external record", result);
    let result = cuStreamWaitEvent(stream, done, event_wait_flags::EXTERNAL);
    c.ok("an external wait", result);
    c.ok(
        "an event without record",
        cuStreamWaitEvent(stream, never, 0),
    );
    let graph = end(c, stream);
    let want = vec![kind::EVENT_RECORD, kind::WAIT_EVENT];
    c.same("nodes", types(c, graph), want);
    run(c, instantiate(c, graph), stream);
    c.ok("the event is recorded", cuEventQuery(mark));
    begin(c, stream);
    let result = cuStreamWaitEvent(stream, done, 0);
    c.expect("a wait", result, Code::STREAM_CAPTURE_ISOLATION);
    c.same("status", status(c, stream), 2);
}

/// Stream-ordered memory is allocated and freed when the graph is launched.
fn captured_memory(c: &Case) {
    primary(c);
    let (stream, target) = (independent(c), pinned(c, 64));
    let outside = alloc_async(c, 64, stream);
    begin(c, stream);
    let memory = alloc_async(c, 1000, stream);
    c.no("an address", memory == 0);
    c.ok("fill", cuMemsetD8Async(memory, 6, 64, stream));
    c.ok("copy", cuMemcpyDtoHAsync_v2(target, memory, 64, stream));
    c.invalid(
        "free memory of the outside",
        cuMemFreeAsync(outside, stream),
    );
    c.ok("free", cuMemFreeAsync(memory, stream));
    c.invalid("free twice", cuMemFreeAsync(memory, stream));
    let graph = end(c, stream);
    let want = vec![kind::MEM_ALLOC, kind::MEMSET, kind::MEMCPY, kind::MEM_FREE];
    c.same("nodes", types(c, graph), want);
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS::default();
    let result = cuGraphMemAllocNodeGetParams(nodes(c, graph)[0], &mut params);
    c.ok("the allocation", result);
    c.same("bytes", params.bytesize, 1000);
    c.yes("address", params.dptr == memory);
    let exec = instantiate(c, graph);
    run(c, exec, stream);
    run(c, exec, stream);
    c.same("executed", peek(target as u64 + 63), 6);
}

/// An invalid capture permits nothing but its end, and the stream works again after it.
fn after_the_end(c: &Case) {
    primary(c);
    let (stream, a) = (independent(c), alloc(c, 64));
    let (mark, mut graph) = (event(c, 0), CUgraph(1));
    let (invalid, unsupported) = (
        Code::STREAM_CAPTURE_INVALIDATED,
        Code::STREAM_CAPTURE_UNSUPPORTED,
    );
    begin(c, stream);
    c.expect("wait", cuStreamSynchronize(stream), unsupported);
    c.same("status", status(c, stream), 2);
    c.expect("work", cuMemsetD8Async(a, 1, 8, stream), invalid);
    c.expect("record", cuEventRecord(mark, stream), invalid);
    c.expect("wait", cuStreamSynchronize(stream), unsupported);
    c.expect("query", cuStreamQuery(stream), unsupported);
    let null = std::ptr::null_mut();
    let result = cuStreamUpdateCaptureDependencies(stream, null, 0, 1);
    c.expect("dependencies", result, invalid);
    let result = cuStreamBeginCapture_v2(stream, RELAXED);
    c.expect("begin", result, Code::ILLEGAL_STATE);
    c.expect("end", cuStreamEndCapture(stream, &mut graph), invalid);
    c.yes("no graph", graph.is_null());
    let result = cuStreamEndCapture(stream, &mut graph);
    c.expect("end again", result, Code::ILLEGAL_STATE);
    c.ok("work", cuMemsetD8Async(a, 1, 8, stream));
    c.ok("wait", cuStreamSynchronize(stream));
}
