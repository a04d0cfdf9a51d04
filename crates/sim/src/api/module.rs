//! Modules: code in a context, with its functions and variables.

use std::ffi::{CStr, c_char, c_void};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use cuguard_sys::{
    CUdeviceptr, CUfunction, CUjit_option, CUmodule, CUmoduleLoadingMode, CUresult,
    module_loading_mode,
};

use super::jit_log::JitLog;
use super::{write_optional, write_out};
use crate::code::{self, Image, ImageError};
use crate::handle::{self, Id, Kind};
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, Module, StateGuard, lock, synchronize_context};

/// The id of a live module.
pub(super) fn find(state: &DriverState, module: CUmodule) -> DriverResult<Id> {
    let id = handle::decode(Kind::Module, module.0);
    let live = id.filter(|id| state.code.modules.contains_key(id));
    live.ok_or(CUresult::INVALID_HANDLE)
}

/// A live module, for queries.
fn get(state: &DriverState, module: CUmodule) -> DriverResult<&Module> {
    let module = state.code.modules.get(&find(state, module)?);
    module.ok_or(CUresult::INVALID_HANDLE)
}

/// The text of a name. Null is an error.
///
/// # Safety
///
/// `name` is null or a C string.
pub(super) unsafe fn name<'a>(name: *const c_char) -> DriverResult<&'a CStr> {
    valid(!name.is_null())?;
    // SAFETY: not null, so valid by the caller's guarantee.
    Ok(unsafe { CStr::from_ptr(name) })
}

/// Reads an image in memory.
///
/// # Safety
///
/// `image` is null or a complete image.
pub(super) unsafe fn read_image(image: *const c_void) -> Result<Image, ImageError> {
    if image.is_null() {
        return Err(ImageError::new(CUresult::INVALID_VALUE));
    }
    // SAFETY: not null, so valid by the caller's guarantee.
    let bytes = unsafe { code::image_at(image) };
    let bytes = bytes.ok_or(ImageError::new(CUresult::INVALID_IMAGE))?;
    read_and_compile(&bytes)
}

/// Reads an image, and compiles what it has of PTX.
pub(super) fn read_and_compile(bytes: &[u8]) -> Result<Image, ImageError> {
    let image = code::read(bytes)?;
    // Nothing is executed where launches are skipped, so that what cannot be compiled is no error.
    let skips = lock().config.skip_kernels;
    match skips {
        true => Ok(image),
        false => code::compile(image),
    }
}

/// Reads an image in a file.
///
/// # Safety
///
/// `path` is null or a C string.
pub(super) unsafe fn read_file(path: *const c_char) -> DriverResult<Vec<u8>> {
    // SAFETY: as the caller guarantees.
    let path = unsafe { name(path) }?;
    valid(!path.is_empty())?;
    let path = std::ffi::OsStr::from_bytes(path.to_bytes());
    std::fs::read(path).map_err(|error| match error.kind() {
        // As measured.
        ErrorKind::IsADirectory => CUresult::OUT_OF_MEMORY,
        _ => CUresult::FILE_NOT_FOUND,
    })
}

/// Loads a module into the current context.
///
/// # Safety
///
/// `out` is null or valid for a write.
unsafe fn load(
    out: *mut CUmodule,
    read: impl FnOnce() -> Result<Image, ImageError>,
    log: &mut JitLog,
) -> DriverResult {
    lock().current()?;
    valid(!out.is_null())?;
    // Without the lock, since large images take a while.
    let image = read().map_err(|error| log.failed(&error))?;
    log.succeeded();
    let mut state = lock();
    let context = state.usable_current()?;
    let id = state.add_module(context, Arc::new(image), None)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUmodule(handle::encode(Kind::Module, id))) }
}

pub unsafe fn cuModuleLoadData(out: *mut CUmodule, image: *const c_void) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { load(out, || read_image(image), &mut JitLog::default()) }
}

pub unsafe fn cuModuleLoadDataEx(
    out: *mut CUmodule,
    image: *const c_void,
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        let mut log = JitLog::new(count, options, values)?;
        log.check_target()?;
        load(out, || read_image(image), &mut log)
    }
}

pub unsafe fn cuModuleLoadFatBinary(out: *mut CUmodule, image: *const c_void) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { cuModuleLoadData(out, image) }
}

pub unsafe fn cuModuleLoad(out: *mut CUmodule, path: *const c_char) -> DriverResult {
    let read = || {
        // SAFETY: as the caller guarantees.
        let file = unsafe { read_file(path) };
        read_and_compile(&file.map_err(ImageError::new)?)
    };
    // SAFETY: as the caller guarantees.
    unsafe { load(out, read, &mut JitLog::default()) }
}

pub unsafe fn cuModuleGetLoadingMode(out: *mut CUmoduleLoadingMode) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, module_loading_mode::LAZY_LOADING) }
}

/// Unloads a module once the work of its context is complete.
pub(super) fn unload(mut state: StateGuard, id: Id) -> StateGuard {
    if let Some(context) = state.code.modules.get(&id).map(|module| module.context) {
        state = synchronize_context(state, context);
    }
    state.remove_module(id);
    state
}

pub unsafe fn cuModuleUnload(module: CUmodule) -> DriverResult {
    let state = lock();
    let own = get(&state, module)?;
    // A library's module is unloaded with it.
    check(own.library.is_none(), CUresult::NOT_PERMITTED)?;
    let context = own.context;
    let mut state = synchronize_context(state, context);
    // Another thread may have unloaded it meanwhile.
    let id = find(&state, module)?;
    state.remove_module(id);
    Ok(())
}

pub unsafe fn cuModuleGetFunction(
    out: *mut CUfunction,
    module: CUmodule,
    function: *const c_char,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let function = unsafe { name(function) }?;
    valid(!out.is_null() && !function.is_empty())?;
    let state = lock();
    let found = get(&state, module)?.find_function(function);
    let handle = found.map(|id| CUfunction(handle::encode(Kind::Function, id)));
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, handle.unwrap_or(CUfunction::NULL)) }?;
    check(handle.is_some(), CUresult::NOT_FOUND)
}

pub unsafe fn cuModuleGetFunctionCount(count: *mut u32, module: CUmodule) -> DriverResult {
    let state = lock();
    let functions = get(&state, module)?.functions.len();
    // SAFETY: as the caller guarantees.
    unsafe { write_out(count, functions as u32) }
}

pub unsafe fn cuModuleEnumerateFunctions(
    out: *mut CUfunction,
    count: u32,
    module: CUmodule,
) -> DriverResult {
    let state = lock();
    let functions = &get(&state, module)?.functions;
    valid(!out.is_null())?;
    for (index, id) in functions.iter().take(count as usize).enumerate() {
        let function = CUfunction(handle::encode(Kind::Function, *id));
        // SAFETY: the caller guarantees room for `count` handles.
        unsafe { write_optional(out.add(index), function) };
    }
    Ok(())
}

pub unsafe fn cuModuleGetGlobal_v2(
    ptr: *mut CUdeviceptr,
    bytes: *mut usize,
    module: CUmodule,
    variable: *const c_char,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let variable = unsafe { name(variable) }?;
    valid(!variable.is_empty())?;
    valid(!ptr.is_null() || !bytes.is_null())?;
    let state = lock();
    let module = get(&state, module)?;
    let is_kernel = module.find_function(variable).is_some();
    valid(!is_kernel)?;
    let (base, size) = module.find_variable(variable).ok_or(CUresult::NOT_FOUND)?;
    // SAFETY: as the caller guarantees.
    unsafe {
        write_optional(ptr, base);
        write_optional(bytes, size);
    }
    Ok(())
}
