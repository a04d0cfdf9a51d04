//! What happens when a panic unwinds, and when the process ends.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::case::{Case, On};
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::host::{Gate, at_exit, in_forked_child};
use crate::tools::*;

cases! {"process":
    unwinding_frees,
    exit_handler,
    forked_child,
    end_with_everything_alive,
    end_with_work_in_flight,
}

/// Row: a panic that unwinds through a `cust::memory::DeviceBuffer` frees its memory.
fn unwinding_frees(c: &Case) {
    primary(c);
    alloc(c, 16);
    let before = free_bytes(c);
    let mut during = 0;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let buffer = cust::memory::DeviceBuffer::from_slice(&vec![7_u8; 64 * MIB]);
        during = free_bytes(c);
        let held = buffer.is_ok();
        // Not `panic!`, which would print a message for what is meant to happen.
        resume_unwind(Box::new(held));
    }));
    let held = match result {
        Err(payload) => payload.downcast_ref::<bool>().copied().unwrap_or_default(),
        Ok(()) => false,
    };
    c.yes("there was a buffer", held);
    c.same("KiB that it took", (before - during) / KIB, 64 * 1024);
    c.same(
        "KiB still taken after the unwinding",
        (before - free_bytes(c)) / KIB,
        0,
    );
}

static LEFT: AtomicU64 = AtomicU64::new(0);

/// Row: allocate and free still work in an `atexit` handler that was registered after `cuInit`.
fn exit_handler(c: &Case) {
    primary(c);
    LEFT.store(alloc(c, 4096), Ordering::Release);
    c.yes("the handler is registered", at_exit(at_the_end));
    c.ends_at_exit();
}

extern "C" fn at_the_end() {
    // Which driver it is does not matter here.
    let c = Case::new(On::Real);
    let mut ptr = 0;
    c.ok(
        "cuMemFree at exit",
        cuMemFree_v2(LEFT.load(Ordering::Acquire)),
    );
    c.ok("cuMemAlloc at exit", cuMemAlloc_v2(&mut ptr, 16));
    c.ok("cuMemFree of that", cuMemFree_v2(ptr));
    c.ok("cuCtxSynchronize at exit", cuCtxSynchronize());
    c.end();
}

/// In a forked child the driver is not initialised, and cannot be.
fn forked_child(c: &Case) {
    primary(c);
    let ptr = alloc(c, 4096);
    let answers = in_forked_child(|| {
        let (mut context, mut new, mut count) = (CUcontext::NULL, ptr, 0);
        [
            cuCtxGetCurrent(&mut context),
            cuMemAlloc_v2(&mut new, 16),
            cuMemFree_v2(ptr),
            cuInit(0),
            cuDeviceGetCount(&mut count),
            cuCtxSynchronize(),
        ]
    });
    let Some(answers) = answers else {
        c.stop("the child did not answer")
    };
    let calls = [
        "cuCtxGetCurrent",
        "cuMemAlloc",
        "cuMemFree",
        "cuInit",
        "cuDeviceGetCount",
    ];
    for (call, answer) in calls.iter().chain(&["cuCtxSynchronize"]).zip(answers) {
        c.expect(call, answer, Code::NOT_INITIALIZED);
    }
    c.ok("the parent goes on", cuMemFree_v2(ptr));
}

/// A process may end with everything still allocated, and end well.
fn end_with_everything_alive(c: &Case) {
    primary(c);
    create(c);
    alloc(c, 10 * MIB);
    pinned(c, 4096);
    managed(c, 4096);
    let stream = stream(c, 0);
    alloc_async(c, 4096, stream);
    event(c, 0);
    c.ok("all of it was made", cuCtxSynchronize());
}

/// A process may end while streams still work.
fn end_with_work_in_flight(c: &Case) {
    primary(c);
    let (stream, ptr, p) = (independent(c), alloc(c, 10 * MIB), pinned(c, 10 * MIB));
    // Opens when this function returns, which is followed by the end of the process.
    let (_gate, closed) = Gate::close(stream);
    c.require("cuLaunchHostFunc", closed);
    for _ in 0..20 {
        c.require(
            "copy",
            cuMemcpyHtoDAsync_v2(ptr, p.cast_const(), 10 * MIB, stream),
        );
        c.require("copy", cuMemcpyDtoHAsync_v2(p, ptr, 10 * MIB, stream));
    }
    c.expect(
        "the stream at the end",
        cuStreamQuery(stream),
        Code::NOT_READY,
    );
}
