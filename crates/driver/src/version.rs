//! The version of CUDA that a driver supports.

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use cuguard_sys::CUresult;

/// The loaded driver's `cuDriverGetVersion`; null where there is none.
static LOADED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Remembers the loaded driver's `cuDriverGetVersion`, for [`of_loaded`].
///
/// # Safety
///
/// As [`of`], and it is never unloaded.
pub(crate) unsafe fn set_loaded(function: Option<*const c_void>) {
    let function = function.unwrap_or(ptr::null()).cast_mut();
    LOADED.store(function, Ordering::Release);
}

/// The version of the loaded driver.
pub(crate) fn of_loaded() -> Option<(u32, u32)> {
    let function = LOADED.load(Ordering::Acquire);
    // SAFETY: as the caller of `set_loaded` ensured.
    (!function.is_null()).then(|| unsafe { of(function) })?
}

/// Calls a driver's `cuDriverGetVersion`: major and minor number, or `None` if it does not return a version.
///
/// # Safety
///
/// The function has that signature and can be called.
pub(crate) unsafe fn of(function: *const c_void) -> Option<(u32, u32)> {
    type Function = unsafe extern "C" fn(*mut i32) -> CUresult;
    // SAFETY: as the caller ensures.
    let function = unsafe { transmute::<*const c_void, Function>(function) };
    let mut version = 0_i32;
    // SAFETY: the number can be written to; the function is legal at any time.
    let result = unsafe { function(&mut version) };
    let version = u32::try_from(version).ok().filter(|&version| version > 0)?;
    let version = (version / 1000, version % 1000 / 10);
    result.is_success().then_some(version)
}
