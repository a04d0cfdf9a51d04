//! The primary context: retained, released, reset.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"primary":
    inactive_at_first,
    retain_does_not_set_current,
    flags,
    retained_twice,
    last_release,
    retained_again,
    reset_without_use,
    reset,
    reset_keeps_the_count,
    reset_then_retain,
    free_after_reset,
    events_after_reset,
}

/// A primary context is inactive until it is retained; it cannot be released more than retained.
fn inactive_at_first(c: &Case) {
    let device = start(c);
    c.same("flags and activity at first", state(c, device), (0, 0));
    let result = cuDevicePrimaryCtxRelease_v2(device);
    c.expect("release without retain", result, Code::INVALID_CONTEXT);
    retain(c, device);
    c.same("after a retain", state(c, device), (0, 1));
    c.ok("release", cuDevicePrimaryCtxRelease_v2(device));
    c.same("after the release", state(c, device), (0, 0));
    let mut context = CUcontext::NULL;
    let result = cuDevicePrimaryCtxRetain(&mut context, 99);
    c.expect("retain on device 99", result, Code::INVALID_DEVICE);
}

/// To retain is not to make current.
fn retain_does_not_set_current(c: &Case) {
    let device = start(c);
    let context = retain(c, device);
    c.no("the handle is null", context.is_null());
    c.yes("nothing is current", current(c).is_null());
}

/// Flags can be set before and while the context is active, if they exist.
fn flags(c: &Case) {
    let device = start(c);
    c.ok("set flag 4", cuDevicePrimaryCtxSetFlags_v2(device, 4));
    c.same("while inactive", state(c, device), (4, 0));
    retain(c, device);
    c.ok("set flag 2", cuDevicePrimaryCtxSetFlags_v2(device, 2));
    c.same("while active", state(c, device), (2, 1));
    c.invalid(
        "set flags ff00",
        cuDevicePrimaryCtxSetFlags_v2(device, 0xff00),
    );
    // MAP_HOST, which is accepted for other contexts.
    c.invalid("set flag 8", cuDevicePrimaryCtxSetFlags_v2(device, 8));
    c.invalid("set flags c", cuDevicePrimaryCtxSetFlags_v2(device, 12));
    c.same("unchanged", state(c, device), (2, 1));
    c.ok("release", cuDevicePrimaryCtxRelease_v2(device));
    c.same("the last release forgets them", state(c, device), (0, 0));
}

/// Two retains give one context, which lives until the second release.
fn retained_twice(c: &Case) {
    let context = primary(c);
    let again = retain(c, 0);
    c.yes("both retains answer the same handle", context == again);
    let ptr = alloc(c, MIB);
    c.ok("release once", cuDevicePrimaryCtxRelease_v2(0));
    c.same("it is still active", state(c, 0), (0, 1));
    c.ok("its memory can be freed", cuMemFree_v2(ptr));
    c.ok("release again", cuDevicePrimaryCtxRelease_v2(0));
    c.same("now it is not", state(c, 0), (0, 0));
    let result = cuDevicePrimaryCtxRelease_v2(0);
    c.expect("release once too often", result, Code::INVALID_CONTEXT);
}

/// After the last release the handle stays current, and what uses it is CONTEXT_IS_DESTROYED.
fn last_release(c: &Case) {
    let context = primary(c);
    let ptr = alloc(c, MIB);
    c.ok("release", cuDevicePrimaryCtxRelease_v2(0));
    c.yes("it is still current", current(c) == context);
    let want = Code::CONTEXT_IS_DESTROYED;
    let (mut new, mut device, mut free, mut total) = (0, -1, 0, 0);
    c.expect("cuMemAlloc", cuMemAlloc_v2(&mut new, 16), want);
    c.expect("cuMemFree of its memory", cuMemFree_v2(ptr), want);
    c.expect("cuCtxSynchronize", cuCtxSynchronize(), want);
    c.ok("cuCtxGetDevice", cuCtxGetDevice(&mut device));
    c.expect("cuMemGetInfo", cuMemGetInfo_v2(&mut free, &mut total), want);
}

/// Retained again, the same handle works again, and a thread that still has it need do nothing.
fn retained_again(c: &Case) {
    let context = primary(c);
    c.ok("release", cuDevicePrimaryCtxRelease_v2(0));
    let again = retain(c, 0);
    c.yes("the handle is the same", context == again);
    let mut ptr = 0;
    c.ok("cuMemAlloc", cuMemAlloc_v2(&mut ptr, 16));
    c.ok("cuCtxSynchronize", cuCtxSynchronize());
    c.ok("cuMemFree", cuMemFree_v2(ptr));
    c.ok("release", cuDevicePrimaryCtxRelease_v2(0));
}

