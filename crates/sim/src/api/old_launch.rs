//! Launches as in CUDA 2.0: the block, the shared memory and the arguments are set on the function, one after the
//! other, and stay until they are set again. The result codes for wrong values are not measured on a real driver.

use std::ffi::c_void;

use cuguard_sys::{CUfunction, CUresult, CUsharedconfig, CUstream};

use super::function::find_any;
use super::launch::launch;
use super::launch_arguments::Arguments;
use super::launch_limits::Launch;
use crate::result::{DriverResult, check, valid};
use crate::state::{OldLaunch, lock};

/// The most bytes of arguments.
const MAX_ARGUMENTS: usize = 4096;

/// Changes what the next launch of a function uses.
fn change(
    function: CUfunction,
    change: impl FnOnce(&mut OldLaunch) -> DriverResult,
) -> DriverResult {
    let mut state = lock();
    let id = find_any(&mut state, function)?;
    change(state.code.old_launches.entry(id).or_default())
}

/// Sets bytes of the arguments.
fn set_bytes(function: CUfunction, offset: i32, bytes: &[u8]) -> DriverResult {
    change(function, |own| {
        let start = usize::try_from(offset).map_err(|_| CUresult::INVALID_VALUE)?;
        let end = start.saturating_add(bytes.len());
        valid(end <= MAX_ARGUMENTS)?;
        if own.arguments.len() < end {
            own.arguments.resize(end, 0);
        }
        if let Some(to) = own.arguments.get_mut(start..end) {
            to.copy_from_slice(bytes);
        }
        Ok(())
    })
}

pub unsafe fn cuFuncSetBlockShape(function: CUfunction, x: i32, y: i32, z: i32) -> DriverResult {
    change(function, |own| {
        let dims = [x, y, z].map(|dim| u32::try_from(dim).unwrap_or(0));
        valid(dims.iter().all(|dim| *dim > 0))?;
        own.block = dims;
        Ok(())
    })
}

pub unsafe fn cuFuncSetSharedSize(function: CUfunction, bytes: u32) -> DriverResult {
    change(function, |own| {
        own.shared = bytes;
        Ok(())
    })
}

/// A preference, which has no effect on cards of today.
pub unsafe fn cuFuncSetSharedMemConfig(
    function: CUfunction,
    config: CUsharedconfig,
) -> DriverResult {
    change(function, |_| check(config <= 2, CUresult::INVALID_VALUE))
}

pub unsafe fn cuParamSetSize(function: CUfunction, bytes: u32) -> DriverResult {
    change(function, |own| {
        let bytes = bytes as usize;
        valid(bytes <= MAX_ARGUMENTS)?;
        own.size = bytes;
        Ok(())
    })
}

pub unsafe fn cuParamSeti(function: CUfunction, offset: i32, value: u32) -> DriverResult {
    set_bytes(function, offset, &value.to_ne_bytes())
}

pub unsafe fn cuParamSetf(function: CUfunction, offset: i32, value: f32) -> DriverResult {
    set_bytes(function, offset, &value.to_ne_bytes())
}

pub unsafe fn cuParamSetv(
    function: CUfunction,
    offset: i32,
    value: *mut c_void,
    bytes: u32,
) -> DriverResult {
    valid(!value.is_null())?;
    // SAFETY: not null, so that many bytes by the caller's guarantee.
    let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), bytes as usize) };
    set_bytes(function, offset, value)
}

pub unsafe fn cuLaunch(function: CUfunction) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { cuLaunchGridAsync(function, 1, 1, CUstream::NULL) }
}

pub unsafe fn cuLaunchGrid(function: CUfunction, width: i32, height: i32) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { cuLaunchGridAsync(function, width, height, CUstream::NULL) }
}

pub unsafe fn cuLaunchGridAsync(
    function: CUfunction,
    width: i32,
    height: i32,
    stream: CUstream,
) -> DriverResult {
    let (own, mut arguments, mut size) = {
        let mut state = lock();
        let id = find_any(&mut state, function)?;
        let settings = state.code.old_launches.entry(id).or_default();
        let mut arguments = settings.arguments.clone();
        arguments.resize(settings.size, 0);
        let own = Launch {
            function,
            // A negative size fails as 0 does.
            grid: [width, height, 1].map(|dim| u32::try_from(dim).unwrap_or(0)),
            block: settings.block,
            shared: settings.shared,
            cluster: [1; 3],
            cooperative: false,
        };
        (own, arguments, settings.size)
    };
    let mut extra = Arguments::list(&mut arguments, &mut size);
    let extra = match size {
        0 => std::ptr::null_mut(),
        _ => extra.as_mut_ptr(),
    };
    let parameters = std::ptr::null_mut();
    // SAFETY: the list of arguments is complete and lives until the launch has read it.
    unsafe { launch(stream, &own, Arguments { parameters, extra }) }
}
