//! Modules and kernels: what the simulation does not do, and says so.

use std::ffi::{c_char, c_void};

use cuguard_sys::{CUdeviceptr, CUfunction, CUmodule, CUresult, CUstream};

use crate::lock::lock;
use crate::machine::Answer;

/// Looks as far as a real driver would before it looks at the code.
fn no_kernels() -> Answer {
    lock().current()?;
    Err(CUresult::NOT_SUPPORTED)
}

pub(crate) unsafe fn cuModuleLoadData(_out: *mut CUmodule, _image: *const c_void) -> Answer {
    no_kernels()
}

pub(crate) unsafe fn cuModuleUnload(_module: CUmodule) -> Answer {
    no_kernels()
}

pub(crate) unsafe fn cuModuleGetFunction(
    _out: *mut CUfunction,
    _module: CUmodule,
    _name: *const c_char,
) -> Answer {
    no_kernels()
}

pub(crate) unsafe fn cuModuleGetGlobal_v2(
    _ptr: *mut CUdeviceptr,
    _bytes: *mut usize,
    _module: CUmodule,
    _name: *const c_char,
) -> Answer {
    no_kernels()
}

#[expect(clippy::too_many_arguments, reason = "the driver's own signature")]
pub(crate) unsafe fn cuLaunchKernel(
    _function: CUfunction,
    _grid_x: u32,
    _grid_y: u32,
    _grid_z: u32,
    _block_x: u32,
    _block_y: u32,
    _block_z: u32,
    _shared: u32,
    _stream: CUstream,
    _parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Answer {
    no_kernels()
}
