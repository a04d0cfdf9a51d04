//! Modules, launches and what kernels write.

use std::ffi::{CStr, CString, c_void};

use super::*;

pub const KERNELS: &str = include_str!("../../../../tests/conformance/kernels.ptx");

pub fn text(ptx: &str) -> CString {
    CString::new(ptx).unwrap()
}

#[track_caller]
pub fn load(ptx: &str) -> CUmodule {
    let mut module = CUmodule::NULL;
    ok(cu::cuModuleLoadData(&mut module, text(ptx).as_ptr().cast()));
    module
}

#[track_caller]
pub fn function(module: CUmodule, name: &CStr) -> CUfunction {
    let mut function = CUfunction::NULL;
    let name = name.as_ptr();
    ok(cu::cuModuleGetFunction(&mut function, module, name));
    function
}

/// A pointer to an argument.
pub fn arg<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

/// Launches blocks of threads.
#[track_caller]
pub fn launch(
    function: CUfunction,
    [blocks, threads]: [u32; 2],
    stream: CUstream,
    arguments: &mut [*mut c_void],
) {
    let (list, none) = (arguments.as_mut_ptr(), std::ptr::null_mut());
    ok(cu::cuLaunchKernel(
        function, blocks, 1, 1, threads, 1, 1, 0, stream, list, none,
    ));
}

/// Reads values of device or managed memory, once the work before is complete.
#[track_caller]
pub fn read<T: Copy + Default>(from: CUdeviceptr, count: usize) -> Vec<T> {
    let mut values = vec![T::default(); count];
    let bytes = size_of::<T>() * count;
    ok(cu::cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), from, bytes));
    values
}
