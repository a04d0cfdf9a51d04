//! What works while no context is current.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"no_context":
    copies_and_fills,
    making_things,
    asking_and_freeing,
    on_a_stream_of_its_own,
}

/// Copies and fills on the default stream need a current context.
fn copies_and_fills(c: &Case) {
    primary(c);
    let ptr = alloc(c, 5000);
    pop(c);
    let mut data = [0_u8; 16];
    let host: *mut c_void = data.as_mut_ptr().cast();
    let want = Code::INVALID_CONTEXT;
    c.expect(
        "host to device",
        cuMemcpyHtoD_v2(ptr, host.cast_const(), 16),
        want,
    );
    c.expect("device to host", cuMemcpyDtoH_v2(host, ptr, 16), want);
    c.expect("device to device", cuMemcpyDtoD_v2(ptr, ptr + 64, 16), want);
    c.expect("fill", cuMemsetD8_v2(ptr, 1, 16), want);
    let result = cuMemcpyHtoDAsync_v2(ptr, host.cast_const(), 16, CUstream::NULL);
    c.expect("host to device on the default stream", result, want);
    c.expect(
        "wait for the default stream",
        cuStreamSynchronize(CUstream::NULL),
        want,
    );
    c.expect("wait for the context", cuCtxSynchronize(), want);
}

/// Nothing that belongs to a context can be made without one.
fn making_things(c: &Case) {
    primary(c);
    pop(c);
    let want = Code::INVALID_CONTEXT;
    let (mut ptr, mut p, mut pitch) = (0, std::ptr::null_mut(), 0);
    c.expect("device memory", cuMemAlloc_v2(&mut ptr, 16), want);
    let result = cuMemAllocPitch_v2(&mut ptr, &mut pitch, 16, 16, 4);
    c.expect("pitched memory", result, want);
    c.expect("pinned memory", cuMemHostAlloc(&mut p, 16, 0), want);
    c.expect(
        "registered memory",
        cuMemHostRegister_v2(pages(4096).cast(), 4096, 0),
        want,
    );
    c.expect("managed memory", cuMemAllocManaged(&mut ptr, 16, 1), want);
    c.expect(
        "stream-ordered memory",
        cuMemAllocAsync(&mut ptr, 16, CUstream::NULL),
        want,
    );
    let (mut stream, mut event) = (CUstream::NULL, CUevent::NULL);
    c.expect("a stream", cuStreamCreate(&mut stream, 0), want);
    c.expect("an event", cuEventCreate(&mut event, 0), want);
    let mut value = 0;
    c.expect("a limit", cuCtxGetLimit(&mut value, 0), want);
}

/// What names its memory can be asked and freed all the same (unified addressing).
fn asking_and_freeing(c: &Case) {
    primary(c);
    let (ptr, p, shared) = (alloc(c, 5000), pinned(c, 4096), managed(c, 4096));
    pop(c);
    let mut kind = 0_u32;
    let place: *mut c_void = (&raw mut kind).cast();
    let result = cuPointerGetAttribute(place, pointer_attribute::MEMORY_TYPE, ptr);
    c.ok("memory type", result);
    c.same("which is", std::hint::black_box(kind), memory_type::DEVICE);
    c.ok("free pinned memory", cuMemFreeHost(p));
    c.ok("free managed memory", cuMemFree_v2(shared));
    c.ok("free device memory", cuMemFree_v2(ptr));
    c.invalid("free it again", cuMemFree_v2(ptr));
}

/// A stream brings its context along.
fn on_a_stream_of_its_own(c: &Case) {
    primary(c);
    let (stream, event, ptr) = (stream(c, 0), event(c, 0), alloc(c, 4096));
    pop(c);
    let data = [5_u8; 16];
    let mut new = 0;
    c.ok(
        "copy",
        cuMemcpyHtoDAsync_v2(ptr, data.as_ptr().cast(), 16, stream),
    );
    c.ok("fill", cuMemsetD8Async(ptr, 1, 16, stream));
    c.ok("allocate", cuMemAllocAsync(&mut new, 16, stream));
    c.ok("free", cuMemFreeAsync(new, stream));
    c.ok("record an event", cuEventRecord(event, stream));
    c.ok("wait for the stream", cuStreamSynchronize(stream));
    c.ok("query the event", cuEventQuery(event));
    c.ok("query the stream", cuStreamQuery(stream));
    c.ok(
        "make the stream wait for the event",
        cuStreamWaitEvent(stream, event, 0),
    );
    c.ok("wait for the event", cuEventSynchronize(event));
    c.ok("destroy the event", cuEventDestroy_v2(event));
    c.ok("destroy the stream", cuStreamDestroy_v2(stream));
}
