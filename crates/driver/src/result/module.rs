//! Modules, their functions and variables.

use std::ffi::{CStr, c_void};

use cuguard_sys::{CUdeviceptr, CUfunction, CUjit_option, CUmodule};

use super::{Result, call, out};

/// Loads a module into the current context from PTX, a cubin or a fatbin.
///
/// `options` are constants of [`jit_option`](cuguard_sys::jit_option), `values` their values, numbers as pointers;
/// where the lengths differ, the shorter counts. The driver writes results to some of the values.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_PTX`, `CUDA_ERROR_INVALID_IMAGE`, `CUDA_ERROR_OUT_OF_MEMORY`, or any other driver error.
///
/// # Safety
///
/// `image` points to a complete image of one of these kinds; PTX ends in a NUL. The driver trusts the sizes
/// that it finds there. Each value is what its option requires; a buffer has the size that is stated.
#[inline]
pub unsafe fn load_data_ex(
    image: *const c_void,
    options: &mut [CUjit_option],
    values: &mut [*mut c_void],
) -> Result<CUmodule> {
    let count = options.len().min(values.len()) as u32;
    let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
    // SAFETY: the variable can be written to. There are `count` options and values. The caller ensures the rest.
    out(|module| unsafe { call!(cuModuleLoadDataEx(module, image, count, options, values)) })
}

/// Unloads a module.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The module is alive; none of its functions runs, and nothing of it is used afterwards.
#[inline]
pub unsafe fn unload(module: CUmodule) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuModuleUnload(module)) }
}

/// Returns the kernel called `name`.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_FOUND`, or any other driver error.
///
/// # Safety
///
/// The module is alive.
#[inline]
pub unsafe fn function(module: CUmodule, name: &CStr) -> Result<CUfunction> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    out(|function| unsafe { call!(cuModuleGetFunction(function, module, name.as_ptr())) })
}

/// A variable of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Global {
    /// Its address in device memory.
    pub address: CUdeviceptr,
    /// Its size.
    pub bytes: usize,
}

/// Returns the variable called `name`.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_FOUND`, or any other driver error.
///
/// # Safety
///
/// The module is alive.
#[inline]
pub unsafe fn global(module: CUmodule, name: &CStr) -> Result<Global> {
    let mut global = Global::default();
    let (address, bytes) = (&mut global.address, &mut global.bytes);
    // SAFETY: both variables can be written to; the rest is as the caller ensures.
    unsafe { call!(cuModuleGetGlobal_v2(address, bytes, module, name.as_ptr()))? };
    Ok(global)
}
