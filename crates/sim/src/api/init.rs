//! Initialization, the driver's version, and error texts.

use std::ffi::{CStr, c_char};

use cuguard_sys::CUresult;

use super::write_out;
use crate::result::{DriverResult, valid};
use crate::state;

/// The CUDA version whose behaviour was measured for the simulation.
pub(crate) const VERSION: i32 = 13000;

pub unsafe fn cuInit(flags: u32) -> DriverResult {
    valid(flags == 0)?;
    state::start()
}

pub unsafe fn cuDriverGetVersion(version: *mut i32) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { write_out(version, VERSION) }
}

/// Codes that are newer than the version of the simulated driver.
const NEWER: [u32; 5] = [47, 227, 917, 918, 919];

fn known(error: CUresult) -> Option<CUresult> {
    (!NEWER.contains(&error.0)).then_some(error)
}

/// # Safety
///
/// `out` is null or valid for a write.
unsafe fn write_text(out: *mut *const c_char, text: Option<&'static CStr>) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, text.map_or(std::ptr::null(), CStr::as_ptr)) }?;
    valid(text.is_some())
}

pub unsafe fn cuGetErrorName(error: CUresult, text: *mut *const c_char) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { write_text(text, known(error).and_then(CUresult::name_c)) }
}

pub unsafe fn cuGetErrorString(error: CUresult, text: *mut *const c_char) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { write_text(text, known(error).and_then(CUresult::text_c)) }
}
