//! The library that `cuguard run` preloads, where it is in the process.
//!
//! It records what a program allocates, but not what guards allocate, which is in the program's own report. The loader
//! attaches the loaded driver to it; the library returns the functions that guards call, and those that all other code calls.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::transmute;

/// A function of the driver, as the library gets it.
#[repr(C)]
struct Attached {
    name: *const u8,
    length: usize,
    address: *const c_void,
}

type Attach = unsafe extern "C" fn(*const Attached, usize) -> c_int;
type Function = unsafe extern "C" fn(*const c_char, *const c_void, c_int) -> *const c_void;

/// Who calls a function of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A guard, by [`result`](crate::result).
    Guard,
    /// `cust`, C code in the program, or the program itself.
    Other,
}

/// The library, which knows the driver.
#[derive(Clone, Copy)]
pub(crate) struct Audit {
    function: Function,
}

impl Audit {
    /// Tells the library of a driver. `None` without the library, and if it cannot record calls of this driver.
    pub(crate) fn attach(
        functions: impl Iterator<Item = (&'static str, *const c_void)>,
    ) -> Option<Self> {
        let find = |name: &std::ffi::CStr| {
            // SAFETY: a C string.
            let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        let (attach, function) = (
            find(c"cuguard_audit_attach")?,
            find(c"cuguard_audit_function")?,
        );
        // SAFETY: the functions of these names have these signatures.
        let (attach, function) = unsafe {
            (
                transmute::<*mut c_void, Attach>(attach),
                transmute::<*mut c_void, Function>(function),
            )
        };
        let functions: Vec<_> = functions
            .map(|(name, address)| Attached {
                name: name.as_ptr(),
                length: name.len(),
                address,
            })
            .collect();
        // SAFETY: the names are static, and a loaded driver stays.
        let code = unsafe { attach(functions.as_ptr(), functions.len()) };
        (code == 0).then_some(Self { function })
    }

    /// Where calls of the driver's function at `address` go.
    pub(crate) fn function(
        self,
        name: &str,
        address: *const c_void,
        caller: Caller,
    ) -> *const c_void {
        let Ok(name) = CString::new(name) else {
            return address;
        };
        let of_guard = c_int::from(caller == Caller::Guard);
        // SAFETY: a C string, and the driver's function of this name.
        let found = unsafe { (self.function)(name.as_ptr(), address, of_guard) };
        match found.is_null() {
            true => address,
            false => found,
        }
    }
}
