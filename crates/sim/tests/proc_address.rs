//! `cuGetProcAddress` on two devices: the function of the version asked for, never an older one.

use std::ffi::{CStr, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

use crate::common::*;
use cuguard_sim::{Config, configure, lookup};
use cuguard_sys::*;

fn two_devices() {
    static START: std::sync::Once = std::sync::Once::new();
    START.call_once(|| configure(Config::new().devices(2)).unwrap());
    ok(cu::cuInit(0));
}

fn find(name: &CStr, version: i32, flags: u64) -> *const c_void {
    let mut found = null_mut();
    ok(cu::cuGetProcAddress(
        name.as_ptr(),
        &mut found,
        version,
        flags,
    ));
    found
}

#[test]
fn a_context_is_created_on_the_device_asked_for() {
    let _turn = turn();
    two_devices();
    type Older = unsafe extern "C" fn(*mut CUcontext, u32, CUdevice) -> CUresult;
    type Newer =
        unsafe extern "C" fn(*mut CUcontext, *mut CUctxCreateParams, u32, CUdevice) -> CUresult;
    // SAFETY: the signatures of `cuCtxCreate` in CUDA 11.0 and 13.0.
    let (older, newer) = unsafe {
        (
            transmute::<*const c_void, Older>(find(c"cuCtxCreate", 11_000, 0)),
            transmute::<*const c_void, Newer>(find(c"cuCtxCreate", 13_000, 0)),
        )
    };
    for device in [0, 1, 1, 0] {
        let (mut first, mut second, mut current) = (CUcontext::NULL, CUcontext::NULL, -1);
        // SAFETY: the context can be written to; there are no parameters.
        ok(unsafe { older(&mut first, 0, device) });
        ok(cu::cuCtxGetDevice(&mut current));
        assert_eq!(current, device);
        // SAFETY: as above.
        ok(unsafe { newer(&mut second, null_mut(), 0, device) });
        ok(cu::cuCtxGetDevice(&mut current));
        assert_eq!(current, device);
        ok(cu::cuCtxDestroy_v2(second));
        ok(cu::cuCtxDestroy_v2(first));
    }
}

#[test]
fn the_per_thread_flag_finds_the_variant_for_the_threads_own_default_stream() {
    let name = c"cuMemcpyHtoDAsync";
    for (flags, exported) in [
        (0, "cuMemcpyHtoDAsync_v2"),
        (1, "cuMemcpyHtoDAsync_v2"),
        (2, "cuMemcpyHtoDAsync_v2_ptsz"),
    ] {
        let found = find(name, 13_000, flags);
        assert_eq!(Some(found), lookup(exported), "flags {flags}");
    }
    // A function without a variant.
    assert_eq!(
        Some(find(c"cuMemAlloc", 13_000, 2)),
        lookup("cuMemAlloc_v2")
    );
}

/// The simulated driver is of version 13.0.
#[test]
fn functions_newer_than_the_driver_are_not_found() {
    let newer = FUNCTIONS.iter().filter(|f| f.since > 13_000);
    for function in newer {
        assert!(lookup(function.name).is_none(), "{function:?}");
        let found = cuguard_sim::proc_address(function.base, 13_000, 0);
        assert!(found.is_none_or(|found| found.since <= 13_000), "{found:?}");
    }
    let mut found = null_mut();
    let code = cu::cuGetProcAddress(c"cuInit".as_ptr(), &mut found, 13_010, 0);
    assert_eq!((code, found), (CUresult::INVALID_VALUE, null_mut()));
}

/// A real driver crashes.
#[test]
fn null_arguments_are_errors() {
    let (mut found, mut status) = (null_mut(), 7);
    let (name, null) = (c"cuInit".as_ptr(), std::ptr::null());
    for code in [
        cu::cuGetProcAddress(null, &mut found, 13_000, 0),
        cu::cuGetProcAddress(name, null_mut(), 13_000, 0),
        cu::cuGetProcAddress_v2(null, &mut found, 13_000, 0, &mut status),
        cu::cuGetProcAddress_v2(name, null_mut(), 13_000, 0, &mut status),
    ] {
        assert_eq!(code, CUresult::INVALID_VALUE);
    }
    assert_eq!((found, status), (null_mut(), 7));
}

/// Contexts and memory with 32-bit addresses are not simulated.
#[test]
fn functions_of_cuda_2_do_not_create_what_they_cannot() {
    let _turn = turn();
    two_devices();
    let (mut context, mut memory) = (CUcontext::NULL, 7);
    assert_eq!(cu::cuCtxCreate(&mut context, 0, 0), CUresult::NOT_SUPPORTED);
    assert_eq!(cu::cuMemAlloc(&mut memory, 16), CUresult::NOT_SUPPORTED);
    assert_eq!((context, memory), (CUcontext::NULL, 7));
}
