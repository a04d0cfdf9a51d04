//! Modules, and libraries, which belong to no context.

use std::ffi::{c_char, c_void};

use cuguard_registry::Kind;
use cuguard_sys::*;

use super::{Call, New};

type Load = unsafe extern "C-unwind" fn(*mut CUmodule, *const c_char) -> CUresult;

/// `cuModuleLoad`
pub(crate) unsafe fn load(
    call: &Call,
    real: Load,
    out: *mut CUmodule,
    fname: *const c_char,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, fname) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(Kind::Module, 0)) }
}

type LoadData = unsafe extern "C-unwind" fn(*mut CUmodule, *const c_void) -> CUresult;

/// `cuModuleLoadData` and `cuModuleLoadFatBinary`
pub(crate) unsafe fn load_data(
    call: &Call,
    real: LoadData,
    out: *mut CUmodule,
    image: *const c_void,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, image) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(Kind::Module, 0)) }
}

type LoadDataEx = unsafe extern "C-unwind" fn(
    *mut CUmodule,
    *const c_void,
    u32,
    *mut CUjit_option,
    *mut *mut c_void,
) -> CUresult;

/// `cuModuleLoadDataEx`
pub(crate) unsafe fn load_data_ex(
    call: &Call,
    real: LoadDataEx,
    out: *mut CUmodule,
    image: *const c_void,
    num_options: u32,
    options: *mut CUjit_option,
    option_values: *mut *mut c_void,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, image, num_options, options, option_values) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(Kind::Module, 0)) }
}

type Unload = unsafe extern "C-unwind" fn(CUmodule) -> CUresult;

/// `cuModuleUnload`
pub(crate) unsafe fn unload(call: &Call, real: Unload, hmod: CUmodule) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.freed(&[Kind::Module], hmod, || unsafe { real(hmod) })
}

type LoadLibraryData = unsafe extern "C-unwind" fn(
    *mut CUlibrary,
    *const c_void,
    *mut CUjit_option,
    *mut *mut c_void,
    u32,
    *mut CUlibraryOption,
    *mut *mut c_void,
    u32,
) -> CUresult;

/// `cuLibraryLoadData`
pub(crate) unsafe fn load_library_data(
    call: &Call,
    real: LoadLibraryData,
    out: *mut CUlibrary,
    code: *const c_void,
    jit_options: *mut CUjit_option,
    jit_options_values: *mut *mut c_void,
    num_jit_options: u32,
    library_options: *mut CUlibraryOption,
    library_option_values: *mut *mut c_void,
    num_library_options: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe {
        real(
            out,
            code,
            jit_options,
            jit_options_values,
            num_jit_options,
            library_options,
            library_option_values,
            num_library_options,
        )
    };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_process(Kind::Library, 0)) }
}

type LoadLibraryFile = unsafe extern "C-unwind" fn(
    *mut CUlibrary,
    *const c_char,
    *mut CUjit_option,
    *mut *mut c_void,
    u32,
    *mut CUlibraryOption,
    *mut *mut c_void,
    u32,
) -> CUresult;

/// `cuLibraryLoadFromFile`
pub(crate) unsafe fn load_library_file(
    call: &Call,
    real: LoadLibraryFile,
    out: *mut CUlibrary,
    file_name: *const c_char,
    jit_options: *mut CUjit_option,
    jit_options_values: *mut *mut c_void,
    num_jit_options: u32,
    library_options: *mut CUlibraryOption,
    library_option_values: *mut *mut c_void,
    num_library_options: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe {
        real(
            out,
            file_name,
            jit_options,
            jit_options_values,
            num_jit_options,
            library_options,
            library_option_values,
            num_library_options,
        )
    };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_process(Kind::Library, 0)) }
}

type UnloadLibrary = unsafe extern "C-unwind" fn(CUlibrary) -> CUresult;

/// `cuLibraryUnload`
pub(crate) unsafe fn unload_library(
    call: &Call,
    real: UnloadLibrary,
    library: CUlibrary,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.freed(&[Kind::Library], library, || unsafe { real(library) })
}
