//! The driver loader of the cuguard crate, where that is in the program.
//!
//! It has two tables. Calls of the guards go to the driver itself: what they create is in the crate's own report. Calls of `cust`, of C
//! code and of the program go through the wrappers, and are recorded as in a program without the crate. What a guard frees may
//! have been recorded, because guards take ownership of what others allocate; so functions that free go through wrappers that
//! do nothing in a program all of whose calls come from guards. What others allocate in a context of a guard ends with it: where
//! guards retain and release primary contexts, that is noted, and no use is counted. Captures of guards are noted as well: what
//! others allocate on a stream that is captured is a node of a graph.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::ptr;

use super::counted;
use super::table::Function;
use crate::{real, stderr};

/// A function of the loaded driver.
#[repr(C)]
pub struct Attached {
    /// Not terminated; it lives as long as the process.
    name: *const u8,
    length: usize,
    address: *const c_void,
}

/// The cuguard crate has loaded a driver with these functions. Returns 0, or -1 if their calls cannot be recorded.
///
/// # Safety
///
/// `functions` has `count` elements.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn cuguard_audit_attach(functions: *const Attached, count: usize) -> c_int {
    let attached = catch_unwind(|| {
        // The simulated GPU in the program is attached without a lookup.
        crate::output::run_folder::note_crate();
        let functions = (0..count).map(|number| {
            // SAFETY: as the caller guarantees.
            let function = unsafe { &*functions.add(number) };
            // SAFETY: as the caller guarantees.
            let name = unsafe { std::slice::from_raw_parts(function.name, function.length) };
            (name, function.address.expose_provenance())
        });
        real::attach(functions.collect::<HashMap<&'static [u8], usize>>())
    });
    if attached.unwrap_or(false) {
        return 0;
    }
    stderr::print(
        "cuguard: calls of the driver that the cuguard crate has loaded are not recorded: another one is loaded\n",
    );
    -1
}

/// Where a call of a function of the attached driver goes that does not come from a guard, or, where `of_guard` is not 0, that does.
/// Null: to the driver's function.
///
/// # Safety
///
/// `name` is a C string, `address` that of the driver's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn cuguard_audit_function(
    name: *const c_char,
    address: *const c_void,
    of_guard: c_int,
) -> *const c_void {
    // SAFETY: as the caller guarantees.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let found = catch_unwind(|| match (Function::named(name), of_guard != 0) {
        (Some(function), true) => function.for_guards(),
        (Some(function), false) => function.wrapper(),
        (None, true) => ptr::null(),
        (None, false) => counted::stub(name, address),
    });
    found.unwrap_or(ptr::null())
}
