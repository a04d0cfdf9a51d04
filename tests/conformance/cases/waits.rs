//! Which calls wait for work in flight: a host function on a non-blocking stream. It takes 300 ms where the call is to wait
//! for it, and as long as the call where it is not.

use crate::case::Case;
use crate::driver::*;
use crate::host::{Gate, put_sleeper, waited};
use crate::tools::*;

cases! {"waits":
    frees,
    allocations,
    synchronous_copies_and_fills,
    legacy_stream_copies,
    asynchronous_copies_and_fills,
    host_memory,
    managed_memory,
    stream_ordered_memory,
    streams,
    questions,
    context_destroy,
    primary_reset,
    primary_release,
    work_of_another_context,
    frees_beside_another_context,
    destroy_beside_another_context,
    reset_beside_another_context,
    release_beside_another_context,
}

const WAITS: &str = "waits";
const GOES_ON: &str = "does not wait";

/// Puts a host function on `stream`, calls, and expects the call to wait for it or not.
fn check(
    c: &Case,
    stream: CUstream,
    what: &str,
    want: &'static str,
    call: impl FnOnce() -> CUresult,
) {
    let (result, verdict) = if want == WAITS {
        c.require("cuLaunchHostFunc", put_sleeper(stream));
        waited(call)
    } else {
        // However long the call takes, it does not wait for this.
        let (gate, closed) = Gate::close(stream);
        c.require("cuLaunchHostFunc", closed);
        let result = call();
        let verdict = if gate.is_open() { WAITS } else { GOES_ON };
        gate.open();
        (result, verdict)
    };
    c.ok(what, result);
    c.same(what, verdict, want);
}

/// To free device memory waits for the whole context: a kernel might use it.
fn frees(c: &Case) {
    primary(c);
    let (stream, small, large) = (independent(c), alloc(c, MIB), alloc(c, 64 * MIB));
    check(c, stream, "cuMemFree of 1 MiB", WAITS, || {
        cuMemFree_v2(small)
    });
    check(c, stream, "cuMemFree of 64 MiB", WAITS, || {
        cuMemFree_v2(large)
    });
}

/// To allocate device memory waits for nothing.
fn allocations(c: &Case) {
    primary(c);
    let (stream, mut ptr) = (independent(c), 0);
    check(c, stream, "cuMemAlloc", GOES_ON, || {
        cuMemAlloc_v2(&mut ptr, MIB)
    });
    synchronize(c);
}

/// Synchronous copies and fills do not wait for non-blocking streams.
fn synchronous_copies_and_fills(c: &Case) {
    primary(c);
    let (stream, one, two) = (independent(c), alloc(c, MIB), alloc(c, MIB));
    let mut data = vec![0_u8; MIB];
    let host = data.as_mut_ptr().cast::<c_void>();
    let source = host.cast_const();
    check(c, stream, "host to device", GOES_ON, || {
        cuMemcpyHtoD_v2(one, source, MIB)
    });
    synchronize(c);
    check(c, stream, "device to host", GOES_ON, || {
        cuMemcpyDtoH_v2(host, one, MIB)
    });
    synchronize(c);
    check(c, stream, "device to device", GOES_ON, || {
        cuMemcpyDtoD_v2(one, two, MIB)
    });
    synchronize(c);
    check(c, stream, "fill", GOES_ON, || cuMemsetD8_v2(one, 1, MIB));
    synchronize(c);
}

/// They are work on the legacy default stream: they come after what is on blocking streams.
fn legacy_stream_copies(c: &Case) {
    primary(c);
    let (blocking, ptr) = (stream(c, 0), alloc(c, MIB));
    let mut data = vec![0_u8; MIB];
    let host = data.as_mut_ptr().cast();
    check(c, blocking, "device to host", WAITS, || {
        cuMemcpyDtoH_v2(host, ptr, MIB)
    });
    check(c, blocking, "wait for the default stream", WAITS, || {
        cuStreamSynchronize(CUstream::NULL)
    });
}

