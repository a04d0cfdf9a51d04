//! In what order work on different streams runs.

use std::time::Duration;

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::host::{self, Gate};
use crate::tools::*;

cases! {"order":
    one_stream,
    independent_streams,
    legacy_stream_waits_for_blocking_streams,
    blocking_streams_wait_for_the_legacy_stream,
    non_blocking_streams_do_not_wait,
    per_thread_stream,
    per_thread_streams_are_two,
    wait_for_event,
    wait_takes_the_last_record,
    event_destroyed_while_pending,
    in_flight_until_waited_for,
}

const PAUSE: Duration = Duration::from_millis(50);

fn close(c: &Case, stream: CUstream) -> Gate {
    let (gate, result) = Gate::close(stream);
    c.require("cuLaunchHostFunc", result);
    gate
}

/// Work on one stream runs in the order in which it was put there.
fn one_stream(c: &Case) {
    primary(c);
    let (stream, ptr) = (independent(c), alloc(c, MIB));
    let p = pinned(c, 200);
    for value in 0..200_u8 {
        c.require("fill", cuMemsetD8Async(ptr, value, MIB, stream));
        let target = p.wrapping_byte_add(usize::from(value));
        c.require("copy", cuMemcpyDtoHAsync_v2(target, ptr + 77, 1, stream));
    }
    c.ok("wait", cuStreamSynchronize(stream));
    let address = p.addr() as u64;
    let right = (0..200_u8).all(|value| peek(address + u64::from(value)) == value);
    c.yes("every copy saw the fill before it and none after", right);
}

/// A stream that is held up holds no other one up.
fn independent_streams(c: &Case) {
    primary(c);
    let (held, other, ptr) = (independent(c), independent(c), alloc(c, MIB));
    let gate = close(c, held);
    c.ok(
        "fill on another stream",
        cuMemsetD8Async(ptr, 5, MIB, other),
    );
    c.ok("wait for it", cuStreamSynchronize(other));
    c.expect(
        "the first is still held up",
        cuStreamQuery(held),
        Code::NOT_READY,
    );
    gate.open();
    c.ok("wait for the first", cuStreamSynchronize(held));
}

/// Work on the legacy default stream waits for what is on blocking streams.
fn legacy_stream_waits_for_blocking_streams(c: &Case) {
    primary(c);
    let (blocking, ptr) = (stream(c, 0), alloc(c, 4096));
    let gate = close(c, blocking);
    c.expect("query null", cuStreamQuery(CUstream::NULL), Code::NOT_READY);
    c.ok("fill on null", cuMemsetD8Async(ptr, 1, 16, CUstream::NULL));
    c.expect(
        "query null then",
        cuStreamQuery(CUstream::NULL),
        Code::NOT_READY,
    );
    c.ok(
        "fill on the legacy stream by name",
        cuMemsetD8Async(ptr, 2, 16, CUstream::LEGACY),
    );
    gate.open();
    c.ok("wait for null", cuStreamSynchronize(CUstream::NULL));
    c.ok("the blocking stream is done too", cuStreamQuery(blocking));
    c.same("what is in it", read(c, ptr, 1), vec![2]);
}

/// Work on blocking streams waits for what is on the legacy default stream.
fn blocking_streams_wait_for_the_legacy_stream(c: &Case) {
    primary(c);
    let (first, second, ptr) = (stream(c, 0), stream(c, 0), alloc(c, 4096));
    let gate = close(c, first);
    c.ok("fill on null", cuMemsetD8Async(ptr, 1, 16, CUstream::NULL));
    c.ok(
        "fill on another blocking stream",
        cuMemsetD8Async(ptr, 2, 16, second),
    );
    std::thread::sleep(PAUSE);
    c.expect("query that one", cuStreamQuery(second), Code::NOT_READY);
    gate.open();
    c.ok("wait for the context", cuCtxSynchronize());
    c.ok("query that one then", cuStreamQuery(second));
    c.same("what is in it", read(c, ptr, 1), vec![2]);
}

/// Non-blocking streams and the legacy default stream do not wait for each other.
fn non_blocking_streams_do_not_wait(c: &Case) {
    primary(c);
    let (blocking, other, ptr) = (stream(c, 0), independent(c), alloc(c, 4096));
    let gate = close(c, blocking);
    c.ok("fill on null", cuMemsetD8Async(ptr, 1, 16, CUstream::NULL));
    c.ok(
        "fill on a non-blocking stream",
        cuMemsetD8Async(ptr + 64, 2, 16, other),
    );
    c.ok("wait for that one", cuStreamSynchronize(other));
    c.expect("query null", cuStreamQuery(CUstream::NULL), Code::NOT_READY);
    gate.open();
    synchronize(c);
    let gate = close(c, other);
    c.ok(
        "query null while the other one is held up",
        cuStreamQuery(CUstream::NULL),
    );
    gate.open();
    synchronize(c);
}

