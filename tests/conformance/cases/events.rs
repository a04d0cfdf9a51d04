//! Events: making them, asking them, times.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::host::{self, Gate};
use crate::tools::*;

cases! {"events":
    flags_of_events,
    never_recorded,
    query_before_and_after,
    record_again,
    null_event,
    wrong_flags,
    elapsed_time,
    elapsed_time_without_record,
    elapsed_time_without_timing,
    elapsed_time_while_pending,
    wait_on_another_thread,
}

/// Interprocess events need their timing switched off; unknown flags fail.
fn flags_of_events(c: &Case) {
    use flags::{EVENT_BLOCKING_SYNC, EVENT_DISABLE_TIMING, EVENT_INTERPROCESS};
    primary(c);
    let mut event = CUevent::NULL;
    c.ok("no flags", cuEventCreate(&mut event, 0));
    c.ok("blocking", cuEventCreate(&mut event, EVENT_BLOCKING_SYNC));
    c.ok(
        "without timing",
        cuEventCreate(&mut event, EVENT_DISABLE_TIMING),
    );
    c.invalid(
        "interprocess with timing",
        cuEventCreate(&mut event, EVENT_INTERPROCESS),
    );
    let both = EVENT_INTERPROCESS | EVENT_DISABLE_TIMING;
    c.ok(
        "interprocess without timing",
        cuEventCreate(&mut event, both),
    );
    c.invalid("flag 80", cuEventCreate(&mut event, 0x80));
    c.invalid("into null", cuEventCreate(std::ptr::null_mut(), 0));
}

/// An event that was never recorded counts as done.
fn never_recorded(c: &Case) {
    primary(c);
    let (event, stream) = (event(c, 0), stream(c, 0));
    c.ok("query", cuEventQuery(event));
    c.ok("wait", cuEventSynchronize(event));
    c.ok("let a stream wait", cuStreamWaitEvent(stream, event, 0));
    c.ok("the stream is done", cuStreamSynchronize(stream));
    c.ok("destroy", cuEventDestroy_v2(event));
}

/// An event is NOT_READY until the stream got to it.
fn query_before_and_after(c: &Case) {
    primary(c);
    let (event, stream) = (event(c, 0), independent(c));
    let (gate, result) = Gate::close(stream);
    c.require("cuLaunchHostFunc", result);
    c.ok("record", cuEventRecord(event, stream));
    c.expect("query", cuEventQuery(event), Code::NOT_READY);
    gate.open();
    c.ok("wait", cuEventSynchronize(event));
    c.ok("query then", cuEventQuery(event));
    c.ok("query again", cuEventQuery(event));
}

/// An event that is recorded again is about the new place.
fn record_again(c: &Case) {
    primary(c);
    let (event, stream) = (event(c, 0), independent(c));
    c.ok("record", cuEventRecord(event, stream));
    c.ok("wait", cuEventSynchronize(event));
    let (gate, result) = Gate::close(stream);
    c.require("cuLaunchHostFunc", result);
    c.ok("record again", cuEventRecord(event, stream));
    c.expect("query", cuEventQuery(event), Code::NOT_READY);
    gate.open();
    c.ok("wait", cuEventSynchronize(event));
}

/// Null is not an event.
fn null_event(c: &Case) {
    primary(c);
    let (none, stream) = (CUevent::NULL, stream(c, 0));
    let want = Code::INVALID_HANDLE;
    c.expect("record", cuEventRecord(none, stream), want);
    c.expect("query", cuEventQuery(none), want);
    c.expect("wait", cuEventSynchronize(none), want);
    c.expect(
        "let a stream wait",
        cuStreamWaitEvent(stream, none, 0),
        want,
    );
    c.expect("destroy", cuEventDestroy_v2(none), want);
}

/// Flags that do not exist fail where flags are taken.
fn wrong_flags(c: &Case) {
    primary(c);
    let (event, stream) = (event(c, 0), stream(c, 0));
    c.invalid(
        "let a stream wait with flags 9",
        cuStreamWaitEvent(stream, event, 9),
    );
    c.invalid(
        "record with flags 9",
        cuEventRecordWithFlags(event, stream, 9),
    );
    c.ok(
        "record with flags 0",
        cuEventRecordWithFlags(event, stream, 0),
    );
    c.ok("wait", cuEventSynchronize(event));
}

