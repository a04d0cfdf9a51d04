//! `cuGetProcAddress`: which version of a function a program gets that was built for a version of CUDA.

use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::driver_proc_address_flags::{LEGACY_STREAM, PER_THREAD_DEFAULT_STREAM};
use crate::driver::driver_proc_address_query_result as status;
use crate::driver::*;
use crate::tools::*;

cases! {"proc_address":
    every_version_of_every_function,
    functions_that_changed,
    names_that_are_not_found,
    versions_asked_for,
    flags_asked_for,
    the_device_that_was_asked_for,
}

/// The version of CUDA that the driver supports.
fn driver_version(c: &Case) -> i32 {
    let mut version = 0;
    c.require("cuDriverGetVersion", cuDriverGetVersion(&mut version));
    version
}

/// What is in the places to write to before a call.
const UNTOUCHED: *mut c_void = 0x1234 as *mut c_void;
const NO_STATUS: u32 = 77;

/// The code of `cuGetProcAddress_v2`, the address and the status that it wrote.
fn ask(name: &CStr, version: i32, flags: u64) -> (Code, *mut c_void, u32) {
    let (mut found, mut status) = (UNTOUCHED, NO_STATUS);
    let code = cuGetProcAddress_v2(name.as_ptr(), &mut found, version, flags, &mut status);
    (code, found, status)
}

/// The code of `cuGetProcAddress`, of CUDA 11.3, and the address that it wrote.
fn ask_older(name: &CStr, version: i32, flags: u64) -> (Code, *mut c_void) {
    let mut found = UNTOUCHED;
    let code = cuGetProcAddress(name.as_ptr(), &mut found, version, flags);
    (code, found)
}

/// Only drivers of integrated GPUs have it.
const NOT_EXPORTED: &str = "cuEventCreateFromEGLSync";

/// The functions of the list that a driver of this version has.
fn known(version: i32) -> impl Iterator<Item = &'static FunctionInfo> {
    let older = FUNCTIONS.iter().filter(move |f| f.since <= version);
    older.filter(|f| f.name != NOT_EXPORTED)
}

/// The exported name of the function that the list has for a program that was built for `version`. With the flag
/// for it, only the variants for the thread's own default stream count, where there are any.
fn listed(driver: i32, base: &str, version: i32, flags: u64) -> Option<&'static str> {
    let versions =
        |stream| known(driver).filter(move |f| f.base == base && f.default_stream == stream);
    let stream = match versions(DefaultStream::PerThread).next() {
        Some(_) if flags & 2 != 0 => DefaultStream::PerThread,
        _ => DefaultStream::Legacy,
    };
    let versions = versions(stream).filter(|f| f.since <= version);
    versions.last().map(|f| f.name)
}

/// For every function, at the version that brought it and just before: the address is that of the exported name
/// that the list says, or null.
fn every_version_of_every_function(c: &Case) {
    start(c);
    let driver = match cuguard::driver::load() {
        Ok(driver) => driver,
        Err(error) => c.stop(error),
    };
    let newest = driver_version(c);
    let mut differences = Vec::new();
    let lookups = known(newest).flat_map(|f| [(f, f.since - 1), (f, f.since)]);
    for (function, version) in lookups {
        let name = CString::new(function.base).unwrap_or_default();
        for flags in [0, 1, 2, 3] {
            let want = listed(newest, function.base, version, flags);
            let symbol = want.and_then(|name| driver.symbol(name)).unwrap_or(null());
            let outcome = match want {
                Some(_) => status::SUCCESS,
                None => status::VERSION_NOT_SUFFICIENT,
            };
            if ask(&name, version, flags) != (Code::SUCCESS, symbol.cast_mut(), outcome) {
                differences.push(format!("{} at {version}, flags {flags}", function.base));
            }
            let outcome = match want {
                Some(_) => (Code::SUCCESS, symbol.cast_mut()),
                None => (Code::NOT_FOUND, UNTOUCHED),
            };
            if ask_older(&name, version, flags) != outcome {
                differences.push(format!("v1: {} at {version}, flags {flags}", function.base));
            }
        }
    }
    c.same("lookups that differ from the list", differences, Vec::new());
}

