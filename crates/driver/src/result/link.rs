//! The linker of device code.

use std::ffi::{CStr, c_void};
use std::ptr;

use cuguard_sys::{CUjit_option, CUjitInputType, CUlinkState};

use super::{Result, call, out};

/// Creates a linker for the device of the current context. Options and values are as for
/// [`load_data_ex`](super::module::load_data_ex).
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_OUT_OF_MEMORY`, or any other driver error.
///
/// # Safety
///
/// Each value is what its option requires. The values and the buffers among them stay where they are until the
/// linker is destroyed.
#[inline]
pub unsafe fn create(
    options: &mut [CUjit_option],
    values: &mut [*mut c_void],
) -> Result<CUlinkState> {
    let count = options.len().min(values.len()) as u32;
    let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
    // SAFETY: the variable can be written to. There are `count` options and values. The caller ensures the rest.
    out(|linker| unsafe { call!(cuLinkCreate_v2(count, options, values, linker)) })
}

/// Adds code to a linker, of a kind of [`jit_input_type`](cuguard_sys::jit_input_type). `name` is for messages. The
/// driver copies what it needs.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_PTX`, `CUDA_ERROR_INVALID_IMAGE`, `CUDA_ERROR_NO_BINARY_FOR_GPU`, or any other driver error.
///
/// # Safety
///
/// The linker is alive. The code is complete and of this kind; PTX ends in a NUL.
#[inline]
pub unsafe fn add_data(
    linker: CUlinkState,
    kind: CUjitInputType,
    code: &[u8],
    name: &CStr,
) -> Result {
    let data: *mut c_void = code.as_ptr().cast_mut().cast();
    // SAFETY: there are as many bytes, which the driver only reads, and no options; the rest is as the caller ensures.
    unsafe {
        call!(cuLinkAddData_v2(
            linker,
            kind,
            data,
            code.len(),
            name.as_ptr(),
            0,
            ptr::null_mut(),
            ptr::null_mut()
        ))
    }
}

/// Links what was added, and returns the image. It is valid until the linker is destroyed.
///
/// # Errors
///
/// Any driver error; the linker's log has the reason.
///
/// # Safety
///
/// The linker is alive.
#[inline]
pub unsafe fn complete(linker: CUlinkState) -> Result<*const [u8]> {
    let (mut image, mut size) = (ptr::null_mut(), 0);
    // SAFETY: both variables can be written to; the rest is as the caller ensures.
    unsafe { call!(cuLinkComplete(linker, &mut image, &mut size))? };
    Ok(ptr::slice_from_raw_parts(image.cast(), size))
}

/// Destroys a linker.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The linker is alive, and neither it nor its image is used afterwards.
#[inline]
pub unsafe fn destroy(linker: CUlinkState) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuLinkDestroy(linker)) }
}
