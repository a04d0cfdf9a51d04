//! The simulated GPU as a `libcuda.so.1`: the driver's functions under the driver's names, for
//! programs in any language. The crate's `README.md` shows how to use it.
//!
//! Every function is a jump into `cuguard-sim`, except `cuInit`, which first prints that the GPU is
//! simulated, and `cuGetProcAddress`, which returns this library's `cuInit`.

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

/// Marks this library as a simulation for loaders that look for the symbol, as `cuguard-driver` does.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a C symbol, looked up by this name")]
pub static cuguard_simulated_gpu: u8 = 1;

/// The code of an exported function: a jump, which leaves the arguments in place.
// Not `target_arch = "x86_64"`, so that other targets fail with the error above alone.
#[cfg(not(target_arch = "aarch64"))]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}

/// The code of an exported function: a jump, which leaves the arguments in place.
///
/// `hint #34` is `bti c`, the landing pad that calls from other libraries need in a program with
/// branch protection. As a hint, older processors and assemblers treat it as a no-op.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "hint #34\nb {function}"
    };
}

/// One exported function. A jump needs no signature.
macro_rules! export {
    // Defined below.
    (cuInit) => {};
    (cuGetProcAddress) => {};
    (cuGetProcAddress_v2) => {};
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

/// The simulated driver's `cuInit`. Prints once on stderr that the GPU is simulated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(flags: u32) -> CUresult {
    static ANNOUNCEMENT: Once = Once::new();
    ANNOUNCEMENT.call_once(|| {
        let line = "cuguard: using the simulated GPU (this libcuda.so.1 is cuguard-libcuda-sim)\n";
        // One write, so that other output does not split the line. Ignored if stderr is closed.
        let _ = std::io::stderr().write_all(line.as_bytes());
    });
    // SAFETY: the caller guarantees what the driver documents about the arguments.
    unsafe { cuguard_sim::entry_points::cuInit(flags) }
}

/// The simulated driver's `cuGetProcAddress`. Returns this library's own `cuInit`, so that a program
/// which looks up all functions by name also prints the notice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
) -> CUresult {
    // SAFETY: the caller guarantees what the driver documents about the arguments.
    let result =
        unsafe { cuguard_sim::entry_points::cuGetProcAddress(symbol, out, cuda_version, flags) };
    if result.is_success() {
        // SAFETY: the simulated driver has checked both.
        unsafe { replace_by_own(symbol, out) };
    }
    result
}

/// The simulated driver's `cuGetProcAddress_v2`; see [`cuGetProcAddress`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
    status: *mut u32,
) -> CUresult {
    // SAFETY: the caller guarantees what the driver documents about the arguments.
    let result = unsafe {
        cuguard_sim::entry_points::cuGetProcAddress_v2(symbol, out, cuda_version, flags, status)
    };
    if result.is_success() {
        // SAFETY: the simulated driver has checked both.
        unsafe { replace_by_own(symbol, out) };
    }
    result
}

/// Replaces the function that was found by this library's own function of that name, if it has one.
///
/// # Safety
///
/// `symbol` is a C string, and the simulated driver has written to `out`.
unsafe fn replace_by_own(symbol: *const c_char, out: *mut *mut c_void) {
    use cuguard_sim::entry_points;
    // SAFETY: as the caller guarantees.
    let (symbol, found) = unsafe { (CStr::from_ptr(symbol), out.read_unaligned()) };
    let own = match symbol.to_bytes() {
        b"cuInit" => cuInit as *const c_void,
        b"cuGetProcAddress"
            if found.cast_const() == entry_points::cuGetProcAddress as *const c_void =>
        {
            cuGetProcAddress as *const c_void
        }
        b"cuGetProcAddress" => cuGetProcAddress_v2 as *const c_void,
        _ => return,
    };
    if !found.is_null() {
        // SAFETY: as the caller guarantees.
        unsafe { out.write_unaligned(own.cast_mut()) };
    }
}
