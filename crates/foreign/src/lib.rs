//! A C library that calls driver functions which `cust_raw` does not declare. This crate does not know
//! `cuguard-driver`; a program that uses both gets the functions from there.

use std::ffi::c_void;

/// The result codes of the C library's calls.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Codes {
    /// Of `cuInit`.
    pub init: u32,
    /// Of `cuGetProcAddress_v2`, which looks up `cuCtxCreate` of CUDA 12.5.
    pub find: u32,
    /// Of `cuCtxCreate_v4`.
    pub create: u32,
    /// Of `cuTensorMapEncodeTiled`, or of the allocation before it.
    pub encode: u32,
    /// Of `cuCtxDestroy_v2`.
    pub destroy: u32,
    /// The symbol status of the lookup.
    pub status: i32,
    /// The function that it found.
    pub found: *mut c_void,
}

unsafe extern "C" {
    fn cuguard_foreign_calls(codes: *mut Codes, device: i32);
}

/// Calls the functions from C, on the device with this number.
#[must_use]
pub fn calls(device: i32) -> Codes {
    let mut codes = Codes {
        init: u32::MAX,
        find: u32::MAX,
        create: u32::MAX,
        encode: u32::MAX,
        destroy: u32::MAX,
        status: -1,
        found: std::ptr::null_mut(),
    };
    // SAFETY: the C code writes to the struct, which has the same layout there.
    unsafe { cuguard_foreign_calls(&mut codes, device) };
    codes
}
