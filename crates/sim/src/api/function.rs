//! Functions, which are kernels in a context, and kernels of libraries: names, parameters, attributes.

use std::ffi::c_char;

use cuguard_sys::{
    CUdevice, CUfunc_cache, CUfunction, CUfunction_attribute, CUfunctionLoadingState, CUkernel,
    CUmodule, CUresult, function_attribute, function_loading_state,
};

use super::library::find_kernel;
use super::{write_optional, write_out};
use crate::code::{Image, Kernel};
use crate::handle::{self, Id, Kind};
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, Settings, lock};

/// The most threads in a block.
pub(super) const MAX_THREADS: u32 = 1024;
/// The shared memory of a block: without a program's consent, and with it.
pub(super) const SHARED: i32 = 49_152;
pub(super) const SHARED_OPT_IN: i32 = 232_448;
/// The registers of a thread where there is no compiled code that says so.
const ASSUMED_REGISTERS: u32 = 32;

/// The id of a live function.
fn find(state: &DriverState, function: CUfunction) -> DriverResult<Id> {
    let id = handle::decode(Kind::Function, function.0);
    let live = id.filter(|id| state.code.functions.contains_key(id));
    live.ok_or(CUresult::INVALID_HANDLE)
}

/// The same where a kernel of a library is one too: its function in the current context.
pub(super) fn find_any(state: &mut DriverState, function: CUfunction) -> DriverResult<Id> {
    if handle::decode(Kind::Function, function.0).is_some() {
        return find(state, function);
    }
    let kernel = find_kernel(state, CUkernel(function.0))?;
    let context = state.usable_current()?;
    state.kernel_function(kernel, context)
}

/// The most threads in a block of this kernel.
pub(super) fn max_threads(kernel: &Kernel) -> u32 {
    kernel.max_threads.unwrap_or(MAX_THREADS).min(MAX_THREADS)
}

pub(super) fn registers(kernel: &Kernel) -> u32 {
    kernel.registers.unwrap_or(ASSUMED_REGISTERS)
}

/// The most dynamic shared memory of a launch.
pub(super) fn max_dynamic_shared(kernel: &Kernel, settings: &Settings) -> i32 {
    let left = SHARED.saturating_sub_unsigned(kernel.shared.min(SHARED as usize) as u32);
    settings.dynamic_shared.unwrap_or(left)
}

/// The value of an attribute.
fn attribute(
    image: &Image,
    kernel: &Kernel,
    settings: &Settings,
    attribute: CUfunction_attribute,
) -> DriverResult<i32> {
    use function_attribute as names;
    let constants = image.variables.iter().filter(|v| v.is_const);
    Ok(match attribute {
        names::MAX_THREADS_PER_BLOCK => max_threads(kernel) as i32,
        names::SHARED_SIZE_BYTES => kernel.shared as i32,
        names::CONST_SIZE_BYTES => {
            let bytes = constants.map(|v| v.size).fold(0, usize::saturating_add);
            i32::try_from(bytes).unwrap_or(i32::MAX)
        }
        names::LOCAL_SIZE_BYTES => kernel.local as i32,
        names::NUM_REGS => registers(kernel) as i32,
        names::PTX_VERSION => image.ptx_architecture as i32,
        names::BINARY_VERSION => image.architecture as i32,
        names::CACHE_MODE_CA => 0,
        names::MAX_DYNAMIC_SHARED_SIZE_BYTES => max_dynamic_shared(kernel, settings),
        names::PREFERRED_SHARED_MEMORY_CARVEOUT => settings.carveout,
        names::CLUSTER_SIZE_MUST_BE_SET => 0,
        names::REQUIRED_CLUSTER_WIDTH => settings.cluster[0],
        names::REQUIRED_CLUSTER_HEIGHT => settings.cluster[1],
        names::REQUIRED_CLUSTER_DEPTH => settings.cluster[2],
        names::NON_PORTABLE_CLUSTER_SIZE_ALLOWED => settings.non_portable_cluster,
        names::CLUSTER_SCHEDULING_POLICY_PREFERENCE => settings.cluster_scheduling,
        _ => return Err(CUresult::INVALID_VALUE),
    })
}

/// Sets an attribute.
fn set_attribute(
    kernel: &Kernel,
    settings: &mut Settings,
    attribute: CUfunction_attribute,
    value: i32,
) -> DriverResult {
    use function_attribute as names;
    match attribute {
        names::MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            let most = SHARED_OPT_IN.saturating_sub_unsigned(kernel.shared as u32);
            valid((0..=most).contains(&value))?;
            settings.dynamic_shared = Some(value);
        }
        names::PREFERRED_SHARED_MEMORY_CARVEOUT => {
            valid((-1..=100).contains(&value))?;
            settings.carveout = value;
        }
        names::REQUIRED_CLUSTER_WIDTH => settings.cluster[0] = value,
        names::REQUIRED_CLUSTER_HEIGHT => settings.cluster[1] = value,
        names::REQUIRED_CLUSTER_DEPTH => settings.cluster[2] = value,
        names::NON_PORTABLE_CLUSTER_SIZE_ALLOWED => settings.non_portable_cluster = value,
        names::CLUSTER_SCHEDULING_POLICY_PREFERENCE => settings.cluster_scheduling = value,
        _ => return Err(CUresult::INVALID_VALUE),
    }
    Ok(())
}

