//! Libraries: code that is independent of contexts, and loaded into each one that uses it.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use cuguard_sys::{
    CUdeviceptr, CUfunction, CUjit_option, CUkernel, CUlibrary, CUlibraryOption, CUmodule, CUresult,
};

use super::jit_log::JitLog;
use super::module::{name, read_and_compile, read_file, read_image, unload};
use super::{write_optional, write_out};
use crate::code::{Image, ImageError};
use crate::handle::{self, Id, Kind};
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, Library, lock};

/// The id of a live library. One that was unloaded is misuse: a real driver may crash.
fn find(state: &DriverState, library: CUlibrary) -> DriverResult<Id> {
    let is_live = |id| state.code.libraries.contains_key(&id);
    state.live_id(Kind::Library, library.0, CUresult::INVALID_HANDLE, is_live)
}

fn get(state: &DriverState, library: CUlibrary) -> DriverResult<&Library> {
    let library = state.code.libraries.get(&find(state, library)?);
    library.ok_or(CUresult::INVALID_HANDLE)
}

/// The id of a live kernel. One of a library that was unloaded is misuse.
pub(super) fn find_kernel(state: &DriverState, kernel: CUkernel) -> DriverResult<Id> {
    let is_live = |id| state.code.kernels.contains_key(&id);
    state.live_id(Kind::Kernel, kernel.0, CUresult::INVALID_HANDLE, is_live)
}

/// The options of both functions that load.
struct Options {
    jit: (*mut CUjit_option, *mut *mut c_void, u32),
    library: (*mut CUlibraryOption, *mut *mut c_void, u32),
}

/// Loads a library.
///
/// # Safety
///
/// `out` is null or valid for a write; there are as many options and values as it says.
unsafe fn load(
    out: *mut CUlibrary,
    read: impl FnOnce() -> Result<Image, ImageError>,
    options: &Options,
) -> DriverResult {
    valid(!out.is_null())?;
    let (names, values, count) = options.jit;
    // SAFETY: as the caller guarantees.
    let mut log = unsafe { JitLog::new(count, names, values) }?;
    log.check_target()?;
    log.succeeded();
    let (names, values, count) = options.library;
    valid(count == 0 || !names.is_null() && !values.is_null())?;
    for index in 0..count as usize {
        // SAFETY: as the caller guarantees.
        valid(unsafe { names.add(index).read() } <= 1)?;
    }
    // What is wrong with the code is an error where it is first used.
    let image = match read() {
        Err(error) if is_missing(error.code) => return Err(error.code),
        image => image.map(Arc::new).map_err(|error| error.code),
    };
    let id = lock().add_library(image);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUlibrary(handle::encode(Kind::Library, id))) }
}

/// Whether there is no code at all.
fn is_missing(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::INVALID_VALUE | CUresult::FILE_NOT_FOUND | CUresult::OUT_OF_MEMORY
    )
}

#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
pub unsafe fn cuLibraryLoadData(
    out: *mut CUlibrary,
    image: *const c_void,
    jit_options: *mut CUjit_option,
    jit_values: *mut *mut c_void,
    jit_count: u32,
    options: *mut CUlibraryOption,
    values: *mut *mut c_void,
    count: u32,
) -> DriverResult {
    let options = Options {
        jit: (jit_options, jit_values, jit_count),
        library: (options, values, count),
    };
    // SAFETY: as the caller guarantees.
    unsafe { load(out, || read_image(image), &options) }
}

#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
pub unsafe fn cuLibraryLoadFromFile(
    out: *mut CUlibrary,
    path: *const c_char,
    jit_options: *mut CUjit_option,
    jit_values: *mut *mut c_void,
    jit_count: u32,
    options: *mut CUlibraryOption,
    values: *mut *mut c_void,
    count: u32,
) -> DriverResult {
    let read = || {
        // SAFETY: as the caller guarantees.
        let file = unsafe { read_file(path) };
        read_and_compile(&file.map_err(ImageError::new)?)
    };
    let options = Options {
        jit: (jit_options, jit_values, jit_count),
        library: (options, values, count),
    };
    // SAFETY: as the caller guarantees.
    unsafe { load(out, read, &options) }
}

