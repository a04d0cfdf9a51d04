//! The wrappers, exported under the driver's names for programs that are linked against it.

#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "the driver's own functions, documented by the driver"
)]

use std::ffi::c_void;
use std::mem::transmute;

use cuguard_sys::*;

use super::proc_address;
use super::table::{Function, with_recorded};
use crate::calls::{
    Call, array, capture, context, device, graph, handle, host, imported, init, module,
    stream_ordered, synchronize, virtual_memory,
};
use crate::real;

/// What a wrapper returns that has no function of the driver behind it: the program is linked against a name which this
/// driver does not have. Without this library it would not have started.
#[cold]
fn absent() -> CUresult {
    match real::driver() {
        Some(_) => CUresult::NOT_SUPPORTED,
        None => CUresult::NOT_INITIALIZED,
    }
}

macro_rules! export {
    (fn $name:ident($($parameter:ident: $type:ty),*); $body:path) => {
        /// The wrapper. `LINKED`: for programs that are linked against the function, where another library may stand before
        /// the driver.
        unsafe extern "C-unwind" fn $name<const LINKED: bool>($($parameter: $type),*) -> CUresult {
            type Real = unsafe extern "C-unwind" fn($($type),*) -> CUresult;
            let function = Function::$name;
            let call = match const { Function::$name.is_lookup() } {
                true => Call::begin_lookup(stringify!($name)),
                false => Call::begin(stringify!($name)),
            };
            // Inside a call, the library before the driver is what calls.
            let target = match LINKED && call.is_some() {
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
    };
}

macro_rules! export_linked {
    (fn $name:ident($($parameter:ident: $type:ty),*);) => {
        // Not in unit tests, whose program would call itself.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($parameter: $type),*) -> CUresult {
            // SAFETY: as the caller guarantees.
            unsafe { super::$name::<true>($($parameter),*) }
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
                    $(Self::$name => $name::<false> as *const c_void,)*
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
