//! Modules, and libraries, which belong to no context.

use std::ffi::{c_char, c_void};

use cuguard_registry::ResourceKind;
use cuguard_sys::*;

use super::{Address, Call, New, is_freed};
use crate::state::parts;

/// After a call that loads.
///
/// # Safety
///
/// `out` is null or what the driver wrote to.
unsafe fn loaded<T: Address>(call: &Call, result: CUresult, out: *const T, new: New) -> CUresult {
    if result.is_success() && !out.is_null() {
        // SAFETY: as the caller guarantees.
        let handle = unsafe { out.read_unaligned() }.address();
        // Of one that had the handle before, and was destroyed with its context.
        parts::take((new.kind, handle));
    }
    // SAFETY: as the caller guarantees.
    unsafe { call.created(result, out, new) }
}

/// Unloads. The driver may return the handle to another thread at once, so that its parts are forgotten before.
fn unloaded(
    call: &Call,
    kind: ResourceKind,
    handle: impl Address,
    unload: impl FnOnce() -> CUresult,
) -> CUresult {
    let owner = (kind, handle.address());
    let taken = parts::take(owner);
    let result = call.freed(&[kind], handle, unload);
    if !is_freed(result) {
        parts::put_back(owner, taken);
    }
    result
}

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
    unsafe { loaded(call, result, out, New::in_context(ResourceKind::Module, 0)) }
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
    unsafe { loaded(call, result, out, New::in_context(ResourceKind::Module, 0)) }
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
    unsafe { loaded(call, result, out, New::in_context(ResourceKind::Module, 0)) }
}

type Unload = unsafe extern "C-unwind" fn(CUmodule) -> CUresult;

/// `cuModuleUnload`
pub(crate) unsafe fn unload(call: &Call, real: Unload, hmod: CUmodule) -> CUresult {
    // SAFETY: as the caller guarantees.
    unloaded(call, ResourceKind::Module, hmod, || unsafe { real(hmod) })
}

/// A function that loads a library, which differs in what it is loaded from.
macro_rules! load_library {
    ($(#[$doc:meta])* $name:ident, $real:ident, $from:ty) => {
        type $real = unsafe extern "C-unwind" fn(
            *mut CUlibrary,
            *const $from,
            *mut CUjit_option,
            *mut *mut c_void,
            u32,
            *mut CUlibraryOption,
            *mut *mut c_void,
            u32,
        ) -> CUresult;

        $(#[$doc])*
        pub(crate) unsafe fn $name(
            call: &Call,
            real: $real,
            out: *mut CUlibrary,
            from: *const $from,
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
                    from,
                    jit_options,
                    jit_options_values,
                    num_jit_options,
                    library_options,
                    library_option_values,
                    num_library_options,
                )
            };
            // SAFETY: the driver wrote to it.
            unsafe { loaded(call, result, out, New::in_process(ResourceKind::Library, 0)) }
        }
    };
}

load_library! {
    /// `cuLibraryLoadData`
    load_library_data, LoadLibraryData, c_void
}
load_library! {
    /// `cuLibraryLoadFromFile`
    load_library_file, LoadLibraryFile, c_char
}

type UnloadLibrary = unsafe extern "C-unwind" fn(CUlibrary) -> CUresult;

/// `cuLibraryUnload`
pub(crate) unsafe fn unload_library(
    call: &Call,
    real: UnloadLibrary,
    library: CUlibrary,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    unloaded(call, ResourceKind::Library, library, || unsafe {
        real(library)
    })
}
