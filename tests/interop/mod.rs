//! Contexts, streams, events and modules of other code: owned (`from_raw`) or borrowed (`borrow_raw`), beside `cust` and
//! beside code that calls the driver directly. And the default stream.

mod contexts;
mod handles;
mod streams;

use cuguard::driver::api;
use cuguard::driver::sys::{CUcontext, CUresult, CUstream};
use cuguard::report::ReportSettings;
use cuguard::{Context, Device};

const PTX: &str = include_str!("../../kernels/saxpy.ptx");

#[track_caller]
fn ok(code: CUresult) {
    assert!(code.is_success(), "{code}");
}

/// A context that other code creates; it is current nowhere afterwards.
fn foreign_context() -> CUcontext {
    Device::count().expect("the driver is initialized");
    let (mut context, mut popped) = (CUcontext::NULL, CUcontext::NULL);
    // SAFETY: both are valid for writes.
    unsafe {
        ok(api::cuCtxCreate_v2(&mut context, 0, 0));
        ok(api::cuCtxPopCurrent_v2(&mut popped));
    }
    assert_eq!(popped, context);
    context
}

/// Runs other code with a context current, and restores what was current before.
fn with_current<T>(context: CUcontext, code: impl FnOnce() -> T) -> T {
    // SAFETY: the tests pass live contexts.
    ok(unsafe { api::cuCtxPushCurrent_v2(context) });
    let value = code();
    let mut popped = CUcontext::NULL;
    // SAFETY: valid for writes.
    ok(unsafe { api::cuCtxPopCurrent_v2(&mut popped) });
    assert_eq!(popped, context, "the stack of contexts");
    value
}

/// Whether a context is alive.
fn is_alive(context: CUcontext) -> bool {
    let mut version = 0;
    // SAFETY: valid for writes; the driver checks the handle.
    unsafe { api::cuCtxGetApiVersion(context, &mut version) }.is_success()
}

fn destroy(context: CUcontext) {
    // SAFETY: the tests pass live contexts of theirs.
    ok(unsafe { api::cuCtxDestroy_v2(context) });
}

fn primary_is_active() -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both are valid for writes.
    ok(unsafe { api::cuDevicePrimaryCtxGetState(0, &mut flags, &mut active) });
    active != 0
}

/// A stream that other code creates in the current context.
fn foreign_stream() -> CUstream {
    let mut stream = CUstream::NULL;
    // SAFETY: valid for writes.
    ok(unsafe { api::cuStreamCreate(&mut stream, 1) });
    stream
}

fn quiet() -> cuguard::context::ContextBuilder {
    Context::builder().report(ReportSettings::off())
}
