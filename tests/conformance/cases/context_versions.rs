//! Later ways to create a context, its usage count, and queries that name a context.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"context_versions":
    created_by_every_version,
    affinity_of_version_3,
    parameters_of_version_4,
    attach_and_detach,
    detach_of_others,
    detach_of_the_primary_context,
    ids,
    device_of_a_context,
    synchronize_a_context,
    affinity_of_the_current_context,
}

const NO_AFFINITY: *mut CUexecAffinityParam = std::ptr::null_mut();
const NO_PARAMS: *mut CUctxCreateParams = std::ptr::null_mut();

/// Every version creates a context on the device that is named, and makes it current.
fn created_by_every_version(c: &Case) {
    start(c);
    let mut context = CUcontext::NULL;
    for (what, result) in [
        ("version 2", cuCtxCreate_v2(&mut context, 0, 0)),
        (
            "version 3",
            cuCtxCreate_v3(&mut context, NO_AFFINITY, 0, 0, 0),
        ),
        ("version 4", cuCtxCreate_v4(&mut context, NO_PARAMS, 0, 0)),
    ] {
        c.ok(what, result);
    }
    c.yes("it is current", current(c) == context);
    let mut device = -1;
    c.ok("cuCtxGetDevice", cuCtxGetDevice(&mut device));
    c.same("its device", device, 0);
    for (what, result) in [
        ("version 2", cuCtxCreate_v2(&mut context, 0, 99)),
        (
            "version 3",
            cuCtxCreate_v3(&mut context, NO_AFFINITY, 0, 0, 99),
        ),
        ("version 4", cuCtxCreate_v4(&mut context, NO_PARAMS, 0, 99)),
    ] {
        let what = format_args!("{what}, device 99");
        c.expect(what, result, Code::INVALID_DEVICE);
    }
    let none = std::ptr::null_mut();
    c.invalid("version 2, null", cuCtxCreate_v2(none, 0, 0));
    c.invalid(
        "version 3, null",
        cuCtxCreate_v3(none, NO_AFFINITY, 0, 0, 0),
    );
    c.invalid("version 4, null", cuCtxCreate_v4(none, NO_PARAMS, 0, 0));
    c.invalid(
        "version 3, unknown flags",
        cuCtxCreate_v3(&mut context, NO_AFFINITY, 0, 0x4000_0000, 0),
    );
    c.invalid(
        "version 4, unknown flags",
        cuCtxCreate_v4(&mut context, NO_PARAMS, 0x4000_0000, 0),
    );
}

/// An execution affinity needs the Multi-Process Service.
fn affinity_of_version_3(c: &Case) {
    start(c);
    let mut context = CUcontext::NULL;
    let mut affinity = affinity(8);
    let result = cuCtxCreate_v3(&mut context, &mut affinity, 1, 0, 0);
    c.expect("8 processors", result, Code::UNSUPPORTED_EXEC_AFFINITY);
    c.invalid(
        "one affinity, null",
        cuCtxCreate_v3(&mut context, NO_AFFINITY, 1, 0, 0),
    );
    c.ok(
        "no affinity, not null",
        cuCtxCreate_v3(&mut context, &mut affinity, 0, 0, 0),
    );
}

fn affinity(processors: u32) -> CUexecAffinityParam {
    CUexecAffinityParam {
        type_: 0,
        param: CUexecAffinityParam_param {
            smCount: CUexecAffinitySmCount { val: processors },
        },
    }
}

/// Version 4 has the affinity in a structure, and with it a graphics client.
fn parameters_of_version_4(c: &Case) {
    start(c);
    let mut context = CUcontext::NULL;
    let mut affinity = affinity(8);
    let mut params = CUctxCreateParams {
        execAffinityParams: NO_AFFINITY,
        numExecAffinityParams: 0,
        cigParams: std::ptr::null_mut(),
    };
    c.ok(
        "nothing in it",
        cuCtxCreate_v4(&mut context, &mut params, 0, 0),
    );
    params.execAffinityParams = &mut affinity;
    params.numExecAffinityParams = 1;
    let result = cuCtxCreate_v4(&mut context, &mut params, 0, 0);
    c.expect("8 processors", result, Code::UNSUPPORTED_EXEC_AFFINITY);
}

