//! `cuGetProcAddress`, in both versions. Not in `api`: it looks up the C functions.

#![allow(non_snake_case, reason = "the functions keep the driver's names")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use cuguard_sys::{
    CUdriverProcAddressQueryResult, CUresult, DefaultStream, FunctionInfo,
    driver_proc_address_flags as flag, driver_proc_address_query_result as status,
};

use crate::api::{VERSION, write_optional, write_out};
use crate::entry_points::{is_exported, lookup};
use crate::result::{DriverResult, valid};

/// The function for a program that was built for `cuda_version`: the newest version of it that was
/// introduced by then. A later version may have another signature.
///
/// The error says why there is none.
fn find(symbol: &str, cuda_version: i32, flags: u64) -> Result<&'static FunctionInfo, u32> {
    let versions = |stream| FunctionInfo::versions(symbol, stream).filter(|f| is_exported(f));
    // Where there are variants for the thread's own default stream, no other function will do.
    let per_thread = flags & u64::from(flag::PER_THREAD_DEFAULT_STREAM) != 0;
    let stream = match versions(DefaultStream::PerThread).next() {
        Some(_) if per_thread => DefaultStream::PerThread,
        _ => DefaultStream::Legacy,
    };
    let mut known = versions(stream).peekable();
    known.peek().ok_or(status::SYMBOL_NOT_FOUND)?;
    // A real driver compares without sign: a negative version is newer than all.
    let introduced = |f: &&FunctionInfo| f.since as u32 <= cuda_version as u32;
    let newest = known.filter(introduced).last();
    newest.ok_or(status::VERSION_NOT_SUFFICIENT)
}

/// A version newer than the driver's, and unknown flags, are errors.
fn check(cuda_version: i32, flags: u64) -> DriverResult {
    let known = u64::from(flag::LEGACY_STREAM | flag::PER_THREAD_DEFAULT_STREAM);
    valid(cuda_version <= VERSION && flags & !known == 0)
}

/// The function that `cuGetProcAddress` returns for these arguments.
///
/// ```
/// let function = |version| cuguard_sim::proc_address("cuCtxCreate", version, 0).unwrap().name;
/// assert_eq!(function(12_000), "cuCtxCreate_v3");
/// assert_eq!(function(13_000), "cuCtxCreate_v4");
/// ```
#[must_use]
pub fn proc_address(symbol: &str, cuda_version: i32, flags: u64) -> Option<&'static FunctionInfo> {
    check(cuda_version, flags).ok()?;
    find(symbol, cuda_version, flags).ok()
}

/// The function's address, or the reason why there is none. Null arguments, with which a real driver crashes,
/// are errors.
///
/// # Safety
///
/// `symbol` is null or a C string.
unsafe fn get(
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
) -> DriverResult<Result<*mut c_void, u32>> {
    check(cuda_version, flags)?;
    valid(!symbol.is_null() && !out.is_null())?;
    // SAFETY: not null, so a C string by the caller's guarantee.
    let symbol = unsafe { CStr::from_ptr(symbol) }.to_string_lossy();
    let found = find(&symbol, cuda_version, flags);
    let address = |f: &FunctionInfo| lookup(f.name).map_or(ptr::null_mut(), <*const _>::cast_mut);
    Ok(found.map(address))
}

/// Writes nothing for a function that it does not find.
pub unsafe fn cuGetProcAddress(
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let found = unsafe { get(symbol, out, cuda_version, flags) }?;
    let address = found.map_err(|_| CUresult::NOT_FOUND)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, address) }
}

/// Succeeds for a function that it does not find too: writes null and a status.
pub unsafe fn cuGetProcAddress_v2(
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
    symbol_status: *mut CUdriverProcAddressQueryResult,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let found = unsafe { get(symbol, out, cuda_version, flags) }?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, found.unwrap_or(ptr::null_mut())) }?;
    // SAFETY: as the caller guarantees.
    unsafe { write_optional(symbol_status, found.err().unwrap_or(status::SUCCESS)) };
    Ok(())
}
