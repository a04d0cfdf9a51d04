//! The driver's functions as [`result`](crate::result) calls them: through the table for guards.

#![allow(
    non_snake_case,
    dead_code,
    clippy::too_many_arguments,
    clippy::missing_safety_doc,
    reason = "all of the driver's functions, with the driver's names and contracts"
)]

use std::ffi::c_void;
use std::mem::transmute;
use std::sync::atomic::Ordering;

use cuguard_sys::*;

use crate::slot::Slot;
use crate::table::FOR_GUARDS;

macro_rules! define {
    ($(fn $name:ident($($parameter:ident: $type:ty),*);)*) => {$(
        #[inline]
        pub(crate) unsafe fn $name($($parameter: $type),*) -> CUresult {
            type Function = unsafe extern "C" fn($($type),*) -> CUresult;
            // As in the trampolines of the other table.
            let target = FOR_GUARDS[Slot::$name as usize].load(Ordering::Acquire);
            // SAFETY: the target of this slot is a function with this signature, or one that ignores its arguments; the caller
            // guarantees what the driver documents about them.
            unsafe { transmute::<*mut c_void, Function>(target)($($parameter),*) }
        }
    )*};
}

cuguard_sys::with_functions!(define);
