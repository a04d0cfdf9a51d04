//! Handles used after their end. The driver does not check them: a real one ends the process with
//! a fault, the simulated one ends it with a message. So these cases state one thing: such a call
//! never succeeds. Each has a process to itself, and makes one such call.

use crate::case::Case;
use crate::cases::pools;
use crate::driver::*;
use crate::tools::*;

cases! {"dead_handles":
    stream_synchronise,
    stream_query,
    stream_destroy,
    stream_fill,
    event_query,
    event_synchronise,
    event_destroy,
    event_record,
    event_wait,
    query_stream_of_a_destroyed_context,
    destroy_stream_of_a_destroyed_context,
    synchronise_stream_of_a_reset_context,
    pool_attribute,
    pool_trim,
    pool_allocate,
    pool_destroy,
}

fn dead_stream(c: &Case) -> CUstream {
    primary(c);
    let stream = stream(c, 0);
    c.require("cuStreamDestroy", cuStreamDestroy_v2(stream));
    stream
}

fn dead_event(c: &Case) -> CUevent {
    primary(c);
    let event = event(c, 0);
    c.require("cuEventDestroy", cuEventDestroy_v2(event));
    event
}

/// What a real driver does with a destroyed pool is still to be seen: the cases about pools state
/// what it should do, and have run on the simulated GPU alone.
fn dead_pool(c: &Case) -> CUmemoryPool {
    primary(c);
    let pool = pools::pool(c);
    c.require("cuMemPoolDestroy", cuMemPoolDestroy(pool));
    pool
}

fn stream_of_a_destroyed_context(c: &Case) -> CUstream {
    primary(c);
    let context = create(c);
    let stream = stream(c, 0);
    c.require("cuCtxDestroy", cuCtxDestroy_v2(context));
    stream
}

/// A destroyed stream cannot be waited for.
fn stream_synchronise(c: &Case) {
    let stream = dead_stream(c);
    c.never_success("wait for a destroyed stream", || {
        cuStreamSynchronize(stream)
    });
}

/// A destroyed stream cannot be queried.
fn stream_query(c: &Case) {
    let stream = dead_stream(c);
    c.never_success("query a destroyed stream", || cuStreamQuery(stream));
}

/// A destroyed stream cannot be destroyed.
fn stream_destroy(c: &Case) {
    let stream = dead_stream(c);
    c.never_success("destroy a destroyed stream", || cuStreamDestroy_v2(stream));
}

/// A destroyed stream takes no work.
fn stream_fill(c: &Case) {
    let stream = dead_stream(c);
    let ptr = alloc(c, 16);
    c.never_success("fill on a destroyed stream", || {
        cuMemsetD8Async(ptr, 1, 16, stream)
    });
}

/// A destroyed event cannot be queried.
fn event_query(c: &Case) {
    let event = dead_event(c);
    c.never_success("query a destroyed event", || cuEventQuery(event));
}

/// A destroyed event cannot be waited for.
fn event_synchronise(c: &Case) {
    let event = dead_event(c);
    c.never_success("wait for a destroyed event", || cuEventSynchronize(event));
}

/// A destroyed event cannot be destroyed.
fn event_destroy(c: &Case) {
    let event = dead_event(c);
    c.never_success("destroy a destroyed event", || cuEventDestroy_v2(event));
}

/// A destroyed event cannot be recorded.
fn event_record(c: &Case) {
    let event = dead_event(c);
    c.never_success("record a destroyed event", || {
        cuEventRecord(event, CUstream::NULL)
    });
}

/// No stream can wait for a destroyed event.
fn event_wait(c: &Case) {
    let event = dead_event(c);
    let stream = stream(c, 0);
    c.never_success("let a stream wait for a destroyed event", || {
        cuStreamWaitEvent(stream, event, 0)
    });
}

/// A stream goes with its context: it cannot be queried.
fn query_stream_of_a_destroyed_context(c: &Case) {
    let stream = stream_of_a_destroyed_context(c);
    c.never_success("query a stream of a destroyed context", || {
        cuStreamQuery(stream)
    });
}

/// A stream goes with its context: it cannot be destroyed.
fn destroy_stream_of_a_destroyed_context(c: &Case) {
    let stream = stream_of_a_destroyed_context(c);
    c.never_success("destroy a stream of a destroyed context", || {
        cuStreamDestroy_v2(stream)
    });
}

/// A stream goes with its context, also when that is reset.
fn synchronise_stream_of_a_reset_context(c: &Case) {
    primary(c);
    let stream = stream(c, 0);
    c.require("reset", cuDevicePrimaryCtxReset_v2(0));
    c.never_success("wait for a stream of a reset context", || {
        cuStreamSynchronize(stream)
    });
}

/// A destroyed pool has no attributes.
fn pool_attribute(c: &Case) {
    let pool = dead_pool(c);
    let mut value = 0_u64;
    c.never_success("ask a destroyed pool what it holds", || {
        let held = pool_attribute::RESERVED_MEM_CURRENT;
        cuMemPoolGetAttribute(pool, held, (&raw mut value).cast())
    });
}

/// A destroyed pool cannot be trimmed.
fn pool_trim(c: &Case) {
    let pool = dead_pool(c);
    c.never_success("trim a destroyed pool", || cuMemPoolTrimTo(pool, 0));
}

/// A destroyed pool gives no memory.
fn pool_allocate(c: &Case) {
    let pool = dead_pool(c);
    let (stream, mut ptr) = (stream(c, 0), 0);
    c.never_success("allocate from a destroyed pool", || {
        cuMemAllocFromPoolAsync(&mut ptr, 16, pool, stream)
    });
}

/// A destroyed pool cannot be destroyed.
fn pool_destroy(c: &Case) {
    let pool = dead_pool(c);
    c.never_success("destroy a destroyed pool", || cuMemPoolDestroy(pool));
}
