//! The simulated GPU as a `libcuda.so.1`: the driver's functions under the driver's names, for
//! programs in any language. The folder's `README.md` tells how to use it.
//!
//! All that the library does by itself is to announce itself, once, when `cuInit` is called: nobody
//! shall take it for a real driver. Therefore it also answers by itself when a program asks for that
//! function by its name. Everything else is a jump into `cuguard-sim`.

#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "the driver's own functions, documented by the driver"
)]

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};
use std::io::Write;
use std::sync::Once;

use cuguard_sys::CUresult;

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_endian = "little",
    target_pointer_width = "64",
    target_env = "gnu"
)))]
compile_error!(
    "cuguard-libcuda-sim works on x86_64-unknown-linux-gnu and aarch64-unknown-linux-gnu and on no \
     other target"
);

/// Tells a loader that looks for it (`cuguard-driver` does) that this library is a simulation.
#[unsafe(no_mangle)]
#[allow(
    non_upper_case_globals,
    reason = "a C symbol, which others look for by this name"
)]
pub static cuguard_simulated_gpu: u8 = 1;

/// The code of an exported function: a jump, which leaves all arguments where they are.
// Not `target_arch = "x86_64"`: a target that is neither stops above, with that message alone.
#[cfg(not(target_arch = "aarch64"))]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}

/// The code of an exported function: a jump, which leaves all arguments where they are.
///
/// `hint #34` is `bti c`, by the number that older processors and assemblers know as "do nothing":
/// in a program with branch protection, a call from another library must land on it.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "hint #34\nb {function}"
    };
}

/// One exported function. The signature does not matter to a jump.
macro_rules! export {
    // Written out below.
    (cuInit) => {};
    (cuGetProcAddress) => {};
    ($name:ident) => {
        #[doc = concat!("The simulated driver's `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(jump!(), function = sym cuguard_sim::entry_points::$name)
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
    unsafe { cuguard_sim::entry_points::cuInit(flags) }
}

/// The simulated driver's `cuGetProcAddress`. It gives this library's functions where this library
/// has its own, so that a program which gets all functions by their names is told about the
/// simulation too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
) -> CUresult {
    // SAFETY: the caller's promises are passed on as they are.
    let result =
        unsafe { cuguard_sim::entry_points::cuGetProcAddress(symbol, out, cuda_version, flags) };
    if result.is_success() {
        // SAFETY: the simulated driver refuses null, so this is a C string, as the caller promises.
        let symbol = unsafe { CStr::from_ptr(symbol) };
        if let Some(own) = own(symbol, cuda_version) {
            // SAFETY: the simulated driver has written there.
            unsafe { out.write(own.cast_mut()) };
        }
    }
    result
}

/// What `cuGetProcAddress` is called from CUDA 12.0 on: it answers success in any case, null and a
/// status where there is no such function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
    status: *mut u32,
) -> CUresult {
    const FOUND: u32 = 0;
    const NOT_FOUND: u32 = 1;
    const VERSION_NOT_SUFFICIENT: u32 = 2;
    // SAFETY: the caller's promises are passed on as they are.
    let ask = |version| unsafe { cuGetProcAddress(symbol, out, version, flags) };
    let outcome = match ask(cuda_version) {
        CUresult::SUCCESS => FOUND,
        CUresult::NOT_FOUND => match ask(i32::MAX) {
            CUresult::SUCCESS => VERSION_NOT_SUFFICIENT,
            _ => NOT_FOUND,
        },
        error => return error,
    };
    if outcome != FOUND {
        // SAFETY: the simulated driver refuses null before anything else, so this can be written
        // to, as the caller promises.
        unsafe { out.write(std::ptr::null_mut()) };
    }
    if !status.is_null() {
        // SAFETY: not null, so it can be written to, as the caller promises.
        unsafe { status.write(outcome) };
    }
    CUresult::SUCCESS
}

/// This library's own function behind a name, for programs that are made for a version of CUDA.
fn own(symbol: &CStr, cuda_version: i32) -> Option<*const c_void> {
    match symbol.to_bytes() {
        b"cuInit" => Some(cuInit as *const c_void),
        b"cuGetProcAddress" if cuda_version >= 12_000 => Some(cuGetProcAddress_v2 as *const c_void),
        b"cuGetProcAddress" => Some(cuGetProcAddress as *const c_void),
        _ => None,
    }
}
