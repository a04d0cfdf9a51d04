//! What is left after `cuCtxDestroy`.

use std::sync::Barrier;

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"destroyed_contexts":
    destroy_current,
    still_on_the_stack,
    current_on_another_thread,
    destroy_twice,
    version_of_a_destroyed_context,
    device_memory,
    pinned_memory,
    registered_and_managed_memory,
    stream_ordered_memory,
    events,
}

/// A context that is current when it is destroyed leaves the top of the stack.
fn destroy_current(c: &Case) {
    let primary = primary(c);
    let created = create(c);
    c.ok("destroy the current context", cuCtxDestroy_v2(created));
    c.yes("the one below is current", current(c) == primary);
    let ptr = alloc(c, 16);
    c.ok("and works", cuMemFree_v2(ptr));
}

/// Deeper in the stack a destroyed context stays; what uses it returns CONTEXT_IS_DESTROYED.
fn still_on_the_stack(c: &Case) {
    let primary = primary(c);
    let dead = create(c);
    c.require("push", cuCtxPushCurrent_v2(primary));
    c.require("push", cuCtxPushCurrent_v2(dead));
    c.ok("destroy", cuCtxDestroy_v2(dead));
    c.yes("the one below is current", current(c) == primary);
    c.yes("it can be popped", pop(c) == primary);
    c.yes("then the destroyed one is current", current(c) == dead);
    c.expect(
        "synchronise it",
        cuCtxSynchronize(),
        Code::CONTEXT_IS_DESTROYED,
    );
    c.yes("it can be popped too", pop(c) == dead);
    c.yes("the first one is at the bottom", current(c) == primary);
}

/// A thread keeps a context that another thread destroyed, and is told so when it uses it.
fn current_on_another_thread(c: &Case) {
    primary(c);
    let dead = create(c);
    let ptr = alloc(c, MIB);
    let barrier = Barrier::new(2);
    let want = Code::CONTEXT_IS_DESTROYED;
    std::thread::scope(|scope| {
        let destroyer = scope.spawn(|| {
            barrier.wait();
            let result = cuCtxDestroy_v2(dead);
            barrier.wait();
            result
        });
        barrier.wait();
        barrier.wait();
        let (mut new, mut device, mut free, mut total) = (0, -1, 0, 0);
        c.yes("it is still current", current(c) == dead);
        c.expect("cuMemAlloc", cuMemAlloc_v2(&mut new, 16), want);
        c.expect("cuCtxSynchronize", cuCtxSynchronize(), want);
        c.ok("cuCtxGetDevice", cuCtxGetDevice(&mut device));
        c.expect("cuMemGetInfo", cuMemGetInfo_v2(&mut free, &mut total), want);
        let mut popped = CUcontext::NULL;
        c.ok("cuCtxPopCurrent", cuCtxPopCurrent_v2(&mut popped));
        c.ok("cuCtxSetCurrent to null", cuCtxSetCurrent(CUcontext::NULL));
        match destroyer.join() {
            Ok(result) => c.ok("destroy on the other thread", result),
            Err(_) => c.stop("the other thread panicked"),
        }
    });
    c.invalid("free its memory", cuMemFree_v2(ptr));
}

/// A context is not destroyed twice. Which error the driver returns depends on what has become of
/// the memory of the handle, which it looks at although it is freed: CONTEXT_IS_DESTROYED if nobody
/// has used it since, INVALID_CONTEXT if somebody has. (Measured in a program that calls nothing else:
/// 5 and 7 of 12; 0 and 24 of 24 when the heap was written to in between. A context that is made then
/// mostly gets the same handle.)
fn destroy_twice(c: &Case) {
    primary(c);
    let dead = create(c);
    c.ok("destroy", cuCtxDestroy_v2(dead));
    let again = cuCtxDestroy_v2(dead);
    let refused = matches!(again, Code::CONTEXT_IS_DESTROYED | Code::INVALID_CONTEXT);
    c.same("destroy again is refused", refused, true);
}

/// A destroyed context has no version.
fn version_of_a_destroyed_context(c: &Case) {
    primary(c);
    let dead = create(c);
    c.ok("destroy", cuCtxDestroy_v2(dead));
    let mut version = 0;
    let result = cuCtxGetApiVersion(dead, &mut version);
    c.expect(
        "version of a destroyed context",
        result,
        Code::INVALID_CONTEXT,
    );
}

/// Row: `cuMemFree` after the owning `cuCtxDestroy` is INVALID_VALUE.
fn device_memory(c: &Case) {
    primary(c);
    let dead = create(c);
    let (small, large) = (alloc(c, 1000), alloc(c, 64 * MIB));
    c.ok("destroy with memory allocated", cuCtxDestroy_v2(dead));
    c.invalid("free a small block", cuMemFree_v2(small));
    c.invalid("free a large block", cuMemFree_v2(large));
    c.invalid("fill it", cuMemsetD8_v2(large, 1, 16));
}

/// Pinned memory goes with its context.
fn pinned_memory(c: &Case) {
    primary(c);
    let dead = create(c);
    let p = pinned(c, 4096);
    c.ok("destroy with memory pinned", cuCtxDestroy_v2(dead));
    c.invalid("free the pinned memory", cuMemFreeHost(p));
}

/// Registered memory is unregistered, managed memory freed with their context.
fn registered_and_managed_memory(c: &Case) {
    primary(c);
    let dead = create(c);
    let p: *mut c_void = pages(8192).cast();
    c.ok("register", cuMemHostRegister_v2(p, 8192, 0));
    let shared = managed(c, 4096);
    c.ok("destroy", cuCtxDestroy_v2(dead));
    let result = cuMemHostUnregister(p);
    c.expect("unregister", result, Code::HOST_MEMORY_NOT_REGISTERED);
    c.ok(
        "register it in another context",
        cuMemHostRegister_v2(p, 8192, 0),
    );
    c.invalid("free the managed memory", cuMemFree_v2(shared));
}

/// Stream-ordered memory belongs to a pool of the device: it outlives the context it came through.
fn stream_ordered_memory(c: &Case) {
    let primary = primary(c);
    let dead = create(c);
    let stream = stream(c, 0);
    let ptr = alloc_async(c, MIB, stream);
    wait_for(c, stream);
    c.ok("destroy", cuCtxDestroy_v2(dead));
    c.yes("the primary context is current", current(c) == primary);
    c.ok("fill the block", cuMemsetD8_v2(ptr, 5, MIB));
    c.same("what is in it", read(c, ptr, 3), vec![5; 3]);
    c.ok("free the block", cuMemFree_v2(ptr));
    let result = cuMemFreeAsync(ptr, CUstream::NULL);
    c.invalid("free it again, stream-ordered", result);
}

/// Events of a destroyed context fail.
fn events(c: &Case) {
    primary(c);
    let dead = create(c);
    let event = event(c, 0);
    c.ok("destroy", cuCtxDestroy_v2(dead));
    let want = Code::CONTEXT_IS_DESTROYED;
    c.expect("query its event", cuEventQuery(event), want);
    c.expect("destroy its event", cuEventDestroy_v2(event), want);
}