/// The thread's own default stream is a blocking stream.
fn per_thread_stream(c: &Case) {
    primary(c);
    let (blocking, ptr) = (stream(c, 0), alloc(c, 4096));
    let gate = close(c, blocking);
    c.ok("fill on null", cuMemsetD8Async(ptr, 1, 16, CUstream::NULL));
    let own = CUstream::PER_THREAD;
    c.ok(
        "fill on the thread's own stream",
        cuMemsetD8Async(ptr, 2, 16, own),
    );
    std::thread::sleep(PAUSE);
    c.expect("query it", cuStreamQuery(own), Code::NOT_READY);
    gate.open();
    c.ok("wait for it", cuStreamSynchronize(own));
    c.same("what is in it", read(c, ptr, 1), vec![2]);
}

/// Two threads' own default streams are two streams.
fn per_thread_streams_are_two(c: &Case) {
    let context = primary(c);
    let gate = close(c, CUstream::PER_THREAD);
    host::on_another_thread(|| {
        c.require("cuCtxSetCurrent", cuCtxSetCurrent(context));
        c.ok(
            "query the other thread's",
            cuStreamQuery(CUstream::PER_THREAD),
        );
    });
    let result = cuStreamQuery(CUstream::PER_THREAD);
    c.expect("query this thread's", result, Code::NOT_READY);
    gate.open();
    c.ok(
        "wait for this thread's",
        cuStreamSynchronize(CUstream::PER_THREAD),
    );
}

/// A stream waits for an event that is recorded on another one.
fn wait_for_event(c: &Case) {
    primary(c);
    let (first, second, event) = (independent(c), independent(c), event(c, 0));
    let ptr = alloc(c, 4096);
    let gate = close(c, first);
    c.ok(
        "fill on the first stream",
        cuMemsetD8Async(ptr, 1, 4096, first),
    );
    c.ok("record", cuEventRecord(event, first));
    c.ok(
        "let the second one wait",
        cuStreamWaitEvent(second, event, 0),
    );
    c.ok(
        "fill on the second stream",
        cuMemsetD8Async(ptr, 2, 16, second),
    );
    std::thread::sleep(PAUSE);
    c.expect("query the second", cuStreamQuery(second), Code::NOT_READY);
    gate.open();
    c.ok("wait for the second", cuStreamSynchronize(second));
    c.ok("the first is done too", cuEventQuery(event));
    c.same("the second came later", read(c, ptr, 1), vec![2]);
}

/// A wait is for what was recorded when it was asked for; a later record does not change it.
fn wait_takes_the_last_record(c: &Case) {
    primary(c);
    let (first, second, event) = (independent(c), independent(c), event(c, 0));
    c.ok(
        "wait for an event never recorded",
        cuStreamWaitEvent(second, event, 0),
    );
    c.ok("that is not a wait at all", cuStreamSynchronize(second));
    c.require("record", cuEventRecord(event, first));
    c.ok("wait for what is done", cuStreamWaitEvent(second, event, 0));
    let gate = close(c, first);
    c.ok("record again, held up", cuEventRecord(event, first));
    c.ok("the wait does not see it", cuStreamSynchronize(second));
    c.expect("the event does", cuEventQuery(event), Code::NOT_READY);
    gate.open();
    c.ok("wait for the event", cuEventSynchronize(event));
}

/// An event can be destroyed while a stream waits for it; the wait goes on.
fn event_destroyed_while_pending(c: &Case) {
    primary(c);
    let (first, second, event) = (independent(c), independent(c), event(c, 0));
    let gate = close(c, first);
    c.ok("record", cuEventRecord(event, first));
    c.ok(
        "let the second one wait",
        cuStreamWaitEvent(second, event, 0),
    );
    c.expect("query the second", cuStreamQuery(second), Code::NOT_READY);
    c.ok("destroy the event", cuEventDestroy_v2(event));
    std::thread::sleep(PAUSE);
    c.expect(
        "query the second then",
        cuStreamQuery(second),
        Code::NOT_READY,
    );
    gate.open();
    c.ok("wait for the second", cuStreamSynchronize(second));
    c.ok("wait for the context", cuCtxSynchronize());
}

/// A copy to pinned memory is in flight until it is waited for.
fn in_flight_until_waited_for(c: &Case) {
    primary(c);
    let (stream, ptr, p) = (independent(c), alloc(c, 4096), pinned(c, 4096));
    let address = p.addr() as u64;
    c.require("fill", cuMemsetD8_v2(ptr, 8, 4096));
    synchronize(c);
    poke(address, 1);
    let gate = close(c, stream);
    c.ok("copy", cuMemcpyDtoHAsync_v2(p, ptr, 4096, stream));
    c.same("the host still sees", peek(address), 1);
    gate.open();
    c.ok("wait", cuStreamSynchronize(stream));
    c.same("the host then sees", peek(address), 8);
}