/// The functions that exist in several versions, up to CUDA 13.0: each version is found at the version of CUDA
/// that brought it.
fn functions_that_changed(c: &Case) {
    start(c);
    let driver = match cuguard::driver::load() {
        Ok(driver) => driver,
        Err(error) => c.stop(error),
    };
    let newest = driver_version(c).min(13_000);
    for function in known(newest) {
        let same = |f: &&FunctionInfo| {
            (f.base, f.default_stream) == (function.base, function.default_stream)
        };
        if known(newest).filter(same).count() == 1 {
            continue;
        }
        let flags = match function.default_stream {
            DefaultStream::Legacy => LEGACY_STREAM,
            DefaultStream::PerThread => PER_THREAD_DEFAULT_STREAM,
        };
        let name = CString::new(function.base).unwrap_or_default();
        let (_, found, _) = ask(&name, function.since, flags.into());
        c.yes(
            format_args!(
                "{} of {} is {}",
                function.base, function.since, function.name
            ),
            driver.symbol(function.name) == Some(found.cast_const()),
        );
    }
}

/// A function that is not found: the newer `cuGetProcAddress` succeeds, writes null and says why, the older one
/// fails and writes nothing. Names have neither a version nor a suffix.
fn names_that_are_not_found(c: &Case) {
    let newest = driver_version(c);
    for name in [
        c"",
        c"cuNoSuchFunction",
        c"cumemalloc",
        c"cuMemAlloc ",
        c"cuMemAll",
        c"cuMemAlloc_v2",
        c"cuCtxCreate_v4",
        c"cuMemcpy_ptds",
        c"cuMemcpyHtoD_v2_ptds",
        c"cuGetProcAddress_v2",
        c"cudaMalloc",
        c"cuEventCreateFromEGLSync",
    ] {
        for (version, flags) in [(newest, 0), (newest, 2), (0, 0)] {
            let what = format!("{name:?}, flags {flags}, an old version: {}", version == 0);
            let want = (Code::SUCCESS, null_mut(), status::SYMBOL_NOT_FOUND);
            c.same(&what, ask(name, version, flags), want);
            c.same(
                &what,
                ask_older(name, version, flags),
                (Code::NOT_FOUND, UNTOUCHED),
            );
        }
    }
    let mut found = UNTOUCHED;
    let result = cuGetProcAddress_v2(c"nonsense".as_ptr(), &mut found, newest, 0, null_mut());
    c.ok("a name that is not found, without a status", result);
    c.yes("null is written", found.is_null());
    let result = cuGetProcAddress_v2(c"cuInit".as_ptr(), &mut found, newest, 0, null_mut());
    c.ok("a name that is found, without a status", result);
    c.no("null is written", found.is_null());
}

/// The version: a function that came later is not found, one that is newer than the driver's own is an error, and
/// a negative one is newer than all.
fn versions_asked_for(c: &Case) {
    let newest = driver_version(c);
    let too_old = (Code::SUCCESS, null_mut(), status::VERSION_NOT_SUFFICIENT);
    for version in [0, 1, 13, 1_999] {
        c.same(
            format_args!("cuInit of {version}"),
            ask(c"cuInit", version, 0),
            too_old,
        );
        let older = ask_older(c"cuInit", version, 0);
        c.same(
            format_args!("by the older function"),
            older,
            (Code::NOT_FOUND, UNTOUCHED),
        );
    }
    c.same(
        "cuMemAllocAsync of 11.1",
        ask(c"cuMemAllocAsync", 11_010, 0),
        too_old,
    );
    let refused = (Code::INVALID_VALUE, UNTOUCHED, NO_STATUS);
    for more in [1, 10, 1_000, i32::MAX - newest] {
        let what = "a version above the driver's";
        c.same(what, ask(c"cuInit", newest + more, 0), refused);
        c.same(what, ask(c"nonsense", newest + more, 0), refused);
        let older = ask_older(c"cuInit", newest + more, 0);
        c.same(what, older, (Code::INVALID_VALUE, UNTOUCHED));
    }
    let own = ask(c"cuCtxCreate", newest, 0);
    for version in [-1, i32::MIN] {
        let same = ask(c"cuCtxCreate", version, 0) == own;
        c.yes(format_args!("version {version} gets the newest"), same);
    }
}

