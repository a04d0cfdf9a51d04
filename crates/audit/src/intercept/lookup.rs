//! `dlsym`, which stands before the dynamic linker's.
//!
//! `RTLD_NEXT` and `RTLD_DEFAULT` mean something else in each library, and the dynamic linker knows the library by the
//! return address. So it jumps on to the dynamic linker's where it can: for every name that is none of the driver's. For
//! those of the driver, [`without_this_library`] finds what the caller would have got.
//!
//! Neither the driver's functions nor those of this library have a version, so `dlvsym` finds none of them.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use super::counted;
use super::table::Function;
use crate::heap::{objects, threads};
use crate::real;

/// What a stub does.
#[repr(C)]
struct Found {
    /// The result, or the function to jump to.
    address: *const c_void,
    /// 0 to jump.
    is_result: usize,
}

impl Found {
    fn result(address: *const c_void) -> Self {
        Self {
            address,
            is_result: 1,
        }
    }

    fn jump(address: *const c_void) -> Self {
        Self {
            address,
            is_result: 0,
        }
    }
}

/// Finds a symbol as the dynamic linker does, and the driver's functions as their wrappers.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym() {
    naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdx, [rsp + 24]",
        "call {find}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rdx, rdx",
        "jne 2f",
        "jmp rax",
        "2: ret",
        find = sym find,
    )
}

/// Finds a symbol as the dynamic linker does, and the driver's functions as their wrappers.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym() {
    naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "mov x2, x30",
        "bl {find}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbnz x17, 2f",
        "br x16",
        "2: mov x0, x16",
        "ret",
        find = sym find,
    )
}

/// Whether a name may be one of the driver's. Most are not, and their lookup must cost nothing.
///
/// # Safety
///
/// `name` is a C string or null.
unsafe fn may_be_drivers(name: *const c_char) -> bool {
    // SAFETY: not null, and each byte is read only if the one before is not the end of the string.
    !name.is_null() && unsafe { *name as u8 == b'c' && *name.add(1) as u8 == b'u' }
        // SAFETY: as above.
        && unsafe { (*name.add(2) as u8).is_ascii_uppercase() }
}

/// What `dlsym` does for a caller.
unsafe extern "C" fn find(handle: *mut c_void, name: *const c_char, caller: usize) -> Found {
    // SAFETY: a name that the caller looks up is a C string.
    if !unsafe { may_be_drivers(name) } {
        return match handle == libc::RTLD_DEFAULT && threads::is_own(caller) {
            // SAFETY: as above.
            true => Found::result(unsafe { for_standard_library(name) }),
            false => Found::jump(real::dlsym()),
        };
    }
    // Before the lookup, which takes the same lock.
    real::open_driver();
    // SAFETY: not null.
    let text = unsafe { CStr::from_ptr(name) }.to_bytes();
    if let Some(function) = Function::named(text) {
        // SAFETY: the caller guarantees what `dlsym` documents about the arguments.
        let found = unsafe { without_this_library(function, handle, name, caller) };
        let is_drivers = !found.is_null() && function.target() == Some(found.cast_const());
        return Found::result(match is_drivers {
            true => function.wrapper(),
            false => found,
        });
    }
    if counted::is_counted(text) && handle != libc::RTLD_NEXT {
        // SAFETY: as above. This library exports no such name.
        let found = unsafe { real::call_dlsym(handle, name) };
        let is_drivers = |driver: &real::Driver| driver.contains(found as usize);
        if !found.is_null() && real::driver().is_some_and(is_drivers) {
            let stub = counted::stub(text, found);
            return Found::result(if stub.is_null() { found } else { stub });
        }
    }
    Found::jump(real::dlsym())
}

/// What the standard library looks up in this library when it creates a thread: without the dynamic linker's lock, because
/// the first call of the driver creates one.
///
/// # Safety
///
/// `name` is a C string.
#[cold]
unsafe fn for_standard_library(name: *const c_char) -> *const c_void {
    // SAFETY: as the caller guarantees.
    let name = unsafe { CStr::from_ptr(name) };
    let found = objects::symbol(name.to_bytes()).unwrap_or(0);
    ptr::with_exposed_provenance(found)
}

/// What the caller of `dlsym` would find if this library were not there. A failed lookup leaves its message for
/// `dlerror`.
///
/// # Safety
///
/// What `dlsym` documents about the arguments.
unsafe fn without_this_library(
    function: Function,
    handle: *mut c_void,
    name: *const c_char,
    caller: usize,
) -> *mut c_void {
    let own = function.exported().cast_mut();
    if handle != libc::RTLD_NEXT {
        // SAFETY: as the caller guarantees.
        let found = unsafe { real::call_dlsym(handle, name) };
        if found != own {
            return found;
        }
    }
    // In the global scope behind this library, which stands before all others but the program.
    // SAFETY: called from here, this is a search behind this library.
    let found = unsafe { real::call_dlsym(libc::RTLD_NEXT, name) };
    let is_scope = handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT;
    if found.is_null() && is_scope {
        // SAFETY: as the caller guarantees.
        return unsafe { in_scope_of(function, name, caller) };
    }
    behind_own(function, handle, caller, found)
}

/// What a library finds among those that it is linked against, which are in no global scope if it was loaded by `dlopen`.
///
/// # Safety
///
/// `name` is a C string.
unsafe fn in_scope_of(function: Function, name: *const c_char, caller: usize) -> *mut c_void {
    let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
    if let Some(module) = real::find_module(|module| module.contains(caller)) {
        // SAFETY: a C string; the library is loaded already, so no initializer runs.
        let scope = unsafe { libc::dlopen(module.path().as_ptr(), flags) };
        if !scope.is_null() {
            // SAFETY: the handle is open.
            let found = unsafe { real::call_dlsym(scope, name) };
            // SAFETY: opened above.
            unsafe { libc::dlclose(scope) };
            if !found.is_null() && found.cast_const() != function.exported() {
                return behind_own(function, libc::RTLD_NEXT, caller, found);
            }
        }
    }
    // Once more, for the message of `dlerror`.
    // SAFETY: as in `without_this_library`.
    unsafe { real::call_dlsym(libc::RTLD_NEXT, name) }
}

/// A caller that defines the function itself asks by `RTLD_NEXT` for the one behind its own: the driver's.
fn behind_own(
    function: Function,
    handle: *mut c_void,
    caller: usize,
    found: *mut c_void,
) -> *mut c_void {
    match handle == libc::RTLD_NEXT && is_in_module_of(caller, found) {
        true => function.target().unwrap_or(ptr::null()).cast_mut(),
        false => found,
    }
}

/// Whether a function is in the module that calls.
fn is_in_module_of(caller: usize, function: *const c_void) -> bool {
    let module = real::find_module(|module| module.contains(caller));
    module.is_some_and(|module| module.contains(function as usize))
}

/// The address that a lookup by handle would have without this library. `cuguard` itself calls it when it is in a
/// program that is audited: its resources are in its own report.
///
/// # Safety
///
/// `handle` is open; `name` is a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn cuguard_audit_real(
    handle: *mut c_void,
    name: *const c_char,
) -> *mut c_void {
    // Nothing may unwind into the program.
    let _ = std::panic::catch_unwind(crate::output::run_folder::note_crate);
    // SAFETY: as the caller guarantees.
    unsafe { real::call_dlsym(handle, name) }
}