pub unsafe fn cuLibraryUnload(library: CUlibrary) -> DriverResult {
    let mut state = lock();
    let id = find(&state, library)?;
    let modules: Vec<_> = get(&state, library)?.modules.values().copied().collect();
    for module in modules {
        state = unload(state, module);
    }
    state.remove_library(id);
    Ok(())
}

pub unsafe fn cuLibraryGetKernel(
    out: *mut CUkernel,
    library: CUlibrary,
    kernel: *const c_char,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let kernel = unsafe { name(kernel) }?;
    valid(!out.is_null())?;
    let state = lock();
    let library = get(&state, library)?;
    let image = library.image.as_deref().map_err(|code| *code)?;
    let mut kernels = image.kernels.iter().zip(&library.kernels);
    let found = kernels.find(|(own, _)| *own.name == *kernel);
    let (_, id) = found.ok_or(CUresult::NOT_FOUND)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUkernel(handle::encode(Kind::Kernel, *id))) }
}

pub unsafe fn cuLibraryGetKernelCount(count: *mut u32, library: CUlibrary) -> DriverResult {
    let state = lock();
    let library = get(&state, library)?;
    library.image.as_deref().map_err(|code| *code)?;
    let kernels = library.kernels.len();
    // SAFETY: as the caller guarantees.
    unsafe { write_out(count, kernels as u32) }
}

pub unsafe fn cuLibraryEnumerateKernels(
    out: *mut CUkernel,
    count: u32,
    library: CUlibrary,
) -> DriverResult {
    let state = lock();
    let kernels = &get(&state, library)?.kernels;
    valid(!out.is_null())?;
    // The last comes first.
    for (index, id) in kernels.iter().rev().take(count as usize).enumerate() {
        let kernel = CUkernel(handle::encode(Kind::Kernel, *id));
        // SAFETY: the caller guarantees room for `count` handles.
        unsafe { write_optional(out.add(index), kernel) };
    }
    Ok(())
}

pub unsafe fn cuLibraryGetModule(out: *mut CUmodule, library: CUlibrary) -> DriverResult {
    valid(!out.is_null())?;
    let mut state = lock();
    let id = find(&state, library)?;
    let context = state.usable_current()?;
    let module = state.library_module(id, context)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUmodule(handle::encode(Kind::Module, module))) }
}

/// Finds a variable in the current context.
///
/// # Safety
///
/// The outs are null or valid for writes; `variable` is null or a C string.
unsafe fn get_variable(
    ptr: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    variable: *const c_char,
    is_managed: bool,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let variable = unsafe { name(variable) }?;
    valid(!ptr.is_null() || !bytes.is_null())?;
    let mut state = lock();
    let id = find(&state, library)?;
    let context = state.usable_current()?;
    let module = state.library_module(id, context)?;
    let module = state.code.modules.get(&module);
    let found = module.and_then(|module| module.find_variable(variable));
    let (base, size) = found.ok_or(CUresult::NOT_FOUND)?;
    let managed = module.is_some_and(|module| module.is_managed(variable));
    check(managed == is_managed, CUresult::NOT_FOUND)?;
    // SAFETY: as the caller guarantees.
    unsafe {
        write_optional(ptr, base);
        write_optional(bytes, size);
    }
    Ok(())
}

pub unsafe fn cuLibraryGetGlobal(
    ptr: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    variable: *const c_char,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { get_variable(ptr, bytes, library, variable, false) }
}

pub unsafe fn cuLibraryGetManaged(
    ptr: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    variable: *const c_char,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { get_variable(ptr, bytes, library, variable, true) }
}

pub unsafe fn cuKernelGetFunction(out: *mut CUfunction, kernel: CUkernel) -> DriverResult {
    valid(!out.is_null())?;
    let mut state = lock();
    let id = find_kernel(&state, kernel)?;
    let context = state.usable_current()?;
    let function = state.kernel_function(id, context)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUfunction(handle::encode(Kind::Function, function))) }
}

pub unsafe fn cuKernelGetLibrary(out: *mut CUlibrary, kernel: CUkernel) -> DriverResult {
    let state = lock();
    let (own, ..) = state.code.kernel(find_kernel(&state, kernel)?)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUlibrary(handle::encode(Kind::Library, own.library))) }
}
