//! The driver's functions as the cases call them.
//!
//! Each is the function of the same name behind the door, without `unsafe`: a case passes valid
//! pointers for what the driver writes, and is otherwise about wrong arguments, which the driver
//! (or the simulation) must be able to take, or may answer by ending the process that the case
//! has for itself.

#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "the driver's own functions"
)]
#![allow(
    dead_code,
    reason = "the list of functions is longer than what the cases need"
)]

pub(crate) use cuguard_sys::*;

macro_rules! wrap {
    ($(fn $name:ident($($parameter:ident: $type:ty),*);)*) => {$(
        pub(crate) fn $name($($parameter: $type),*) -> CUresult {
            // SAFETY: the cases pass pointers that are null or valid for what the function reads
            // and writes through them; everything else is what the case is about.
            unsafe { cuguard::driver::api::$name($($parameter),*) }
        }
    )*};
}

cuguard_sys::with_functions!(wrap);

/// Reads a byte of memory that host and device share.
pub(crate) fn peek(address: u64) -> u8 {
    // SAFETY: the cases pass addresses within pinned, registered or managed memory that is alive.
    unsafe { (address as *const u8).read_volatile() }
}

/// Writes a byte of memory that host and device share.
pub(crate) fn poke(address: u64, value: u8) {
    // SAFETY: the cases pass addresses within pinned, registered or managed memory that is alive.
    unsafe { (address as *mut u8).write_volatile(value) }
}

/// The text that a driver answered, or `None` for a null pointer.
pub(crate) fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the driver's texts end in a NUL and live as long as the process.
    let text = unsafe { std::ffi::CStr::from_ptr(pointer) };
    Some(text.to_string_lossy().into_owned())
}