/// Unknown flags are an error, whatever the name. With both known ones, the thread's own default stream wins.
fn flags_asked_for(c: &Case) {
    let newest = driver_version(c);
    let refused = (Code::INVALID_VALUE, UNTOUCHED, NO_STATUS);
    for flags in [
        4,
        5,
        6,
        7,
        8,
        16,
        64,
        1 << 31,
        1 << 32,
        1 << 32 | 2,
        1 << 63,
        u64::MAX,
    ] {
        for name in [c"cuMemcpy", c"cuMemAlloc", c"nonsense", c""] {
            c.same(
                format_args!("{name:?}, flags {flags:#x}"),
                ask(name, newest, flags),
                refused,
            );
        }
        let older = ask_older(c"cuMemcpy", newest, flags);
        c.same(
            "by the older function",
            older,
            (Code::INVALID_VALUE, UNTOUCHED),
        );
    }
    let plain = ask(c"cuMemcpy", newest, 0);
    let own = ask(c"cuMemcpy", newest, 2);
    c.yes(
        "the legacy stream is the default",
        ask(c"cuMemcpy", newest, 1) == plain,
    );
    c.no("the thread's own stream has another function", own == plain);
    c.yes(
        "both flags mean the thread's own",
        ask(c"cuMemcpy", newest, 3) == own,
    );
    let alike = ask(c"cuMemAlloc", newest, 2) == ask(c"cuMemAlloc", newest, 0);
    c.yes("a function without a variant is the same", alike);
    let too_old = (Code::SUCCESS, null_mut(), status::VERSION_NOT_SUFFICIENT);
    c.same(
        "a variant of CUDA 7.0 at 6.5",
        ask(c"cuMemcpy", 6_050, 2),
        too_old,
    );
}

/// `cuCtxCreate` of CUDA 13.0 has another signature than that of 12.0: a caller who gets the older function
/// would create its context on another device.
fn the_device_that_was_asked_for(c: &Case) {
    start(c);
    let mut count = 0;
    c.require("cuDeviceGetCount", cuDeviceGetCount(&mut count));
    let (code, found, _) = ask(c"cuCtxCreate", 13_000, 0);
    c.require("cuCtxCreate of CUDA 13.0", code);
    if found.is_null() {
        c.stop("cuCtxCreate of CUDA 13.0 is not found");
    }
    type Create =
        unsafe extern "C" fn(*mut CUcontext, *mut CUctxCreateParams, u32, CUdevice) -> CUresult;
    // SAFETY: that is the signature of `cuCtxCreate` in CUDA 13.0.
    let create = unsafe { std::mem::transmute::<*mut c_void, Create>(found) };
    for device in 0..count {
        let (mut context, mut current) = (CUcontext::NULL, -1);
        // SAFETY: the context can be written to; there are no parameters.
        let result = unsafe { create(&mut context, null_mut(), 0, device) };
        c.require("context", result);
        c.require("cuCtxGetDevice", cuCtxGetDevice(&mut current));
        c.yes("its device is the one asked for", current == device);
        c.ok("cuCtxDestroy", cuCtxDestroy_v2(context));
    }
    // SAFETY: as above.
    let result = unsafe { create(&mut CUcontext::NULL.clone(), null_mut(), 0, count) };
    c.expect(
        "context on a device that does not exist",
        result,
        Code::INVALID_DEVICE,
    );
}