/// Work for the stream itself is put there and left; a copy to ordinary host memory is waited for.
fn asynchronous_copies_and_fills(c: &Case) {
    primary(c);
    let (stream, one, two) = (independent(c), alloc(c, MIB), alloc(c, MIB));
    let mut data = vec![0_u8; MIB];
    let host = data.as_mut_ptr().cast::<c_void>();
    let source = host.cast_const();
    let p = pinned(c, MIB);
    check(c, stream, "1 MiB from ordinary memory", GOES_ON, || {
        cuMemcpyHtoDAsync_v2(one, source, MIB, stream)
    });
    synchronize(c);
    check(
        c,
        stream,
        "1000 bytes from ordinary memory",
        GOES_ON,
        || cuMemcpyHtoDAsync_v2(one, source, 1000, stream),
    );
    synchronize(c);
    check(c, stream, "1000 bytes to ordinary memory", WAITS, || {
        cuMemcpyDtoHAsync_v2(host, one, 1000, stream)
    });
    synchronize(c);
    check(c, stream, "from pinned memory", GOES_ON, || {
        cuMemcpyHtoDAsync_v2(one, p.cast_const(), MIB, stream)
    });
    synchronize(c);
    check(c, stream, "to pinned memory", GOES_ON, || {
        cuMemcpyDtoHAsync_v2(p, one, MIB, stream)
    });
    synchronize(c);
    check(c, stream, "device to device", GOES_ON, || {
        cuMemcpyDtoDAsync_v2(one, two, MIB, stream)
    });
    synchronize(c);
    check(c, stream, "fill", GOES_ON, || {
        cuMemsetD8Async(one, 1, MIB, stream)
    });
    synchronize(c);
}

/// To pin or register does not wait, to free or unregister does.
fn host_memory(c: &Case) {
    primary(c);
    let (stream, mut p) = (independent(c), std::ptr::null_mut());
    check(c, stream, "pin", GOES_ON, || {
        cuMemAllocHost_v2(&mut p, 4096)
    });
    synchronize(c);
    check(c, stream, "free what is pinned", WAITS, || cuMemFreeHost(p));
    let m: *mut c_void = pages(8192).cast();
    check(c, stream, "register", GOES_ON, || {
        cuMemHostRegister_v2(m, 8192, 0)
    });
    synchronize(c);
    check(c, stream, "unregister", WAITS, || cuMemHostUnregister(m));
}

/// So it is with managed memory.
fn managed_memory(c: &Case) {
    primary(c);
    let (stream, mut ptr) = (independent(c), 0);
    check(c, stream, "allocate", GOES_ON, || {
        cuMemAllocManaged(&mut ptr, 4096, 1)
    });
    synchronize(c);
    check(c, stream, "free", WAITS, || cuMemFree_v2(ptr));
}

/// Stream-ordered memory is allocated and freed without waiting, even by `cuMemFree`.
fn stream_ordered_memory(c: &Case) {
    primary(c);
    let (stream, mut ptr) = (independent(c), 0);
    check(c, stream, "allocate", GOES_ON, || {
        cuMemAllocAsync(&mut ptr, 4096, stream)
    });
    synchronize(c);
    check(c, stream, "free", GOES_ON, || cuMemFreeAsync(ptr, stream));
    synchronize(c);
    let ptr = alloc_async(c, 4096, stream);
    synchronize(c);
    check(c, stream, "cuMemFree", GOES_ON, || cuMemFree_v2(ptr));
    synchronize(c);
}

/// A stream is made and destroyed without waiting; to wait for it, an event or the context waits.
fn streams(c: &Case) {
    primary(c);
    let (stream, mut other) = (independent(c), CUstream::NULL);
    check(c, stream, "create", GOES_ON, || {
        cuStreamCreate(&mut other, 1)
    });
    synchronize(c);
    check(c, stream, "wait for it", WAITS, || {
        cuStreamSynchronize(stream)
    });
    check(c, stream, "wait for another one", GOES_ON, || {
        cuStreamSynchronize(other)
    });
    synchronize(c);
    let event = event(c, 0);
    check(c, stream, "record an event and wait for it", WAITS, || {
        let recorded = cuEventRecord(event, stream);
        if recorded.is_success() {
            cuEventSynchronize(event)
        } else {
            recorded
        }
    });
    check(c, stream, "destroy", GOES_ON, || cuStreamDestroy_v2(stream));
    check(c, other, "destroy and wait for the context", WAITS, || {
        let destroyed = cuStreamDestroy_v2(other);
        if destroyed.is_success() {
            cuCtxSynchronize()
        } else {
            destroyed
        }
    });
}

