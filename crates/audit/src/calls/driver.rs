//! `cuInit`, and the lookup of functions.

use std::ffi::{c_char, c_void};

use cuguard_sys::*;

use super::Call;
use crate::intercept::proc_address;

type Init = unsafe extern "C" fn(u32) -> CUresult;

/// `cuInit`
pub(crate) unsafe fn init(_: &Call, real: Init, flags: u32) -> CUresult {
    // SAFETY: as the caller guarantees.
    unsafe { real(flags) }
}

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64) -> CUresult;

/// `cuGetProcAddress`
pub(crate) unsafe fn get_proc_address(
    _: &Call,
    real: GetProcAddress,
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(symbol, out, cuda_version, flags) };
    if result.is_success() {
        // SAFETY: the driver accepted the arguments.
        unsafe { proc_address::replace(symbol, out, cuda_version, flags) };
    }
    result
}

type GetProcAddressV2 = unsafe extern "C" fn(
    *const c_char,
    *mut *mut c_void,
    i32,
    u64,
    *mut CUdriverProcAddressQueryResult,
) -> CUresult;

/// `cuGetProcAddress_v2`
pub(crate) unsafe fn get_proc_address_v2(
    _: &Call,
    real: GetProcAddressV2,
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(symbol, out, cuda_version, flags, status) };
    if result.is_success() {
        // SAFETY: the driver accepted the arguments.
        unsafe { proc_address::replace(symbol, out, cuda_version, flags) };
    }
    result
}
