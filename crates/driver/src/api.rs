//! The driver's functions as Rust sees them: declarations of the symbols that this crate defines.

#![allow(
    missing_docs,
    reason = "the driver's own functions, documented by the driver"
)]

use cuguard_sys::*;

macro_rules! declare {
    ($(fn $name:ident($($parameter:ident: $type:ty),*);)*) => {
        unsafe extern "C" {
            $(pub fn $name($($parameter: $type),*) -> CUresult;)*
        }
    };
}

cuguard_sys::with_functions!(declare);