/// Resetting a context that is not retained is no error.
fn reset_without_use(c: &Case) {
    let device = start(c);
    c.ok("reset", cuDevicePrimaryCtxReset_v2(device));
    c.same("it stays inactive", state(c, device), (0, 0));
}

/// A reset ends the context although it is retained and current; the stack is left as it is.
fn reset(c: &Case) {
    let context = primary(c);
    let ptr = alloc(c, 64 * MIB);
    let p = pinned(c, MIB);
    c.ok("reset", cuDevicePrimaryCtxReset_v2(0));
    c.same("it is inactive", state(c, 0), (0, 0));
    c.yes("it is still current", current(c) == context);
    let want = Code::CONTEXT_IS_DESTROYED;
    let (mut new, mut device, mut stream) = (0, -1, CUstream::NULL);
    c.expect("cuMemAlloc", cuMemAlloc_v2(&mut new, 16), want);
    c.expect("cuCtxSynchronize", cuCtxSynchronize(), want);
    c.expect("cuMemFreeHost", cuMemFreeHost(p), want);
    c.expect("cuStreamCreate", cuStreamCreate(&mut stream, 0), want);
    c.expect("cuMemFree", cuMemFree_v2(ptr), want);
    c.ok("cuCtxGetDevice", cuCtxGetDevice(&mut device));
    c.ok("push it", cuCtxPushCurrent_v2(context));
    c.yes("pop it", pop(c) == context);
    c.ok("set it", cuCtxSetCurrent(context));
}

/// A reset does not touch the count of retains: every one of them is still released once.
fn reset_keeps_the_count(c: &Case) {
    let context = primary(c);
    retain(c, 0);
    c.ok("reset", cuDevicePrimaryCtxReset_v2(0));
    c.ok("release", cuDevicePrimaryCtxRelease_v2(0));
    c.ok("release again", cuDevicePrimaryCtxRelease_v2(0));
    let result = cuDevicePrimaryCtxRelease_v2(0);
    c.expect("release once too often", result, Code::INVALID_CONTEXT);
    let again = retain(c, 0);
    c.yes("retained again it has the same handle", context == again);
    let mut ptr = 0;
    c.ok("cuMemAlloc", cuMemAlloc_v2(&mut ptr, 16));
    c.ok("cuCtxSetCurrent", cuCtxSetCurrent(again));
    c.ok("cuMemAlloc again", cuMemAlloc_v2(&mut ptr, 16));
}

/// Retained after a reset, the handle works; memory from before the reset is unknown.
fn reset_then_retain(c: &Case) {
    let context = primary(c);
    let old = alloc(c, 64 * MIB);
    c.ok("reset", cuDevicePrimaryCtxReset_v2(0));
    let again = retain(c, 0);
    c.yes("the handle is the same", context == again);
    c.ok("cuCtxSynchronize", cuCtxSynchronize());
    let mut ptr = 0;
    c.ok("cuMemAlloc", cuMemAlloc_v2(&mut ptr, 16));
    c.invalid("cuMemFree of memory from before", cuMemFree_v2(old));
    c.ok("cuMemFree of the new memory", cuMemFree_v2(ptr));
}

/// Row: `cuMemFree` after `cuDevicePrimaryCtxReset` is CONTEXT_IS_DESTROYED; `cuMemGetInfo` too.
fn free_after_reset(c: &Case) {
    primary(c);
    let (small, large) = (alloc(c, 1000), alloc(c, 64 * MIB));
    c.ok("reset", cuDevicePrimaryCtxReset_v2(0));
    let want = Code::CONTEXT_IS_DESTROYED;
    c.expect("cuMemFree of a small block", cuMemFree_v2(small), want);
    c.expect("cuMemFree of a large block", cuMemFree_v2(large), want);
    let (mut free, mut total) = (0, 0);
    c.expect("cuMemGetInfo", cuMemGetInfo_v2(&mut free, &mut total), want);
}

/// Events know that their context was reset.
fn events_after_reset(c: &Case) {
    primary(c);
    let event = event(c, 0);
    c.ok("reset", cuDevicePrimaryCtxReset_v2(0));
    let want = Code::CONTEXT_IS_DESTROYED;
    c.expect("query an event", cuEventQuery(event), want);
    c.expect("destroy an event", cuEventDestroy_v2(event), want);
}
