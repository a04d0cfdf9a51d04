//! `cuGetProcAddress`: replaces the functions that the driver returns by their wrappers.

use std::ffi::{CStr, c_char, c_void};

use cuguard_sys::{
    CUdriverProcAddressQueryResult, CUresult, DefaultStream, FUNCTIONS, FunctionInfo,
    driver_proc_address_flags as flag,
};

use super::counted;
use super::table::Function;
use crate::calls::Call;
use crate::real;

/// Replaces what the driver found for a program.
///
/// # Safety
///
/// The driver accepted the arguments: `symbol` is a C string, and `out` can be read and written.
unsafe fn replace(symbol: *const c_char, out: *mut *mut c_void, cuda_version: i32, flags: u64) {
    if symbol.is_null() || out.is_null() {
        return;
    }
    // SAFETY: as the caller guarantees.
    let (symbol, found) = unsafe { (CStr::from_ptr(symbol), out.read_unaligned()) };
    if found.is_null() {
        return;
    }
    let named = by_name(symbol, cuda_version, flags);
    let newer = named.and_then(|named| newer_version(named, found));
    let wrapper = match (by_address(found, named), newer) {
        // Its arguments are not known.
        (_, Some(name)) => counted::stub(name.as_bytes(), found),
        (Some(function), None) => function.wrapper(),
        (None, None) => counted::stub(symbol.to_bytes(), found),
    };
    if !wrapper.is_null() {
        // SAFETY: as the caller guarantees.
        unsafe { out.write_unaligned(wrapper.cast_mut()) };
    }
}

/// The recorded function at an address. Two names may share one; then the name that the program asked for decides, and
/// also where the driver returns an address that it does not export.
fn by_address(found: *const c_void, named: Option<Function>) -> Option<Function> {
    if let Some(named) = named
        && named.target() == Some(found)
    {
        return Some(named);
    }
    let mut functions = Function::ALL.iter();
    let exported = functions.find(|function| function.target() == Some(found));
    let driver = real::driver()?;
    match exported {
        Some(function) => Some(*function),
        None => named.filter(|_| driver.contains(found as usize)),
    }
}

/// The name under which the driver exports a version of a function that is newer than those that are recorded, if that is what it
/// has found.
fn newer_version(known: Function, found: *const c_void) -> Option<String> {
    /// How many versions a driver may have more.
    const MORE: u32 = 8;
    if known.target() == Some(found) {
        return None;
    }
    let (driver, base) = (real::driver()?, FunctionInfo::named(known.name())?.base);
    let versions = FUNCTIONS.iter().filter(|function| function.base == base);
    let newest = versions.map(|function| function.version).max()?;
    let mut names = (newest + 1..=newest + MORE).flat_map(|version| {
        ["", "_ptsz", "_ptds"].map(|stream| format!("{base}_v{version}{stream}"))
    });
    names.find(|name| driver.function(name) == Some(found))
}

/// The recorded function that a name without version means: the newest version that was introduced by then.
fn by_name(symbol: &CStr, cuda_version: i32, flags: u64) -> Option<Function> {
    let symbol = symbol.to_str().ok()?;
    let versions = |stream| FunctionInfo::versions(symbol, stream);
    let per_thread = flags & u64::from(flag::PER_THREAD_DEFAULT_STREAM) != 0;
    let stream = match versions(DefaultStream::PerThread).next() {
        Some(_) if per_thread => DefaultStream::PerThread,
        _ => DefaultStream::Legacy,
    };
    // A driver compares without sign: a negative version is newer than all.
    let introduced = |f: &&FunctionInfo| f.since as u32 <= cuda_version as u32;
    let newest = versions(stream).filter(introduced).last()?;
    Function::named(newest.name.as_bytes())
}

type GetProcAddress =
    unsafe extern "C-unwind" fn(*const c_char, *mut *mut c_void, i32, u64) -> CUresult;

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
        unsafe { replace(symbol, out, cuda_version, flags) };
    }
    result
}

type GetProcAddressV2 = unsafe extern "C-unwind" fn(
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
        unsafe { replace(symbol, out, cuda_version, flags) };
    }
    result
}
