//! What is left after a kernel wrote to an address that is not allocated.
//!
//! Row: a kernel writes to a bad address: the next synchronise returns ILLEGAL_ADDRESS, and so
//! does every later call. Release or destroy of the context succeeds, yet no new context can be
//! had in this process.

use std::time::Duration;

use crate::case::Case;
use crate::cases::kernels;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"sticky":
    memory,
    streams_and_events,
    still_answered,
    modules,
    loaded_module,
    other_contexts,
    no_new_context,
    noticed_without_synchronise,
    other_threads,
}

const WANT: Code = Code::ILLEGAL_ADDRESS;

/// Has a kernel write to address 16.
fn write_to_nowhere(c: &Case) {
    let module = kernels::load(c, kernels::FAULT);
    let function = kernels::function(c, module, c"write_to");
    let mut address = 16_u64;
    let result = kernels::launch(function, 1, 1, &mut [(&raw mut address).cast()]);
    c.require("cuLaunchKernel", result);
}

/// Breaks the current context and synchronises, twice.
fn corrupt(c: &Case) {
    write_to_nowhere(c);
    c.expect("the first synchronise", cuCtxSynchronize(), WANT);
    c.expect("the second synchronise", cuCtxSynchronize(), WANT);
}

/// Nothing can be allocated, freed, copied or asked about memory.
fn memory(c: &Case) {
    primary(c);
    let (mut ptr, stream) = (alloc(c, 4096), independent(c));
    let mut ordered = alloc_async(c, 4096, stream);
    let mut p = pinned(c, 4096);
    let m: *mut c_void = pages(8192).cast();
    c.require("register", cuMemHostRegister_v2(m, 8192, 0));
    synchronize(c);
    corrupt(c);
    c.expect("cuMemFree", cuMemFree_v2(ptr), WANT);
    c.expect("cuMemAlloc", cuMemAlloc_v2(&mut ptr, 16), WANT);
    c.expect("cuMemFreeAsync", cuMemFreeAsync(ordered, stream), WANT);
    c.expect(
        "cuMemAllocAsync",
        cuMemAllocAsync(&mut ordered, 16, stream),
        WANT,
    );
    c.expect("cuMemFreeHost", cuMemFreeHost(p), WANT);
    c.expect("cuMemHostAlloc", cuMemHostAlloc(&mut p, 16, 0), WANT);
    c.expect("cuMemHostUnregister", cuMemHostUnregister(m), WANT);
    c.expect(
        "cuMemcpyHtoD",
        cuMemcpyHtoD_v2(ptr, m.cast_const(), 16),
        WANT,
    );
    let (mut free, mut total) = (0, 0);
    c.expect("cuMemGetInfo", cuMemGetInfo_v2(&mut free, &mut total), WANT);
}

/// Nothing can be done with streams and events, not even destroy them.
fn streams_and_events(c: &Case) {
    primary(c);
    let (stream, event, mut new) = (independent(c), event(c, 0), CUstream::NULL);
    corrupt(c);
    c.expect("cuStreamQuery", cuStreamQuery(stream), WANT);
    c.expect("cuStreamSynchronize", cuStreamSynchronize(stream), WANT);
    c.expect("cuStreamCreate", cuStreamCreate(&mut new, 0), WANT);
    c.expect("cuStreamDestroy", cuStreamDestroy_v2(stream), WANT);
    c.expect("cuEventQuery", cuEventQuery(event), WANT);
    c.expect("cuEventRecord", cuEventRecord(event, CUstream::NULL), WANT);
    c.expect("cuEventDestroy", cuEventDestroy_v2(event), WANT);
}

/// The context stack, the devices and the pools still work.
fn still_answered(c: &Case) {
    let context = primary(c);
    let (pool, mut ptr) = (default_pool(c), alloc(c, 4096));
    corrupt(c);
    c.expect("cuMemAlloc", cuMemAlloc_v2(&mut ptr, 16), WANT);
    let (mut other, mut device, mut number) = (CUcontext::NULL, 0, 0);
    c.ok("cuCtxGetCurrent", cuCtxGetCurrent(&mut other));
    c.yes("it is the context", other == context);
    c.ok("cuCtxSetCurrent to null", cuCtxSetCurrent(CUcontext::NULL));
    c.ok("cuCtxSetCurrent", cuCtxSetCurrent(context));
    c.ok("cuCtxPushCurrent", cuCtxPushCurrent_v2(context));
    c.ok("cuCtxPopCurrent", cuCtxPopCurrent_v2(&mut other));
    c.ok("cuCtxGetDevice", cuCtxGetDevice(&mut device));
    c.ok("cuDeviceGetCount", cuDeviceGetCount(&mut number));
    c.ok("cuDriverGetVersion", cuDriverGetVersion(&mut number));
    c.ok("cuDeviceGet", cuDeviceGet(&mut device, 0));
    c.ok(
        "cuDeviceGetAttribute",
        cuDeviceGetAttribute(&mut number, 1, 0),
    );
    let mut bytes = 0;
    c.ok("cuDeviceTotalMem", cuDeviceTotalMem_v2(&mut bytes, 0));
    c.same(
        "the primary context's flags, and whether it is active",
        state(c, 0),
        (0, 1),
    );
    let mut value = 0_u64;
    let place: *mut c_void = (&raw mut value).cast();
    let reserved = pool_attribute::RESERVED_MEM_CURRENT;
    c.ok(
        "cuMemPoolGetAttribute",
        cuMemPoolGetAttribute(pool, reserved, place),
    );
    c.ok("cuMemPoolTrimTo", cuMemPoolTrimTo(pool, 0));
    let kind = pointer_attribute::MEMORY_TYPE;
    let result = cuPointerGetAttribute(place, kind, ptr);
    c.invalid("cuPointerGetAttribute of that address", result);
    c.expect("cuCtxGetLimit", cuCtxGetLimit(&mut bytes, 0), WANT);
    let mut flags = 0;
    c.ok("cuCtxGetFlags", cuCtxGetFlags(&mut flags));
    c.ok("cuInit", cuInit(0));
}