pub unsafe fn cuFuncGetAttribute(
    out: *mut i32,
    attrib: CUfunction_attribute,
    function: CUfunction,
) -> DriverResult {
    valid(!out.is_null())?;
    let state = lock();
    let own = state.code.function(find(&state, function)?)?;
    let value = attribute(&own.module.image, own.kernel, &own.settings, attrib)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, value) }
}

pub unsafe fn cuFuncSetAttribute(
    function: CUfunction,
    attrib: CUfunction_attribute,
    value: i32,
) -> DriverResult {
    let mut state = lock();
    let id = find(&state, function)?;
    let own = state.code.function(id)?;
    let mut settings = own.settings;
    set_attribute(own.kernel, &mut settings, attrib, value)?;
    state.code.set_settings(id, settings);
    Ok(())
}

/// A preference, which has no effect here.
pub unsafe fn cuFuncSetCacheConfig(function: CUfunction, config: CUfunc_cache) -> DriverResult {
    let state = lock();
    find(&state, function)?;
    valid(config <= 3)
}

pub unsafe fn cuFuncGetModule(out: *mut CUmodule, function: CUfunction) -> DriverResult {
    valid(!out.is_null() && !function.is_null())?;
    let state = lock();
    let own = state.code.function(find(&state, function)?)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUmodule(handle::encode(Kind::Module, own.module_id))) }
}

/// The name is valid as long as the function's module is loaded.
pub unsafe fn cuFuncGetName(out: *mut *const c_char, function: CUfunction) -> DriverResult {
    valid(!function.is_null())?;
    let state = lock();
    let own = state.code.function(find(&state, function)?)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, own.kernel.name.as_ptr()) }
}

/// Writes the place of a parameter.
///
/// # Safety
///
/// The outs are null or valid for writes.
unsafe fn write_parameter(
    kernel: &Kernel,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> DriverResult {
    let parameter = kernel
        .parameters
        .get(index)
        .ok_or(CUresult::INVALID_VALUE)?;
    // SAFETY: as the caller guarantees.
    unsafe {
        write_out(offset, parameter.offset)?;
        write_optional(size, parameter.size);
    }
    Ok(())
}

pub unsafe fn cuFuncGetParamInfo(
    function: CUfunction,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> DriverResult {
    valid(!function.is_null())?;
    let state = lock();
    let own = state.code.function(find(&state, function)?)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_parameter(own.kernel, index, offset, size) }
}

/// Everything is loaded with its module.
pub unsafe fn cuFuncIsLoaded(
    out: *mut CUfunctionLoadingState,
    function: CUfunction,
) -> DriverResult {
    valid(!out.is_null())?;
    find(&lock(), function)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, function_loading_state::LOADED) }
}

pub unsafe fn cuFuncLoad(function: CUfunction) -> DriverResult {
    find(&lock(), function).map(drop)
}

pub unsafe fn cuKernelGetName(out: *mut *const c_char, kernel: CUkernel) -> DriverResult {
    valid(!kernel.is_null())?;
    let state = lock();
    let (_, _, kernel) = state.code.kernel(find_kernel(&state, kernel)?)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, kernel.name.as_ptr()) }
}

pub unsafe fn cuKernelGetParamInfo(
    kernel: CUkernel,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> DriverResult {
    valid(!kernel.is_null())?;
    let state = lock();
    state.current()?;
    let (_, _, kernel) = state.code.kernel(find_kernel(&state, kernel)?)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_parameter(kernel, index, offset, size) }
}

pub unsafe fn cuKernelGetAttribute(
    out: *mut i32,
    attrib: CUfunction_attribute,
    kernel: CUkernel,
    device: CUdevice,
) -> DriverResult {
    valid(!out.is_null())?;
    let state = lock();
    let (own, library, kernel) = state.code.kernel(find_kernel(&state, kernel)?)?;
    let device = state.check_device(device)?;
    let settings = own.settings.get(&device).copied().unwrap_or_default();
    let image = library.image.as_deref().map_err(|code| *code)?;
    let value = attribute(image, kernel, &settings, attrib)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, value) }
}

pub unsafe fn cuKernelSetAttribute(
    attrib: CUfunction_attribute,
    value: i32,
    kernel: CUkernel,
    device: CUdevice,
) -> DriverResult {
    let mut state = lock();
    let id = find_kernel(&state, kernel)?;
    let device = state.check_device(device)?;
    let (own, _, kernel) = state.code.kernel(id)?;
    let mut settings = own.settings.get(&device).copied().unwrap_or_default();
    set_attribute(kernel, &mut settings, attrib, value)?;
    state.code.set_kernel_settings(id, device, settings);
    Ok(())
}

pub unsafe fn cuKernelSetCacheConfig(
    kernel: CUkernel,
    config: CUfunc_cache,
    device: CUdevice,
) -> DriverResult {
    let state = lock();
    find_kernel(&state, kernel)?;
    state.check_device(device)?;
    check(config <= 3, CUresult::INVALID_VALUE)
}
