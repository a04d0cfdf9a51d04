//! The dynamic linker's own `dlsym`, which this library's stands before.

use std::ffi::{c_char, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use super::elf::find_module;

/// Found once. Finding it twice at the same time is harmless.
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The address of the `dlsym` that a program has without this library: the dynamic linker's, in glibc since 2.34 and in
/// `libdl` before, or that of another preloaded library. Null if there is none.
pub(crate) fn dlsym() -> *const c_void {
    let known = DLSYM.load(Relaxed);
    if !known.is_null() {
        return known;
    }
    let (mut address, mut is_behind) = (ptr::null(), false);
    // Libraries that are loaded with the program are searched in this order.
    find_module(|module| {
        if is_behind {
            address = module.function(b"dlsym").unwrap_or(ptr::null());
        }
        is_behind |= module.contains(dlsym as *const c_void as usize);
        !address.is_null()
    });
    DLSYM.store(address.cast_mut(), Relaxed);
    address
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
