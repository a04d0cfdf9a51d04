//! Events of all the work of a context.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::host::Gate;
use crate::tools::*;

cases! {"context_events":
    recorded_for_a_context,
    a_context_waits,
    errors,
}

/// The event is complete when the work of every stream of the context is.
fn recorded_for_a_context(c: &Case) {
    start(c);
    let context = create(c);
    let (stream, event) = (independent(c), event(c, 0));
    let (gate, result) = Gate::close(stream);
    c.ok("hold the stream", result);
    c.ok("record", cuCtxRecordEvent(context, event));
    c.expect("while held", cuEventQuery(event), Code::NOT_READY);
    gate.open();
    c.ok("wait", cuEventSynchronize(event));
    c.ok("the stream is idle", cuStreamQuery(stream));
}

/// Work that is submitted to any stream of the context later waits for the event.
fn a_context_waits(c: &Case) {
    start(c);
    let context = create(c);
    let (held, later) = (independent(c), independent(c));
    let event = event(c, 0);
    let (gate, result) = Gate::close(held);
    c.ok("hold a stream", result);
    c.ok("record", cuEventRecord(event, held));
    c.ok("make the context wait", cuCtxWaitEvent(context, event));
    let ptr = alloc(c, 16);
    c.ok("fill", cuMemsetD8Async(ptr, 1, 16, later));
    c.expect("while held", cuStreamQuery(later), Code::NOT_READY);
    gate.open();
    c.ok("wait", cuStreamSynchronize(later));
}

/// A context must be named, and the event must be of it.
fn errors(c: &Case) {
    start(c);
    let first = create(c);
    let of_first = event(c, 0);
    let second = create(c);
    let null = CUcontext::NULL;
    let want = Code::INVALID_CONTEXT;
    c.expect("record, null", cuCtxRecordEvent(null, of_first), want);
    c.expect("wait, null", cuCtxWaitEvent(null, of_first), want);
    let want = Code::INVALID_HANDLE;
    let result = cuCtxRecordEvent(first, CUevent::NULL);
    c.expect("record, no event", result, want);
    let result = cuCtxWaitEvent(first, CUevent::NULL);
    c.expect("wait, no event", result, want);
    let result = cuCtxRecordEvent(second, of_first);
    c.expect("record, event of another context", result, want);
    c.ok("wait, event of another", cuCtxWaitEvent(second, of_first));
    c.ok("record", cuCtxRecordEvent(first, of_first));
}
