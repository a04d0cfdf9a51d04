//! The functions that the table points to where there is no driver function to jump to.
//!
//! They are called with the arguments of the driver function that they replace. Those that replace many
//! functions take no arguments: in the C calling conventions of the supported targets, the caller cleans
//! up the arguments. (`table` has those that load a driver.)

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuguard_sys::{CUresult, FUNCTIONS};

use crate::slot::{COUNT, Slot};
use crate::version;

/// Replaces every function that needs a driver, as long as none is loaded.
pub(crate) extern "C" fn not_initialized() -> CUresult {
    CUresult::NOT_INITIALIZED
}

/// Replaces the function `SLOT`, which the loaded driver lacks. One for each function, because it has no
/// other way to know which one was called.
extern "C" fn not_found<const SLOT: usize>() -> CUresult {
    log_missing(SLOT);
    CUresult::NOT_FOUND
}

macro_rules! not_found {
    ($($name:ident)*) => { [$(not_found::<{ Slot::$name as usize }>),*] };
}

static NOT_FOUND: [extern "C" fn() -> CUresult; COUNT] = cuguard_sys::with_names!(not_found);

/// Logs, once for each function, that the driver lacks it, and which one has it.
#[cold]
fn log_missing(slot: usize) {
    static LOGGED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
    if LOGGED[slot].swap(true, Ordering::Relaxed) {
        return;
    }
    let function = &FUNCTIONS[slot];
    let version = |(major, minor)| format!("CUDA {major}.{minor}");
    let since = function.since.unsigned_abs();
    let since = (since / 1000, since % 1000 / 10);
    let installed = version::of_loaded();
    let why = match installed {
        // Some functions exist on some platforms only.
        Some(installed) if installed >= since => {
            format!("other drivers have it since {}", version(since))
        }
        _ => format!("it needs a driver for {} or newer", version(since)),
    };
    let installed = installed.map(|installed| format!(" ({})", version(installed)));
    log::warn!(
        "cuguard: the driver{} has no {}: {why}; the call fails with CUDA_ERROR_NOT_FOUND",
        installed.unwrap_or_default(),
        function.name,
    );
}

/// The replacement for a function that the loaded driver lacks.
pub(crate) fn after_load(slot: Slot) -> *const c_void {
    match slot {
        Slot::cuGetErrorName => get_error_name as *const c_void,
        Slot::cuGetErrorString => get_error_string as *const c_void,
        _ => NOT_FOUND[slot as usize] as *const c_void,
    }
}

/// `cuGetErrorName` without a driver.
///
/// # Safety
///
/// `out` is null, or a pointer can be written to it.
pub(crate) unsafe extern "C" fn get_error_name(
    code: CUresult,
    out: *mut *const c_char,
) -> CUresult {
    // SAFETY: as the caller ensures.
    unsafe { write_text(code.name_c(), out) }
}

/// `cuGetErrorString` without a driver.
///
/// # Safety
///
/// `out` is null, or a pointer can be written to it.
pub(crate) unsafe extern "C" fn get_error_string(
    code: CUresult,
    out: *mut *const c_char,
) -> CUresult {
    let reason = reason().filter(|_| code == CUresult::NO_DEVICE);
    // SAFETY: as the caller ensures.
    unsafe { write_text(reason.or(code.text_c()), out) }
}

/// Writes `text` to `out` as the driver does: null, and an error, if there is none.
///
/// # Safety
///
/// `out` is null, or a pointer can be written to it.
unsafe fn write_text(text: Option<&'static CStr>, out: *mut *const c_char) -> CUresult {
    if out.is_null() {
        return CUresult::INVALID_VALUE;
    }
    // SAFETY: not null; the rest is as the caller ensures.
    unsafe { out.write(text.map_or(ptr::null(), CStr::as_ptr)) };
    match text {
        Some(_) => CUresult::SUCCESS,
        None => CUresult::INVALID_VALUE,
    }
}

/// Why the last load failed. The text is leaked: a C caller may keep what `cuGetErrorString` returned.
static REASON: Mutex<Option<&'static CStr>> = Mutex::new(None);

fn reason() -> MutexGuard<'static, Option<&'static CStr>> {
    REASON.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers why a load failed; `None` after one that succeeded.
pub(crate) fn remember(text: Option<&str>) {
    let text = text.map(|text| CString::new(text.replace('\0', " ")).unwrap_or_default());
    let mut reason = reason();
    // A program that retries fails for the same reason: leak the text only once.
    if *reason != text.as_deref() {
        *reason = text.map(|text| &*Box::leak(text.into_boxed_c_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(
        function: unsafe extern "C" fn(CUresult, *mut *const c_char) -> CUresult,
        code: u32,
    ) -> (CUresult, Option<String>) {
        let mut out = ptr::dangling();
        // SAFETY: `out` can be written to.
        let result = unsafe { function(CUresult(code), &mut out) };
        // SAFETY: what is not null is a C string that lives as long as the process.
        let text = (!out.is_null()).then(|| unsafe { CStr::from_ptr(out) });
        (result, text.map(|text| text.to_string_lossy().into_owned()))
    }

    #[test]
    fn codes_have_names_and_words() {
        let name = (CUresult::SUCCESS, Some("CUDA_ERROR_OUT_OF_MEMORY".into()));
        assert_eq!(ask(get_error_name, 2), name);
        let words = (CUresult::SUCCESS, Some("out of memory".into()));
        assert_eq!(ask(get_error_string, 2), words);
    }

    #[test]
    fn unknown_codes_give_null_and_an_error() {
        for function in [get_error_name, get_error_string] {
            assert_eq!(ask(function, 54321), (CUresult::INVALID_VALUE, None));
        }
    }

    #[test]
    fn a_null_out_pointer_is_an_error() {
        for function in [get_error_name, get_error_string] {
            for code in [0, 2, 100, 54321] {
                // SAFETY: null is allowed.
                let result = unsafe { function(CUresult(code), ptr::null_mut()) };
                assert_eq!(result, CUresult::INVALID_VALUE);
            }
        }
    }

    #[test]
    fn the_reason_stands_for_no_device_alone_and_is_not_piled_up() {
        let plain = "no CUDA-capable device is detected";
        assert_eq!(ask(get_error_string, 100).1.as_deref(), Some(plain));
        remember(Some("it is\0missing"));
        assert_eq!(
            ask(get_error_string, 100).1.as_deref(),
            Some("it is missing")
        );
        assert_eq!(ask(get_error_string, 2).1.as_deref(), Some("out of memory"));
        let before = reason().map(CStr::as_ptr);
        remember(Some("it is\0missing"));
        assert_eq!(reason().map(CStr::as_ptr), before);
        remember(None);
        assert_eq!(ask(get_error_string, 100).1.as_deref(), Some(plain));
    }
}