/// The time between two events is the time between them on the device.
fn elapsed_time(c: &Case) {
    primary(c);
    let (start, end, stream) = (event(c, 0), event(c, 0), independent(c));
    c.ok("record the start", cuEventRecord(start, stream));
    let result = cuLaunchHostFunc(stream, Some(host::sleeper), std::ptr::null_mut());
    c.ok("sleep 300 ms on the stream", result);
    c.ok("record the end", cuEventRecord(end, stream));
    c.ok("wait for the end", cuEventSynchronize(end));
    let (mut there, mut back, mut none) = (0.0, 0.0, 1.0);
    c.ok(
        "from start to end",
        cuEventElapsedTime(&mut there, start, end),
    );
    c.yes("at least 290 ms", there >= 290.0);
    c.yes("less than 3 s", there < 3000.0);
    c.ok(
        "from end to start",
        cuEventElapsedTime(&mut back, end, start),
    );
    c.yes("the same, negative", back == -there);
    c.ok(
        "from start to start",
        cuEventElapsedTime(&mut none, start, start),
    );
    c.same("no time", none, 0.0);
}

/// There is no time to an event that was never recorded.
fn elapsed_time_without_record(c: &Case) {
    primary(c);
    let (recorded, fresh, stream) = (event(c, 0), event(c, 0), stream(c, 0));
    c.require("record", cuEventRecord(recorded, stream));
    c.require("wait", cuEventSynchronize(recorded));
    let mut time = 0.0;
    let want = Code::INVALID_HANDLE;
    c.expect(
        "fresh to fresh",
        cuEventElapsedTime(&mut time, fresh, fresh),
        want,
    );
    c.expect(
        "recorded to fresh",
        cuEventElapsedTime(&mut time, recorded, fresh),
        want,
    );
    c.expect(
        "fresh to recorded",
        cuEventElapsedTime(&mut time, fresh, recorded),
        want,
    );
    let result = cuEventElapsedTime(std::ptr::null_mut(), recorded, recorded);
    c.expect("a time into null", result, want);
}

/// There is no time to an event whose timing is switched off.
fn elapsed_time_without_timing(c: &Case) {
    primary(c);
    let (timed, stream) = (event(c, 0), stream(c, 0));
    let plain = event(c, flags::EVENT_DISABLE_TIMING);
    for event in [timed, plain] {
        c.require("record", cuEventRecord(event, stream));
        c.require("wait", cuEventSynchronize(event));
    }
    let mut time = 0.0;
    let want = Code::INVALID_HANDLE;
    c.expect(
        "timed to untimed",
        cuEventElapsedTime(&mut time, timed, plain),
        want,
    );
    c.expect(
        "untimed to timed",
        cuEventElapsedTime(&mut time, plain, timed),
        want,
    );
}

/// While an event is not ready, neither is its time.
fn elapsed_time_while_pending(c: &Case) {
    primary(c);
    let (start, end, stream) = (event(c, 0), event(c, 0), independent(c));
    c.require("record", cuEventRecord(start, stream));
    c.require("wait", cuEventSynchronize(start));
    let (gate, result) = Gate::close(stream);
    c.require("cuLaunchHostFunc", result);
    c.ok("record the end, held up", cuEventRecord(end, stream));
    let mut time = 0.0;
    c.expect(
        "time",
        cuEventElapsedTime(&mut time, start, end),
        Code::NOT_READY,
    );
    gate.open();
    c.ok("wait for the end", cuEventSynchronize(end));
    c.ok("time then", cuEventElapsedTime(&mut time, start, end));
    c.yes("it is not negative", time >= 0.0);
}

/// An event can be waited for on any thread, with the context current or not.
fn wait_on_another_thread(c: &Case) {
    let context = primary(c);
    let (event, stream) = (event(c, 0), independent(c));
    let (gate, result) = Gate::close(stream);
    c.require("cuLaunchHostFunc", result);
    c.require("record", cuEventRecord(event, stream));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| (cuCtxSetCurrent(context), cuEventSynchronize(event)));
        c.expect("query here", cuEventQuery(event), Code::NOT_READY);
        gate.open();
        match waiter.join() {
            Ok((set, waited)) => {
                c.ok("set current there", set);
                c.ok("wait there", waited);
            }
            Err(_) => c.stop("the other thread panicked"),
        }
    });
    c.ok("query here then", cuEventQuery(event));
}
