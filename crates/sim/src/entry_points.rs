//! The C functions of the simulated driver, one for each of the 353 names, and what all calls have
//! in common: they are counted, faults can make them fail, and they fail in the states in which a
//! real driver fails.
//!
//! `crate::api` implements the functions. A function that is not simulated returns
//! `CUDA_ERROR_NOT_SUPPORTED`, never success.

#![allow(
    non_snake_case,
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the driver's own functions, documented by the driver"
)]

use std::ffi::{CStr, c_char, c_void};

use cuguard_sys::*;

use crate::functions::Function;
use crate::result::{DriverResult, valid};
use crate::{copy_engine, fault, process, state, thread_state};

#[doc(inline)]
pub use not_simulated::*;

/// What is common to all calls.
fn call(function: Function, body: impl FnOnce() -> DriverResult) -> CUresult {
    match admit(function).and_then(|()| body()) {
        // The device may have stopped after the call was admitted.
        Ok(()) if function.confirms_completion() => copy_engine::stopped(),
        Ok(()) => CUresult::SUCCESS,
        Err(code) => code,
    }
}

/// Fails where the driver's state does not allow a call.
fn admit(function: Function) -> DriverResult {
    function.count_call();
    if function.is_driver_query() {
        return Ok(());
    }
    if thread_state::in_host_function() {
        return Err(CUresult::NOT_PERMITTED);
    }
    // Before anything that takes a lock: a thread of the parent may have held it.
    if process::is_forked() {
        return Err(CUresult::NOT_INITIALIZED);
    }
    if !function.allocates() {
        fault::on_call(function)?;
    }
    if function == Function::cuInit {
        return Ok(());
    }
    if !process::is_running() {
        return Err(CUresult::NOT_INITIALIZED);
    }
    if !function.works_after_sticky_error()
        && let Err(code) = copy_engine::check_sticky_error()
    {
        // If the function uses the current context, its destruction is reported first.
        if !function.creates_context() {
            state::lock().check_current_if_any()?;
        }
        return Err(code);
    }
    Ok(())
}

/// The implementations that the functions below call.
mod implementation {
    pub(super) use super::get_proc_address as cuGetProcAddress;
    pub(super) use crate::api::*;
}

macro_rules! simulated {
    ($(fn $name:ident($($parameter:ident: $type:ty),*);)*) => {$(
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> CUresult {
            // SAFETY: the caller guarantees what the driver documents about the arguments.
            call(Function::$name, || unsafe { implementation::$name($($parameter),*) })
        }
    )*};
}
with_functions!(simulated);

/// A function for every name. Those that are simulated, above, shadow theirs.
mod not_simulated {
    #![allow(dead_code, reason = "the shadowed functions")]

    use super::{CUresult, Function, call};

    macro_rules! not_simulated {
        ($($name:ident)*) => {$(
            pub unsafe extern "C" fn $name() -> CUresult {
                call(Function::$name, || Err(CUresult::NOT_SUPPORTED))
            }
        )*};
    }
    cuguard_sys::with_names!(not_simulated);
}

/// The C function with this exported name, one of the 353.
///
/// ```
/// assert!(cuguard_sim::lookup("cuMemAlloc_v2").is_some());
/// assert!(cuguard_sim::lookup("cuNoSuchThing").is_none());
/// ```
#[must_use]
pub fn lookup(name: &str) -> Option<*const c_void> {
    macro_rules! by_name {
        ($($function:ident)*) => {
            match name {
                $(stringify!($function) => $function as *const c_void,)*
                _ => return None,
            }
        };
    }
    Some(with_names!(by_name))
}

/// The CUDA version that introduced a function, for those that programs look up and can do without:
/// stream-ordered and virtual memory.
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

/// `cuGetProcAddress`, which is here and not in `api` because it calls [`lookup`]. It takes names
/// without their version: `cuMemAlloc` is `cuMemAlloc_v2`.
///
/// Functions whose default stream is the per-thread one are not simulated. Returning the others
/// instead would be silently wrong, so a request for them finds nothing. Other flags are ignored.
///
/// # Safety
///
/// `symbol` is null or a C string, `out` null or valid for a write.
unsafe fn get_proc_address(
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
) -> DriverResult {
    const PER_THREAD_DEFAULT_STREAM: u64 = 2;
    valid(!symbol.is_null())?;
    // SAFETY: not null, so a C string by the caller's guarantee.
    let symbol = unsafe { CStr::from_ptr(symbol) }.to_string_lossy();
    let found = match ["_v2", "_v3"]
        .iter()
        .find_map(|v| lookup(&format!("{symbol}{v}")))
    {
        None if symbol.ends_with("_v2") || symbol.ends_with("_v3") => None,
        None => lookup(&symbol),
        versioned => versioned,
    };
    let found = found.filter(|_| cuda_version >= introduced_in(&symbol));
    let found = found.filter(|_| flags & PER_THREAD_DEFAULT_STREAM == 0);
    let pointer = found.map_or(std::ptr::null_mut(), <*const c_void>::cast_mut);
    // SAFETY: as the caller guarantees.
    unsafe { crate::api::write_out(out, pointer) }?;
    found.map(drop).ok_or(CUresult::NOT_FOUND)
}