/// To ask waits for nothing.
fn questions(c: &Case) {
    primary(c);
    let (stream, ptr) = (independent(c), alloc(c, 16));
    let (mut free, mut total, mut base) = (0, 0, 0);
    check(c, stream, "cuMemGetInfo", GOES_ON, || {
        cuMemGetInfo_v2(&mut free, &mut total)
    });
    synchronize(c);
    check(c, stream, "cuMemGetAddressRange", GOES_ON, || {
        cuMemGetAddressRange_v2(&mut base, &mut total, ptr)
    });
    synchronize(c);
}

/// To destroy a context waits for its work.
fn context_destroy(c: &Case) {
    primary(c);
    let context = create(c);
    let stream = independent(c);
    check(c, stream, "cuCtxDestroy", WAITS, || {
        cuCtxDestroy_v2(context)
    });
}

/// To reset the primary context waits for its work.
fn primary_reset(c: &Case) {
    primary(c);
    let stream = independent(c);
    check(c, stream, "cuDevicePrimaryCtxReset", WAITS, || {
        cuDevicePrimaryCtxReset_v2(0)
    });
}

/// So does the last release of the primary context.
fn primary_release(c: &Case) {
    primary(c);
    let stream = independent(c);
    check(c, stream, "cuDevicePrimaryCtxRelease", WAITS, || {
        cuDevicePrimaryCtxRelease_v2(0)
    });
}

/// To free or unregister page-locked memory waits for the work of its own context only. The host function does not use the
/// memory: work that does would fail.
fn work_of_another_context(c: &Case) {
    primary(c);
    let stream = independent(c);
    create(c);
    let p = pinned(c, 4096);
    check(c, stream, "free pinned memory", GOES_ON, || {
        cuMemFreeHost(p)
    });
    wait_for(c, stream);
    let m: *mut c_void = pages(8192).cast();
    c.require("register", cuMemHostRegister_v2(m, 8192, 1));
    check(c, stream, "unregister", GOES_ON, || cuMemHostUnregister(m));
    wait_for(c, stream);
}

/// To free device or managed memory does not wait for a host function of another context.
fn frees_beside_another_context(c: &Case) {
    primary(c);
    let stream = independent(c);
    create(c);
    let (small, large, mut managed) = (alloc(c, 4096), alloc(c, 64 * MIB), 0);
    c.require(
        "cuMemAllocManaged",
        cuMemAllocManaged(&mut managed, 4096, 1),
    );
    for (what, ptr) in [("small", small), ("large", large), ("managed", managed)] {
        check(c, stream, what, GOES_ON, || cuMemFree_v2(ptr));
        wait_for(c, stream);
    }
}

/// To destroy a context waits for the work of other contexts of its device too.
fn destroy_beside_another_context(c: &Case) {
    primary(c);
    let stream = independent(c);
    let context = create(c);
    check(c, stream, "cuCtxDestroy", WAITS, || {
        cuCtxDestroy_v2(context)
    });
}

/// So does a reset of the primary context.
fn reset_beside_another_context(c: &Case) {
    primary(c);
    alloc(c, 4096);
    create(c);
    let stream = independent(c);
    check(c, stream, "cuDevicePrimaryCtxReset", WAITS, || {
        cuDevicePrimaryCtxReset_v2(0)
    });
}

/// And the last release of the primary context.
fn release_beside_another_context(c: &Case) {
    primary(c);
    alloc(c, 4096);
    create(c);
    let stream = independent(c);
    check(c, stream, "cuDevicePrimaryCtxRelease", WAITS, || {
        cuDevicePrimaryCtxRelease_v2(0)
    });
}
