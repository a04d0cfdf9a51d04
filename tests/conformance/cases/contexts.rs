//! Contexts and the stack of them that every thread has.

use std::sync::Barrier;

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::host::on_another_thread;
use crate::tools::*;

cases! {"contexts":
    nothing_current,
    null_arguments,
    create_pushes,
    push_and_pop,
    set_replaces_the_top,
    set_null_pops,
    pop_to_the_bottom,
    primary_is_not_destroyed,
    every_thread_has_its_own_stack,
    one_context_on_two_threads,
    allocate_without_a_context,
    free_from_anywhere,
    free_under_another_context,
}

fn label(context: CUcontext, primary: CUcontext, created: CUcontext) -> &'static str {
    match context {
        CUcontext::NULL => "none",
        _ if context == primary => "primary",
        _ if context == created => "created",
        _ => "unknown",
    }
}

/// A process starts without a current context; what needs one returns INVALID_CONTEXT.
fn nothing_current(c: &Case) {
    start(c);
    let (mut context, mut device) = (CUcontext(1), 0);
    c.ok("cuCtxGetCurrent", cuCtxGetCurrent(&mut context));
    c.yes("it is null", context.is_null());
    let want = Code::INVALID_CONTEXT;
    c.expect("cuCtxPopCurrent", cuCtxPopCurrent_v2(&mut context), want);
    c.ok("cuCtxSetCurrent to null", cuCtxSetCurrent(CUcontext::NULL));
    c.expect("cuCtxGetDevice", cuCtxGetDevice(&mut device), want);
    c.expect("cuCtxSynchronize", cuCtxSynchronize(), want);
    let (mut free, mut total) = (0, 0);
    c.expect("cuMemGetInfo", cuMemGetInfo_v2(&mut free, &mut total), want);
}

/// Null is not a context to push or destroy.
fn null_arguments(c: &Case) {
    start(c);
    c.invalid("push null", cuCtxPushCurrent_v2(CUcontext::NULL));
    c.invalid("destroy null", cuCtxDestroy_v2(CUcontext::NULL));
    c.invalid(
        "current context into null",
        cuCtxGetCurrent(std::ptr::null_mut()),
    );
}

/// A created context is pushed on the stack of the thread that creates it.
fn create_pushes(c: &Case) {
    let primary = primary(c);
    let created = create(c);
    let seen = current(c);
    c.same(
        "current after cuCtxCreate",
        label(seen, primary, created),
        "created",
    );
    let popped = pop(c);
    c.same("popped", label(popped, primary, created), "created");
    let seen = current(c);
    c.same("current then", label(seen, primary, created), "primary");
    c.ok("destroy what is not current", cuCtxDestroy_v2(created));
    let seen = current(c);
    c.same(
        "current after that",
        label(seen, primary, created),
        "primary",
    );
}

/// A context may be on the stack more than once.
fn push_and_pop(c: &Case) {
    let primary = primary(c);
    let created = create(c);
    pop(c);
    c.ok("push", cuCtxPushCurrent_v2(created));
    c.ok("push again", cuCtxPushCurrent_v2(created));
    pop(c);
    let seen = current(c);
    c.same(
        "current after one pop",
        label(seen, primary, created),
        "created",
    );
    pop(c);
    let seen = current(c);
    c.same(
        "current after two",
        label(seen, primary, created),
        "primary",
    );
}

/// `cuCtxSetCurrent` replaces the top of the stack and leaves the rest.
fn set_replaces_the_top(c: &Case) {
    let primary = primary(c);
    let created = create(c);
    c.ok("set the primary context", cuCtxSetCurrent(primary));
    let popped = pop(c);
    c.same("popped", label(popped, primary, created), "primary");
    let seen = current(c);
    c.same("below it", label(seen, primary, created), "primary");
    pop(c);
    let seen = current(c);
    c.same("below that", label(seen, primary, created), "none");
}

/// `cuCtxSetCurrent` of null takes the top off the stack.
fn set_null_pops(c: &Case) {
    let primary = primary(c);
    let created = create(c);
    c.ok("set null", cuCtxSetCurrent(CUcontext::NULL));
    let seen = current(c);
    c.same("current then", label(seen, primary, created), "primary");
    pop(c);
    let seen = current(c);
    c.same("current after a pop", label(seen, primary, created), "none");
}

