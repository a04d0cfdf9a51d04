//! Older versions of functions, which a driver keeps for programs built with old headers.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"older_versions":
    release_of_what_is_not_retained,
    flags_of_an_active_primary_context,
    reset_of_the_primary_context,
    streams_and_events,
    registered_memory,
    pop_of_the_current_context,
    memory_of_the_device,
}

/// The first `cuDevicePrimaryCtxRelease` succeeds where nothing is retained; since CUDA 11.0 that is an error.
fn release_of_what_is_not_retained(c: &Case) {
    let device = start(c);
    c.ok("release, first version", cuDevicePrimaryCtxRelease(device));
    let result = cuDevicePrimaryCtxRelease_v2(device);
    c.expect("release, second version", result, Code::INVALID_CONTEXT);
    retain(c, device);
    c.ok(
        "release of a retained one",
        cuDevicePrimaryCtxRelease(device),
    );
    c.same("whether it is active", state(c, device).1, 0);
    c.ok("release again", cuDevicePrimaryCtxRelease(device));
    let result = cuDevicePrimaryCtxRelease(99);
    c.expect("release on device 99", result, Code::INVALID_DEVICE);
}

/// The first `cuDevicePrimaryCtxSetFlags` fails while the context is active; since CUDA 11.0 it changes the flags.
fn flags_of_an_active_primary_context(c: &Case) {
    let device = start(c);
    c.ok(
        "flags before it is active",
        cuDevicePrimaryCtxSetFlags(device, 4),
    );
    c.same("the flags", state(c, device).0, 4);
    retain(c, device);
    let result = cuDevicePrimaryCtxSetFlags(device, 0);
    c.expect(
        "flags while it is active",
        result,
        Code::PRIMARY_CONTEXT_ACTIVE,
    );
    c.same("the flags", state(c, device).0, 4);
    c.ok("second version", cuDevicePrimaryCtxSetFlags_v2(device, 0));
    c.same("the flags", state(c, device).0, 0);
}

/// The first `cuDevicePrimaryCtxReset` does what the second does.
fn reset_of_the_primary_context(c: &Case) {
    let device = start(c);
    retain(c, device);
    c.ok("reset", cuDevicePrimaryCtxReset(device));
    c.same("whether it is active", state(c, device).1, 0);
}

/// Streams and events are destroyed by either version.
fn streams_and_events(c: &Case) {
    start(c);
    create(c);
    let (stream, event) = (independent(c), event(c, 0));
    c.ok("cuStreamDestroy", cuStreamDestroy(stream));
    c.ok("cuEventDestroy", cuEventDestroy(event));
    let want = Code::INVALID_HANDLE;
    c.expect("no stream", cuStreamDestroy(CUstream::NULL), want);
    c.expect("no event", cuEventDestroy(CUevent::NULL), want);
}

/// Host memory is registered by either version, whole pages or not.
fn registered_memory(c: &Case) {
    start(c);
    create(c);
    let memory = pages(4 * 4096);
    for (what, offset, bytes) in [("two pages", 0, 8192), ("a part of a page", 8, 100)] {
        let part = memory.wrapping_add(offset).cast();
        c.ok(what, cuMemHostRegister(part, bytes, 0));
        c.ok("unregister", cuMemHostUnregister(part));
    }
}

/// The first `cuCtxPopCurrent` does what the second does.
fn pop_of_the_current_context(c: &Case) {
    start(c);
    let context = create(c);
    let mut popped = CUcontext::NULL;
    c.ok("cuCtxPopCurrent", cuCtxPopCurrent(&mut popped));
    c.yes("it is the context", popped == context);
    c.yes("none is current", current(c).is_null());
}

/// The first `cuDeviceTotalMem` has 32 bits: more memory is the largest number. Both write 0 where they fail.
fn memory_of_the_device(c: &Case) {
    let device = start(c);
    let (mut bytes, mut all) = (7, 7);
    c.ok("all memory", cuDeviceTotalMem_v2(&mut all, device));
    c.ok("in 32 bits", cuDeviceTotalMem(&mut bytes, device));
    let cut = u32::try_from(all).unwrap_or(u32::MAX);
    c.yes("it is as much, or the largest number", bytes == cut);
    let want = Code::INVALID_DEVICE;
    c.expect("device 99", cuDeviceTotalMem(&mut bytes, 99), want);
    c.same("what is written", bytes, 0);
    c.expect("second version", cuDeviceTotalMem_v2(&mut all, 99), want);
    c.same("what is written", all, 0);
    let null = std::ptr::null_mut();
    c.invalid("null and device 99", cuDeviceTotalMem(null, 99));
    let null = std::ptr::null_mut();
    c.invalid("second version", cuDeviceTotalMem_v2(null, 99));
}
