//! The simulated GPU as a `libcuda.so.1`: the driver's functions under the driver's names, for
//! programs in any language. The crate's `README.md` shows how to use it.
//!
//! Every function is a jump into `cuguard-sim`, except `cuInit`, which first prints that the GPU is
//! simulated, and `cuGetProcAddress`, which returns the functions of this library.

#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "the driver's own functions, documented by the driver"
)]

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};
use std::io::Write;
use std::ptr;
use std::sync::Once;

use cuguard_sys::{CUresult, NAMES};

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
    // Only drivers of integrated GPUs (Tegra) have it.
    (cuEventCreateFromEGLSync) => {};
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

/// The simulated driver's `cuGetProcAddress`. Returns the functions that this library exports, so that a
/// program which looks up all functions by name also prints the notice of `cuInit`.
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
        unsafe { replace_by_own(symbol, out, cuda_version, flags) };
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
        unsafe { replace_by_own(symbol, out, cuda_version, flags) };
    }
    result
}

/// Replaces the function that was found by the one that this library exports for it.
///
/// # Safety
///
/// `symbol` is a C string, and the simulated driver has written to `out`.
unsafe fn replace_by_own(
    symbol: *const c_char,
    out: *mut *mut c_void,
    cuda_version: i32,
    flags: u64,
) {
    // SAFETY: as the caller guarantees.
    let symbol = unsafe { CStr::from_ptr(symbol) }.to_string_lossy();
    if let Some(function) = cuguard_sim::proc_address(&symbol, cuda_version, flags) {
        // SAFETY: as the caller guarantees.
        unsafe { out.write_unaligned(exported(function.name).cast_mut()) };
    }
}

/// The function that this library exports under a name; null if there is none.
fn exported(name: &str) -> *const c_void {
    macro_rules! address {
        (cuEventCreateFromEGLSync) => {
            ptr::null()
        };
        ($function:ident) => {
            $function as *const c_void
        };
    }
    macro_rules! addresses {
        ($($function:ident)*) => { [$(address!($function)),*] };
    }
    let number = NAMES.iter().position(|known| *known == name);
    number.map_or(ptr::null(), |number| {
        cuguard_sys::with_names!(addresses)[number]
    })
}
