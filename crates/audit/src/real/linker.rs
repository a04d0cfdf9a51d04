//! The dynamic linker's own `dlsym` and `dlvsym`, which this library's stand before.

use std::ffi::{c_char, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use super::elf::find_module;

/// A function that is found once. Finding it twice at the same time is harmless.
struct Found(AtomicPtr<c_void>);

static DLSYM: Found = Found(AtomicPtr::new(ptr::null_mut()));
static DLVSYM: Found = Found(AtomicPtr::new(ptr::null_mut()));

impl Found {
    /// In glibc since 2.34, in `libdl` before.
    fn get(&self, name: &str) -> *const c_void {
        let known = self.0.load(Relaxed);
        if !known.is_null() {
            return known;
        }
        let mut address = ptr::null();
        find_module(|module| {
            let soname = module.soname();
            if soname == b"libc.so.6" || soname == b"libdl.so.2" {
                address = module.function(name.as_bytes()).unwrap_or(address);
            }
            !address.is_null()
        });
        self.0.store(address.cast_mut(), Relaxed);
        address
    }
}

/// The address of the dynamic linker's `dlsym`. Null if it has none, which glibc always has.
pub(crate) fn dlsym() -> *const c_void {
    DLSYM.get("dlsym")
}

/// The address of the dynamic linker's `dlvsym`.
pub(crate) fn dlvsym() -> *const c_void {
    DLVSYM.get("dlvsym")
}

/// Calls the dynamic linker's `dlsym`. `handle` must not be `RTLD_NEXT`, whose meaning depends on the caller.
///
/// # Safety
///
/// `handle` is open, or `RTLD_DEFAULT`; `name` is a C string.
pub(crate) unsafe fn call_dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    type Function = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    let address = dlsym();
    if address.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: `dlsym` has this signature.
    let function = unsafe { transmute::<*const c_void, Function>(address) };
    // SAFETY: as the caller guarantees.
    unsafe { function(handle, name) }
}
