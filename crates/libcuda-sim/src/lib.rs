//! The simulated GPU as a `libcuda.so.1`: the driver's functions under the driver's names, for
//! programs in any language. The folder's `README.md` tells how to use it.
//!
//! All that the library does by itself is to announce itself, once, when `cuInit` is called: nobody
//! shall take it for a real driver. Everything else is a jump into `cuguard-sim`.

#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "the driver's own functions, documented by the driver"
)]

use std::arch::naked_asm;
use std::io::Write;
use std::sync::Once;

use cuguard_sys::CUresult;

/// Tells a loader that looks for it (`cuguard-driver` does) that this library is a simulation.
#[unsafe(no_mangle)]
#[allow(
    non_upper_case_globals,
    reason = "a C symbol, which others look for by this name"
)]
pub static cuguard_simulated_gpu: u8 = 1;

/// One exported function. A jump leaves all arguments where they are, so the signature does not
/// matter here.
macro_rules! export {
    // Written out below.
    (cuInit) => {};
    ($name:ident) => {
        #[doc = concat!("The simulated driver's `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!("jmp {function}", function = sym cuguard_sim::entry::$name)
        }
    };
}

macro_rules! export_all {
    ($($name:ident)*) => { $(export!($name);)* };
}

cuguard_sys::with_names!(export_all);

/// The simulated driver's `cuInit`, which says on stderr that the GPU is simulated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(flags: u32) -> CUresult {
    static ANNOUNCEMENT: Once = Once::new();
    ANNOUNCEMENT.call_once(|| {
        let line = "cuguard: using the simulated GPU (this libcuda.so.1 is cuguard-libcuda-sim)\n";
        // In one piece, so that other output does not cut it in two. Without a stderr there is
        // nobody to tell.
        let _ = std::io::stderr().write_all(line.as_bytes());
    });
    // SAFETY: the caller's promises are passed on as they are.
    unsafe { cuguard_sim::entry::cuInit(flags) }
}
