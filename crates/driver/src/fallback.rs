//! What the slots hold while there is no driver function to jump to.
//!
//! All of these are called by C's rules with the arguments of the driver function that they stand
//! for. Those that stand for many functions take no arguments: in the calling conventions of the
//! targets that the door works on, the caller puts the arguments away and takes them back.

use std::ffi::{CStr, CString, c_char, c_void};
use std::io::Write;
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use cuguard_sys::CUresult;

use crate::error::LoadError;
use crate::table::Slot;

/// Stands for every function that needs a driver, as long as none is loaded.
pub(crate) extern "C" fn not_initialized() -> CUresult {
    CUresult::NOT_INITIALIZED
}

/// Stands for every function that the loaded driver lacks.
pub(crate) extern "C" fn not_supported() -> CUresult {
    CUresult::NOT_SUPPORTED
}

/// The loaded driver's function for `slot`, loading a driver first if there is none.
///
/// Without a driver the answer is `CUDA_ERROR_NO_DEVICE`. That is not the code that says it best,
/// but the best one among those that `cust` can tell apart, and [`get_error_string`] gives it the
/// words that say what happened. Many programs never ask for those words, so they also go to
/// stderr.
fn driver_function(slot: Slot) -> Result<*const c_void, CUresult> {
    match crate::load() {
        Ok(driver) => Ok(driver.target(slot)),
        Err(error) => {
            if is_news(&error) {
                // In one piece, so that other threads' output does not cut it in two. Without a
                // stderr there is nobody to tell.
                let _ = std::io::stderr().write_all(format!("cuguard: {error}\n").as_bytes());
            }
            Err(CUresult::NO_DEVICE)
        }
    }
}

/// Whether this reason comes for the first time: a program that tries again and again is told once.
fn is_news(error: &LoadError) -> bool {
    static TOLD: Mutex<Vec<LoadError>> = Mutex::new(Vec::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    let news = !told.contains(error);
    if news {
        told.push(error.clone());
    }
    news
}

/// `cuInit` before a driver is loaded.
///
/// # Safety
///
/// That of the driver's `cuInit`.
pub(crate) unsafe extern "C" fn init(flags: u32) -> CUresult {
    match driver_function(Slot::cuInit) {
        Ok(target) => {
            // SAFETY: the target of this slot is a function with this signature.
            let target: unsafe extern "C" fn(u32) -> CUresult = unsafe { transmute(target) };
            // SAFETY: the caller keeps the contract of `cuInit`.
            unsafe { target(flags) }
        }
        Err(code) => code,
    }
}

/// `cuDriverGetVersion` before a driver is loaded.
///
/// # Safety
///
/// That of the driver's `cuDriverGetVersion`.
pub(crate) unsafe extern "C" fn driver_get_version(version: *mut i32) -> CUresult {
    match driver_function(Slot::cuDriverGetVersion) {
        Ok(target) => {
            // SAFETY: the target of this slot is a function with this signature.
            let target: unsafe extern "C" fn(*mut i32) -> CUresult = unsafe { transmute(target) };
            // SAFETY: the caller keeps the contract of `cuDriverGetVersion`.
            unsafe { target(version) }
        }
        Err(code) => code,
    }
}

/// `cuGetProcAddress` before a driver is loaded.
///
/// # Safety
///
/// That of the driver's `cuGetProcAddress`.
pub(crate) unsafe extern "C" fn get_proc_address(
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
) -> CUresult {
    match driver_function(Slot::cuGetProcAddress) {
        Ok(target) => {
            // SAFETY: the target of this slot is a function with this signature.
            let target: unsafe extern "C" fn(
                *const c_char,
                *mut *mut c_void,
                i32,
                u64,
            ) -> CUresult = unsafe { transmute(target) };
            // SAFETY: the caller keeps the contract of `cuGetProcAddress`.
            unsafe { target(symbol, out, cuda_version, flags) }
        }
        Err(code) => code,
    }
}

/// `cuGetErrorName` as long as no driver answers it.
///
/// # Safety
///
/// `out` is null, or a pointer can be written to it.
pub(crate) unsafe extern "C" fn get_error_name(
    code: CUresult,
    out: *mut *const c_char,
) -> CUresult {
    // SAFETY: handed on from the caller.
    unsafe { answer(code.name_c(), out) }
}

/// `cuGetErrorString` as long as no driver answers it.
///
/// # Safety
///
/// `out` is null, or a pointer can be written to it.
pub(crate) unsafe extern "C" fn get_error_string(
    code: CUresult,
    out: *mut *const c_char,
) -> CUresult {
    let words = match code {
        CUresult::NO_DEVICE => reason().or(code.text_c()),
        _ => code.text_c(),
    };
    // SAFETY: handed on from the caller.
    unsafe { answer(words, out) }
}

/// Writes `words` to `out` the way the driver does: null and an error if there are none.
///
/// # Safety
///
/// `out` is null, or a pointer can be written to it.
unsafe fn answer(words: Option<&'static CStr>, out: *mut *const c_char) -> CUresult {
    if out.is_null() {
        return CUresult::INVALID_VALUE;
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { out.write(words.map_or(ptr::null(), CStr::as_ptr)) };
    if words.is_some() {
        CUresult::SUCCESS
    } else {
        CUresult::INVALID_VALUE
    }
}

/// Why the last load failed, as a C string that lives as long as the process (a C caller may keep
/// what `cuGetErrorString` answered), or null.
static REASON: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// Why the last load failed.
fn reason() -> Option<&'static CStr> {
    let text = REASON.load(Ordering::Acquire);
    // SAFETY: if not null, the pointer came from `CString::into_raw` and is never given back.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Remembers why a load failed; `None` after one that did not. Called under the loader's lock.
pub(crate) fn remember(text: Option<&str>) {
    let Some(text) = text else {
        REASON.store(ptr::null_mut(), Ordering::Release);
        return;
    };
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // A program that asks again and again gets the same words; do not pile them up.
    if reason() != Some(&text) {
        REASON.store(text.into_raw(), Ordering::Release);
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
    fn a_reason_is_news_once() {
        let error = |path: &str| LoadError::NotADriver { path: path.into() };
        assert!(is_news(&error("/a")));
        assert!(!is_news(&error("/a")));
        assert!(is_news(&error("/b")));
        assert!(!is_news(&error("/a")));
    }

    #[test]
    fn the_reason_stands_for_no_device_alone_and_is_not_piled_up() {
        let plain = "no CUDA-capable device is detected";
        assert_eq!(ask(get_error_string, 100).1.as_deref(), Some(plain));
        remember(Some("the door is\0shut"));
        assert_eq!(
            ask(get_error_string, 100).1.as_deref(),
            Some("the door is shut")
        );
        assert_eq!(ask(get_error_string, 2).1.as_deref(), Some("out of memory"));
        let before = REASON.load(Ordering::Acquire);
        remember(Some("the door is\0shut"));
        assert_eq!(REASON.load(Ordering::Acquire), before);
        remember(None);
        assert_eq!(ask(get_error_string, 100).1.as_deref(), Some(plain));
    }
}
