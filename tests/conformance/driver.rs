//! The driver's functions as the cases call them.
//!
//! Each calls the driver's function of the same name, without `unsafe`: a case passes valid pointers
//! for what the driver writes. Other arguments may be wrong: the driver must return an error, or may end
//! the process of the case.

#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "the driver's own functions"
)]
#![allow(
    dead_code,
    reason = "the list of functions is longer than what the cases need"
)]

pub(crate) use cuguard_sys::*;

macro_rules! wrap {
    ($(fn $name:ident($($parameter:ident: $type:ty),*);)*) => {$(
        pub(crate) fn $name($($parameter: $type),*) -> CUresult {
            // SAFETY: the cases pass pointers that are null or valid for what the function reads
            // and writes through them; everything else is what the case is about.
            unsafe { cuguard::driver::api::$name($($parameter),*) }
        }
    )*};
}

cuguard_sys::with_functions!(wrap);

/// Reads a byte of memory that host and device share.
pub(crate) fn peek(address: u64) -> u8 {
    // SAFETY: the cases pass addresses within pinned, registered or managed memory that is alive.
    unsafe { (address as *const u8).read_volatile() }
}

/// Writes a byte of memory that host and device share.
pub(crate) fn poke(address: u64, value: u8) {
    // SAFETY: the cases pass addresses within pinned, registered or managed memory that is alive.
    unsafe { (address as *mut u8).write_volatile(value) }
}

/// The nodes at an address that the driver returned.
pub(crate) fn handles(nodes: *const CUgraphNode, count: usize) -> Vec<CUgraphNode> {
    if nodes.is_null() || count == 0 {
        return Vec::new();
    }
    // SAFETY: the cases pass a list that the driver has just returned.
    unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec()
}

/// A string of the driver, or `None` for a null pointer.
pub(crate) fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the driver's strings are NUL-terminated and static.
    let text = unsafe { std::ffi::CStr::from_ptr(pointer) };
    Some(text.to_string_lossy().into_owned())
}

/// The driver for running the corpus of kernels.
pub(crate) fn for_kernels() -> cuguard_kernels::Driver {
    use cuguard::driver::api::*;
    cuguard_kernels::Driver {
        cuInit,
        cuDeviceGet,
        cuDeviceGetName,
        cuDevicePrimaryCtxRetain,
        cuDevicePrimaryCtxRelease_v2,
        cuCtxSetCurrent,
        cuCtxSynchronize,
        cuGetErrorName,
        cuMemAlloc_v2,
        cuMemFree_v2,
        cuMemcpyHtoD_v2,
        cuMemcpyDtoH_v2,
        cuModuleLoadDataEx,
        cuModuleUnload,
        cuModuleGetFunction,
        cuFuncSetAttribute,
        cuLaunchKernel,
        cuLaunchCooperativeKernel,
    }
}