/// No module can be loaded.
fn modules(c: &Case) {
    primary(c);
    corrupt(c);
    let mut module = CUmodule::NULL;
    let result = kernels::load_result(&mut module, kernels::SPIN);
    c.expect("cuModuleLoadData", result, WANT);
}

/// A module that was loaded before cannot be unloaded.
fn loaded_module(c: &Case) {
    primary(c);
    let mut module = CUmodule::NULL;
    let result = kernels::load_result(&mut module, kernels::SPIN);
    c.ok("cuModuleLoadData", result);
    corrupt(c);
    c.expect("cuModuleUnload", cuModuleUnload(module), WANT);
}

/// Every other context of the process is broken too; it can be destroyed.
fn other_contexts(c: &Case) {
    let context = primary(c);
    let other = create(c);
    let (theirs, mut ptr) = (alloc(c, 4096), 0);
    c.require("cuCtxSetCurrent", cuCtxSetCurrent(context));
    corrupt(c);
    c.ok("make the other context current", cuCtxSetCurrent(other));
    c.expect("cuCtxSynchronize", cuCtxSynchronize(), WANT);
    c.expect("cuMemAlloc", cuMemAlloc_v2(&mut ptr, 16), WANT);
    c.expect("cuMemFree", cuMemFree_v2(theirs), WANT);
    let (mut free, mut total) = (0, 0);
    c.expect("cuMemGetInfo", cuMemGetInfo_v2(&mut free, &mut total), WANT);
    c.ok("cuCtxDestroy", cuCtxDestroy_v2(other));
}

/// The context can be released and reset, but nothing brings a working one back.
fn no_new_context(c: &Case) {
    let context = primary(c);
    let ptr = alloc(c, 4096);
    corrupt(c);
    c.ok("release", cuDevicePrimaryCtxRelease_v2(0));
    c.same("flags and activity then", state(c, 0), (0, 0));
    let mut new = CUcontext::NULL;
    c.expect("retain", cuDevicePrimaryCtxRetain(&mut new, 0), WANT);
    c.expect("create", cuCtxCreate_v2(&mut new, 0, 0), WANT);
    c.ok("reset", cuDevicePrimaryCtxReset_v2(0));
    c.expect(
        "retain after the reset",
        cuDevicePrimaryCtxRetain(&mut new, 0),
        WANT,
    );
    let result = cuDevicePrimaryCtxRelease_v2(0);
    c.expect("release once too often", result, Code::INVALID_CONTEXT);
    c.expect("cuMemFree", cuMemFree_v2(ptr), Code::CONTEXT_IS_DESTROYED);
    c.yes("the context is still current", current(c) == context);
    let (mut count, mut device) = (0, 0);
    c.ok("cuDeviceGetCount", cuDeviceGetCount(&mut count));
    c.ok("cuDeviceGet", cuDeviceGet(&mut device, 0));
}

/// Nobody need synchronise: a little later every call knows.
fn noticed_without_synchronise(c: &Case) {
    primary(c);
    write_to_nowhere(c);
    std::thread::sleep(Duration::from_millis(200));
    let (mut ptr, mut new) = (0, CUcontext::NULL);
    c.expect("cuMemAlloc", cuMemAlloc_v2(&mut ptr, 16), WANT);
    c.expect("cuStreamQuery", cuStreamQuery(CUstream::NULL), WANT);
    c.expect("cuCtxSynchronize", cuCtxSynchronize(), WANT);
    c.expect("cuCtxCreate", cuCtxCreate_v2(&mut new, 0, 0), WANT);
}

/// Other threads get the same results.
fn other_threads(c: &Case) {
    let context = primary(c);
    let ptr = alloc(c, 4096);
    corrupt(c);
    crate::host::on_another_thread(|| {
        c.ok("cuCtxSetCurrent", cuCtxSetCurrent(context));
        c.expect("cuMemFree", cuMemFree_v2(ptr), WANT);
        c.expect("cuCtxSynchronize", cuCtxSynchronize(), WANT);
    });
}
