//! Starting the driver, its version, its errors, its functions by name.

use std::ffi::{CStr, c_char, c_void};

use cuguard_sys::{CUresult, NAMES};

use super::{put, valid};
use crate::machine::{self, Answer};

/// The version that the simulation's behaviour was measured on.
const VERSION: i32 = 13000;

pub(crate) unsafe fn cuInit(flags: u32) -> Answer {
    valid(flags == 0)?;
    machine::start()
}

pub(crate) unsafe fn cuDriverGetVersion(version: *mut i32) -> Answer {
    // SAFETY: as the caller promises.
    unsafe { put(version, VERSION) }
}

pub(crate) unsafe fn cuGetErrorName(error: CUresult, text: *mut *const c_char) -> Answer {
    let name = error.name_c().map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: as the caller promises.
    unsafe { put(text, name) }?;
    valid(!name.is_null())
}

pub(crate) unsafe fn cuGetErrorString(error: CUresult, text: *mut *const c_char) -> Answer {
    let words = error.text_c().map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: as the caller promises.
    unsafe { put(text, words) }?;
    valid(!words.is_null())
}

/// The version of CUDA that a function came with, as far as it matters to programs that ask:
/// stream-ordered memory and virtual memory are what they look for and do without.
fn introduced_in(symbol: &str) -> i32 {
    match symbol {
        "cuMemAllocAsync" | "cuMemFreeAsync" | "cuMemAllocFromPoolAsync" => 11020,
        _ if symbol.starts_with("cuMemPool") || symbol.ends_with("MemPool") => 11020,
        "cuMemAddressReserve"
        | "cuMemAddressFree"
        | "cuMemCreate"
        | "cuMemRelease"
        | "cuMemMap"
        | "cuMemUnmap"
        | "cuMemSetAccess"
        | "cuMemGetAccess" => 10020,
        _ if symbol.starts_with("cuGraph") || symbol == "cuLaunchHostFunc" => 10000,
        _ => 0,
    }
}

/// The flag by which a program asks for functions whose default stream is the thread's own.
const PER_THREAD_DEFAULT_STREAM: u64 = 2;

/// Names come without their version here: `cuMemAlloc` is `cuMemAlloc_v2`.
///
/// Functions whose default stream is the thread's own are not simulated, and to hand out the others
/// instead would be wrong in silence: whoever asks for them finds nothing. Other flags make no
/// difference.
pub(crate) unsafe fn cuGetProcAddress(
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
) -> Answer {
    valid(!symbol.is_null())?;
    // SAFETY: not null, so a C string by the caller's promise.
    let symbol = unsafe { CStr::from_ptr(symbol) }.to_string_lossy();
    let versioned = [format!("{symbol}_v2"), format!("{symbol}_v3")];
    let known = |name: &str| NAMES.contains(&name);
    let found = match versioned.iter().find(|name| known(name)) {
        Some(name) => crate::lookup(name),
        None if symbol.ends_with("_v2") || symbol.ends_with("_v3") => None,
        None => crate::lookup(&symbol),
    };
    let found = found.filter(|_| cuda_version >= introduced_in(&symbol));
    let found = found.filter(|_| flags & PER_THREAD_DEFAULT_STREAM == 0);
    // SAFETY: as the caller promises.
    unsafe {
        put(
            out,
            found.map_or(std::ptr::null_mut(), <*const c_void>::cast_mut),
        )
    }?;
    found.map(|_| ()).ok_or(CUresult::NOT_FOUND)
}
