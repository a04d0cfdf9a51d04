//! Captures of several streams, and what ends them.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::graphs::*;
use crate::tools::*;
use graph_node_type as kind;
use stream_capture_mode::GLOBAL;

cases! {"capture_forks":
    fork_and_join,
    forks_that_do_not_join,
    the_end_of_a_fork,
    captures_do_not_mix,
    events_of_an_ended_capture,
    destroyed_streams,
}

/// A stream that waits for a captured event takes part in the capture, until the origin waits for it.
fn fork_and_join(c: &Case) {
    primary(c);
    let (one, two, a) = (independent(c), independent(c), alloc(c, 256));
    let (fork, join) = (event(c, 0), event(c, 0));
    begin(c, one);
    c.ok("first", cuMemsetD8Async(a, 1, 64, one));
    c.ok("record", cuEventRecord(fork, one));
    c.ok("wait", cuStreamWaitEvent(two, fork, 0));
    c.same("the other stream captures", status(c, two), 1);
    let same = next_dependencies(c, one) == next_dependencies(c, two);
    c.yes("from the same node", same);
    c.ok("on the other", cuMemsetD8Async(a + 64, 2, 64, two));
    c.ok("on the origin", cuMemsetD8Async(a + 128, 3, 64, one));
    c.ok("record", cuEventRecord(join, two));
    c.ok("wait", cuStreamWaitEvent(one, join, 0));
    c.same("two branches", next_dependencies(c, one).len(), 2);
    let result = cuMemcpyDtoDAsync_v2(a + 192, a + 64, 64, one);
    c.ok("after both", result);
    let graph = end(c, one);
    c.same("the other stream ends too", status(c, two), 0);
    let nodes = nodes(c, graph);
    let found: Vec<_> = nodes.iter().map(|node| degrees(c, *node)).collect();
    c.same("edges", found, vec![(0, 2), (1, 1), (1, 1), (2, 0)]);
    run(c, instantiate(c, graph), one);
    let bytes = read(c, a, 256);
    let found = [bytes[0], bytes[64], bytes[128], bytes[192]];
    c.same("bytes", found, [1, 2, 3, 2]);
}

/// Work that the origin does not wait for is lost, with the graph.
fn forks_that_do_not_join(c: &Case) {
    primary(c);
    let (one, two, a) = (independent(c), independent(c), alloc(c, 64));
    let (fork, mut graph) = (event(c, 0), CUgraph(1));
    begin(c, one);
    c.ok("first", cuMemsetD8Async(a, 1, 64, one));
    c.ok("record", cuEventRecord(fork, one));
    c.ok("wait", cuStreamWaitEvent(two, fork, 0));
    c.ok("on the other", cuMemsetD8Async(a, 2, 64, two));
    let result = cuStreamEndCapture(one, &mut graph);
    c.expect("end", result, Code::STREAM_CAPTURE_UNJOINED);
    c.yes("no graph", graph.is_null());
    c.same("the other stream", status(c, two), 0);
    c.invalid("query the event", cuEventQuery(fork));
    c.invalid("wait for the event", cuStreamWaitEvent(two, fork, 0));
    begin(c, one);
    c.ok("first", cuMemsetD8Async(a, 1, 64, one));
    c.ok("record", cuEventRecord(fork, one));
    c.ok("wait", cuStreamWaitEvent(two, fork, 0));
    let graph = end(c, one);
    c.same("nothing to join", types(c, graph), vec![kind::MEMSET]);
    c.same("the other stream", status(c, two), 0);
}

/// A capture does not end on another stream, and is invalid if one tries.
fn the_end_of_a_fork(c: &Case) {
    primary(c);
    let (one, two) = (independent(c), independent(c));
    let (fork, mut graph) = (event(c, 0), CUgraph(1));
    begin(c, one);
    c.ok("record", cuEventRecord(fork, one));
    c.ok("wait", cuStreamWaitEvent(two, fork, 0));
    let result = cuStreamEndCapture(two, &mut graph);
    c.expect("end", result, Code::STREAM_CAPTURE_UNMATCHED);
    c.same("status", status(c, one), 2);
    let result = cuStreamEndCapture(one, &mut graph);
    c.expect("end", result, Code::STREAM_CAPTURE_INVALIDATED);
    c.yes("no graph", graph.is_null());
    c.same("status", status(c, two), 0);
}

/// Two captures cannot be joined.
fn captures_do_not_mix(c: &Case) {
    primary(c);
    let (one, two, a) = (independent(c), independent(c), alloc(c, 64));
    let (mark, mut graph) = (event(c, 0), CUgraph(1));
    begin(c, one);
    begin(c, two);
    c.ok("record", cuEventRecord(mark, one));
    let result = cuStreamWaitEvent(two, mark, 0);
    c.expect("wait", result, Code::STREAM_CAPTURE_MERGE);
    for stream in [one, two] {
        c.same("status", status(c, stream), 2);
        let result = cuMemsetD8Async(a, 1, 8, stream);
        c.expect("work", result, Code::STREAM_CAPTURE_INVALIDATED);
        let result = cuStreamEndCapture(stream, &mut graph);
        c.expect("end", result, Code::STREAM_CAPTURE_INVALIDATED);
    }
}

/// An event that was captured stands for nothing when the capture has ended, until it is recorded again.
fn events_of_an_ended_capture(c: &Case) {
    primary(c);
    let (stream, other, mark) = (independent(c), independent(c), event(c, 0));
    begin(c, stream);
    c.ok("record", cuEventRecord(mark, stream));
    end(c, stream);
    c.invalid("query", cuEventQuery(mark));
    c.invalid("wait", cuEventSynchronize(mark));
    c.invalid("wait on a stream", cuStreamWaitEvent(other, mark, 0));
    let mut elapsed = 0.0;
    c.invalid("time", cuEventElapsedTime(&mut elapsed, mark, mark));
    begin(c, stream);
    c.invalid("wait in a capture", cuStreamWaitEvent(stream, mark, 0));
    c.same("status", status(c, stream), 2);
    c.invalid("wait on a stream", cuStreamWaitEvent(other, mark, 0));
    let result = cuStreamEndCapture(stream, &mut CUgraph(1));
    c.expect("end", result, Code::STREAM_CAPTURE_INVALIDATED);
    c.ok("record", cuEventRecord(mark, stream));
    c.ok("wait", cuEventSynchronize(mark));
}

/// A capture is destroyed with the stream on which it began.
fn destroyed_streams(c: &Case) {
    primary(c);
    let (one, two, mark) = (independent(c), independent(c), event(c, 0));
    c.ok("begin", cuStreamBeginCapture_v2(one, GLOBAL));
    c.ok("destroy", cuStreamDestroy_v2(one));
    c.ok("nothing is captured", cuMemAlloc_v2(&mut 0, 64));
    let one = independent(c);
    begin(c, one);
    c.ok("record", cuEventRecord(mark, one));
    c.ok("wait", cuStreamWaitEvent(two, mark, 0));
    c.ok("destroy another stream", cuStreamDestroy_v2(two));
    c.same("status", status(c, one), 1);
    end(c, one);
}