/// An empty stack cannot be popped; to set null on it is no error.
fn pop_to_the_bottom(c: &Case) {
    primary(c);
    let mut context = CUcontext(1);
    c.ok("pop", cuCtxPopCurrent_v2(&mut context));
    let want = Code::INVALID_CONTEXT;
    c.expect(
        "pop the empty stack",
        cuCtxPopCurrent_v2(&mut context),
        want,
    );
    c.ok(
        "set null on the empty stack",
        cuCtxSetCurrent(CUcontext::NULL),
    );
    c.yes("nothing is current", current(c).is_null());
}

/// The primary context is released, not destroyed: `cuCtxDestroy` fails on it.
fn primary_is_not_destroyed(c: &Case) {
    let context = primary(c);
    let result = cuCtxDestroy_v2(context);
    c.expect("destroy the primary context", result, Code::INVALID_CONTEXT);
    c.same("its flags and whether it is active", state(c, 0), (0, 1));
    let ptr = alloc(c, 16);
    c.ok("it still works", cuMemFree_v2(ptr));
}

/// A new thread starts with an empty stack, and what it does to its stack is its own affair.
fn every_thread_has_its_own_stack(c: &Case) {
    let primary = primary(c);
    let created = create(c);
    pop(c);
    on_another_thread(|| {
        c.yes("a new thread has no context", current(c).is_null());
        c.ok("push there", cuCtxPushCurrent_v2(created));
        c.ok("push there again", cuCtxPushCurrent_v2(primary));
        pop(c);
        let seen = current(c);
        c.same("current there", label(seen, primary, created), "created");
    });
    let seen = current(c);
    c.same("current here", label(seen, primary, created), "primary");
    pop(c);
    c.yes("nothing is below it", current(c).is_null());
}

/// A context can be current on two threads at the same time.
fn one_context_on_two_threads(c: &Case) {
    let context = primary(c);
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (mut ptr, set) = (0, cuCtxSetCurrent(context));
            barrier.wait();
            let allocated = cuMemAlloc_v2(&mut ptr, MIB);
            let filled = cuMemsetD8_v2(ptr, 7, MIB);
            barrier.wait();
            (set, allocated, filled, cuMemFree_v2(ptr))
        });
        barrier.wait();
        let ptr = alloc(c, MIB);
        c.ok("fill here", cuMemsetD8_v2(ptr, 8, MIB));
        barrier.wait();
        c.same("what is here", read(c, ptr, 3), vec![8; 3]);
        free(c, ptr);
        match other.join() {
            Ok((set, allocated, filled, freed)) => {
                c.ok("set current there", set);
                c.ok("allocate there", allocated);
                c.ok("fill there", filled);
                c.ok("free there", freed);
            }
            Err(_) => c.stop("the other thread panicked"),
        }
    });
}

/// Row: `cuMemAlloc` on a thread with no current context is INVALID_CONTEXT.
fn allocate_without_a_context(c: &Case) {
    primary(c);
    on_another_thread(|| {
        let mut ptr = 0;
        let result = cuMemAlloc_v2(&mut ptr, 16);
        c.expect(
            "allocate on a thread without a context",
            result,
            Code::INVALID_CONTEXT,
        );
    });
    pop(c);
    let mut ptr = 0;
    let result = cuMemAlloc_v2(&mut ptr, 16);
    c.expect(
        "allocate after the context was popped",
        result,
        Code::INVALID_CONTEXT,
    );
}

/// Row: `cuMemFree` on a thread with no current context succeeds (unified addressing).
fn free_from_anywhere(c: &Case) {
    let context = primary(c);
    let (one, two) = (alloc(c, 1000), alloc(c, 1000));
    on_another_thread(|| c.ok("free on a thread without a context", cuMemFree_v2(one)));
    pop(c);
    c.ok("free after the context was popped", cuMemFree_v2(two));
    c.invalid("free the first again", cuMemFree_v2(one));
    c.require("cuCtxSetCurrent", cuCtxSetCurrent(context));
    c.invalid("free the second again", cuMemFree_v2(two));
}

/// Row: `cuMemFree` with another context current succeeds.
fn free_under_another_context(c: &Case) {
    primary(c);
    let ptr = alloc(c, 64 * MIB);
    let created = create(c);
    let freed = -taken_kib(c, |c| c.ok("free under another context", cuMemFree_v2(ptr)));
    c.same("KiB that came back", freed, 64 * 1024);
    let ptr = alloc(c, 16);
    pop(c);
    c.ok("and the other way round", cuMemFree_v2(ptr));
    c.ok("destroy", cuCtxDestroy_v2(created));
}
