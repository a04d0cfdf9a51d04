//! The wrappers, exported under the driver's names for programs that are linked against it.

#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    reason = "the driver's own functions, documented by the driver"
)]

use std::ffi::{c_int, c_void};
use std::mem::transmute;

use cuguard_sys::*;

use super::proc_address;
use super::table::{Function, with_noted, with_recorded};
use crate::calls::{
    Call, array, capture, context, device, graph, handle, host, imported, init, module, part,
    stream_ordered, synchronize, virtual_memory,
};
use crate::{cancel, real};

/// What a wrapper returns that has no function of the driver behind it: the program is linked against a name which this
/// driver does not have. Without this library it would not have started.
#[cold]
fn absent() -> CUresult {
    match real::driver() {
        Some(_) => CUresult::NOT_SUPPORTED,
        None => CUresult::NOT_INITIALIZED,
    }
}

/// How a call comes to its wrapper.
mod way {
    /// The program is linked against the function. Another library may stand before the driver.
    pub(super) const LINKED: u32 = 0;
    /// By an address that the program has looked up.
    pub(super) const FOUND: u32 = 1;
    /// From a guard of the cuguard crate in the program.
    pub(super) const GUARD: u32 = 2;
    /// From a guard, to a function that is noted before anything is recorded.
    pub(super) const NOTED: u32 = 3;
}

macro_rules! export {
    (fn $name:ident($($parameter:ident: $type:ty),*); $body:path) => {
        /// The wrapper, for calls that come by a [`way`].
        pub(super) unsafe extern "C-unwind" fn $name<const WAY: u32>($($parameter: $type),*) -> CUresult {
            #[inline(never)]
            unsafe fn recorded<const WAY: u32>(before: c_int, $($parameter: $type),*) -> CUresult {
                type Real = unsafe extern "C-unwind" fn($($type),*) -> CUresult;
                let function = Function::$name;
                let call = match const { (WAY, Function::$name.is_lookup()) } {
                    (way::GUARD, _) => Call::begin_if_used(stringify!($name), before),
                    (way::NOTED, _) => Call::begin_noted(stringify!($name), before),
                    (_, true) => Call::begin_lookup(stringify!($name), before),
                    (_, false) => Call::begin(stringify!($name), before),
                };
                // Inside a call, the library before the driver is what calls.
                let target = match WAY == way::LINKED && call.is_some() {
                    true => function.next().or_else(|| function.target()),
                    false => function.target(),
                };
                let Some(target) = target else {
                    return absent();
                };
                // SAFETY: the driver's function of this name has this signature.
                let real = unsafe { transmute::<*const c_void, Real>(target) };
                match call {
                    Some(call) => {
                        // SAFETY: the caller guarantees what the driver documents about the arguments.
                        let result = unsafe { $body(&call, real, $($parameter),*) };
                        call.end(result)
                    }
                    // SAFETY: as above.
                    None => unsafe { real($($parameter),*) },
                }
            }

            let before = cancel::disable();
            // SAFETY: as the caller guarantees.
            let result = unsafe { recorded::<WAY>(before, $($parameter),*) };
            cancel::restore(before);
            result
        }
    };
}

macro_rules! export_linked {
    (fn $name:ident($($parameter:ident: $type:ty),*);) => {
        // Not in unit tests, whose program would call itself.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($parameter: $type),*) -> CUresult {
            // SAFETY: as the caller guarantees.
            unsafe { super::$name::<{ super::way::LINKED }>($($parameter),*) }
        }
    };
}

macro_rules! export_all {
    ($($name:ident = $family:ident::$body:ident;)*) => {
        $(signature!($name, export $family::$body);)*

        /// The exported functions.
        mod linked {
            use cuguard_sys::*;

            $(signature!($name, export_linked);)*
        }

        impl Function {
            /// The address of its wrapper, for programs that look it up.
            pub(crate) fn wrapper(self) -> *const c_void {
                match self {
                    $(Self::$name => $name::<{ way::FOUND }> as *const c_void,)*
                }
            }

            /// The address of the wrapper for calls of guards; null for a function that is neither noted nor frees what others may
            /// have allocated.
            pub(crate) fn for_guards(self) -> *const c_void {
                let noted = self.noted();
                match self {
                    _ if !noted.is_null() => noted,
                    $(Self::$name if const { Self::$name.is_freeing() } => {
                        $name::<{ way::GUARD }> as *const c_void
                    })*
                    _ => std::ptr::null(),
                }
            }

            /// The address of what this library exports under its name.
            pub(crate) fn exported(self) -> *const c_void {
                match self {
                    $(Self::$name => linked::$name as *const c_void,)*
                }
            }
        }
    };
}
with_recorded!(export_all);

macro_rules! export_noted {
    ($($name:ident = $family:ident::$body:ident;)*) => {
        /// The wrappers that note calls of guards.
        mod noted {
            use super::*;

            $(signature!($name, export $family::$body);)*
        }

        impl Function {
            /// The address of the wrapper that notes calls of guards; null for a function whose calls are not noted.
            fn noted(self) -> *const c_void {
                match self {
                    $(Self::$name => noted::$name::<{ way::NOTED }> as *const c_void,)*
                    _ => std::ptr::null(),
                }
            }
        }
    };
}
with_noted!(export_noted);