/// A context is destroyed when it was detached as often as it was created and attached.
fn attach_and_detach(c: &Case) {
    start(c);
    let mut attached = CUcontext::NULL;
    let result = cuCtxAttach(&mut attached, 0);
    c.expect("attach without one", result, Code::INVALID_CONTEXT);
    let context = create(c);
    c.ok("attach", cuCtxAttach(&mut attached, 0));
    c.yes("it is the same", attached == context);
    c.invalid("attach, flags 1", cuCtxAttach(&mut attached, 1));
    c.invalid("attach, null", cuCtxAttach(std::ptr::null_mut(), 0));
    c.ok("detach", cuCtxDetach(context));
    c.yes("still current", current(c) == context);
    alloc(c, 16);
    c.ok("detach again", cuCtxDetach(context));
    c.same("the current one", current(c), CUcontext::NULL);
}

/// Only the current context is detached.
fn detach_of_others(c: &Case) {
    start(c);
    let first = create(c);
    create(c);
    c.expect("not current", cuCtxDetach(first), Code::INVALID_CONTEXT);
    let result = cuCtxDetach(CUcontext::NULL);
    c.expect("null", result, Code::INVALID_CONTEXT);
}

/// The primary context is released; to detach it has no effect.
fn detach_of_the_primary_context(c: &Case) {
    let context = primary(c);
    c.ok("detach", cuCtxDetach(context));
    c.yes("still current", current(c) == context);
    c.same("whether it is active", state(c, 0).1, 1);
    alloc(c, 16);
}

fn id(c: &Case, context: CUcontext) -> u64 {
    let mut id = 0;
    c.ok("cuCtxGetId", cuCtxGetId(context, &mut id));
    id
}

/// Every context has an id of its own; null is the current context.
fn ids(c: &Case) {
    start(c);
    let mut number = 0;
    let result = cuCtxGetId(CUcontext::NULL, &mut number);
    c.expect("without one", result, Code::INVALID_CONTEXT);
    let first = create(c);
    let second = create(c);
    let (one, two) = (id(c, first), id(c, second));
    c.yes("the ids differ", one != two);
    c.same("the current one's", id(c, CUcontext::NULL), two);
    c.invalid("null", cuCtxGetId(first, std::ptr::null_mut()));
}

/// The device of any context, current or not.
fn device_of_a_context(c: &Case) {
    start(c);
    let mut device = -1;
    let result = cuCtxGetDevice_v2(&mut device, CUcontext::NULL);
    c.expect("without one", result, Code::INVALID_CONTEXT);
    let first = create(c);
    create(c);
    c.ok("not current", cuCtxGetDevice_v2(&mut device, first));
    c.same("its device", device, 0);
    c.ok("current", cuCtxGetDevice_v2(&mut device, CUcontext::NULL));
    c.invalid("null", cuCtxGetDevice_v2(std::ptr::null_mut(), first));
}

/// Waits for all work of a context, current or not.
fn synchronize_a_context(c: &Case) {
    start(c);
    let result = cuCtxSynchronize_v2(CUcontext::NULL);
    c.expect("without one", result, Code::INVALID_CONTEXT);
    let first = create(c);
    let (ptr, source) = (alloc(c, MIB), pinned(c, MIB));
    let stream = independent(c);
    for _ in 0..8 {
        c.ok("copy", cuMemcpyHtoDAsync_v2(ptr, source, MIB, stream));
    }
    create(c);
    c.ok("not current", cuCtxSynchronize_v2(first));
    c.ok("its stream is idle", cuStreamQuery(stream));
    c.ok("current", cuCtxSynchronize_v2(CUcontext::NULL));
}

/// Without the Multi-Process Service a context may use every multiprocessor.
fn affinity_of_the_current_context(c: &Case) {
    let device = start(c);
    let mut own = affinity(0);
    let result = cuCtxGetExecAffinity(&mut own, 0);
    c.expect("without one", result, Code::INVALID_CONTEXT);
    create(c);
    c.ok("processors", cuCtxGetExecAffinity(&mut own, 0));
    let mut count = 0;
    let which = device_attribute::MULTIPROCESSOR_COUNT;
    c.ok("all", cuDeviceGetAttribute(&mut count, which, device));
    // SAFETY: it is the affinity of this kind.
    c.same("the number", unsafe { own.param.smCount.val } as i32, count);
    let result = cuCtxGetExecAffinity(&mut own, 7);
    c.expect("kind 7", result, Code::UNSUPPORTED_EXEC_AFFINITY);
    let mut supported = 7;
    let result = cuDeviceGetExecAffinitySupport(&mut supported, 0, device);
    c.ok("cuDeviceGetExecAffinitySupport", result);
    c.same("whether it can be chosen", supported, 0);
}
