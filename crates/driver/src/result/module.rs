//! Modules, their functions and variables, and kernel launches.

use std::ffi::{CStr, c_void};
use std::ptr;

use cuguard_sys::{CUdeviceptr, CUfunction, CUmodule, CUstream};

use super::{Result, call, out};

/// `CU_JIT_ERROR_LOG_BUFFER`, `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const ERROR_LOG: [u32; 2] = [5, 6];

/// Loads a module into the current context from PTX, a cubin or a fatbin.
///
/// Where the driver compiles, it writes its compiler's errors to `error_log`, with a NUL at the end. The
/// other bytes stay as they are.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_PTX`, `CUDA_ERROR_INVALID_IMAGE`, `CUDA_ERROR_OUT_OF_MEMORY`, or any other driver error.
///
/// # Safety
///
/// `image` points to a complete image of one of these kinds; PTX ends in a NUL. The driver trusts the sizes
/// that it finds there.
#[inline]
pub unsafe fn load_data_ex(image: *const c_void, error_log: &mut [u8]) -> Result<CUmodule> {
    let mut module = CUmodule::NULL;
    let mut options = ERROR_LOG;
    let count = options.len() as u32;
    // The driver takes the size as a pointer-sized value and reads 32 bits of it.
    let size = u32::try_from(error_log.len()).unwrap_or(u32::MAX);
    let mut values = [
        error_log.as_mut_ptr().cast(),
        ptr::without_provenance_mut(size as usize),
    ];
    let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
    // SAFETY: the variable can be written to. There are `count` options and values, and the log has at least
    // `size` bytes. The caller ensures the image.
    unsafe {
        call!(cuModuleLoadDataEx(
            &mut module,
            image,
            count,
            options,
            values
        ))?
    };
    Ok(module)
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

/// Launches a kernel on `stream`. `grid` and `block` are x, y, z; each parameter points to an argument.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`, `CUDA_ERROR_OUT_OF_MEMORY`, or any other
/// driver error. What fails within the kernel is returned by later calls.
///
/// # Safety
///
/// Function and stream are alive, and the function's module stays loaded until the kernel is complete. There is
/// one parameter for each of the kernel's, pointing to a value of its type; the driver reads the values during
/// the call. What the kernel does with its arguments is sound.
#[inline]
pub unsafe fn launch_kernel(
    function: CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: CUstream,
    parameters: &mut [*mut c_void],
) -> Result {
    // SAFETY: as the caller ensures.
    unsafe {
        call!(cuLaunchKernel(
            function,
            grid[0],
            grid[1],
            grid[2],
            block[0],
            block[1],
            block[2],
            shared_bytes,
            stream,
            parameters.as_mut_ptr(),
            ptr::null_mut(),
        ))
    }
}
