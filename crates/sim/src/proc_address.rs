//! `cuGetProcAddress`, in both versions. Not in `api`: it looks up the C functions.

#![allow(non_snake_case, reason = "the functions keep the driver's names")]

use std::ffi::{CStr, c_char, c_void};

use cuguard_sys::{
    CUdriverProcAddressQueryResult, CUresult, DefaultStream, FunctionInfo,
    driver_proc_address_flags, driver_proc_address_query_result as status,
};

use crate::api::{VERSION, write_optional, write_out};
use crate::entry_points::lookup;
use crate::result::{DriverResult, valid};

/// The function for a program that was built for `cuda_version`: the newest version of it that was
/// introduced by then. A later version may have another signature.
///
/// The error says why there is none.
fn find(symbol: &str, cuda_version: i32, flags: u64) -> Result<&'static FunctionInfo, u32> {
    let newest = |stream| {
        let mut known = FunctionInfo::versions(symbol, stream)
            .filter(|f| f.since <= VERSION)
            .peekable();
        known.peek().ok_or(status::SYMBOL_NOT_FOUND)?;
        let fitting = known.filter(|f| f.since <= cuda_version).last();
        fitting.ok_or(status::VERSION_NOT_SUFFICIENT)
    };
    let legacy = newest(DefaultStream::Legacy);
    // Most functions have no variant for the thread's own default stream: then there is one for both.
    match flags & u64::from(driver_proc_address_flags::PER_THREAD_DEFAULT_STREAM) {
        0 => legacy,
        _ => newest(DefaultStream::PerThread).or(legacy),
    }
}

/// # Safety
///
/// `symbol` is null or a C string, `out` null or valid for a write.
unsafe fn get(
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
) -> DriverResult<u32> {
    valid(!symbol.is_null() && !out.is_null())?;
    // SAFETY: not null, so a C string by the caller's guarantee.
    let symbol = unsafe { CStr::from_ptr(symbol) }.to_string_lossy();
    let found = find(&symbol, cuda_version, flags);
    let address = found.ok().and_then(|function| lookup(function.name));
    let address = address.map_or(std::ptr::null_mut(), <*const c_void>::cast_mut);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, address) }?;
    Ok(found.err().unwrap_or(status::SUCCESS))
}

pub unsafe fn cuGetProcAddress(
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    match unsafe { get(symbol, out, cuda_version, flags) }? {
        status::SUCCESS => Ok(()),
        _ => Err(CUresult::NOT_FOUND),
    }
}

/// Succeeds for unknown functions too: writes null and a status for them.
pub unsafe fn cuGetProcAddress_v2(
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
    symbol_status: *mut CUdriverProcAddressQueryResult,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let status = unsafe { get(symbol, out, cuda_version, flags) }?;
    // SAFETY: as the caller guarantees.
    unsafe { write_optional(symbol_status, status) };
    Ok(())
}
