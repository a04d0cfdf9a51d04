//! Kernels: attributes, parameters, occupancy, launches.

use std::ffi::c_void;
use std::ptr;

use cuguard_sys::{CUfunction, CUfunction_attribute, CUlaunchConfig, CUstream};

use super::{Result, call, out};

/// Returns an attribute of a kernel, by a constant of [`function_attribute`](cuguard_sys::function_attribute).
/// Loads the kernel's code if the driver loads it lazily.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_OUT_OF_MEMORY`, or any other driver error.
///
/// # Safety
///
/// The function is alive.
#[inline]
pub unsafe fn attribute(attribute: CUfunction_attribute, function: CUfunction) -> Result<i32> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    out(|value| unsafe { call!(cuFuncGetAttribute(value, attribute, function)) })
}

/// Sets an attribute of a kernel.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`, or any other driver error.
///
/// # Safety
///
/// The function is alive.
#[inline]
pub unsafe fn set_attribute(
    function: CUfunction,
    attribute: CUfunction_attribute,
    value: i32,
) -> Result {
    // SAFETY: as the caller ensures; the driver checks attribute and value.
    unsafe { call!(cuFuncSetAttribute(function, attribute, value)) }
}

/// Where a parameter lies among the parameters of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParamInfo {
    /// Its offset in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
}

/// Returns the place of parameter `index`, counted from 0.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` if there are fewer parameters; `CUDA_ERROR_NOT_FOUND` before CUDA 12.4; any other
/// driver error.
///
/// # Safety
///
/// The function is alive.
#[inline]
pub unsafe fn param_info(function: CUfunction, index: usize) -> Result<ParamInfo> {
    let mut info = ParamInfo::default();
    let (offset, size) = (&mut info.offset, &mut info.size);
    // SAFETY: both variables can be written to; the rest is as the caller ensures.
    unsafe { call!(cuFuncGetParamInfo(function, index, offset, size))? };
    Ok(info)
}

/// Returns how many blocks of so many threads fit on a multiprocessor at a time.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`, or any other driver error.
///
/// # Safety
///
/// The function is alive.
#[inline]
pub unsafe fn max_active_blocks(
    function: CUfunction,
    threads: i32,
    shared_bytes: usize,
) -> Result<i32> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    out(|blocks| unsafe {
        call!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks,
            function,
            threads,
            shared_bytes
        ))
    })
}

/// A block size by occupancy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSize {
    /// The blocks that the whole device runs at a time.
    pub min_grid: i32,
    /// The threads of a block.
    pub block: i32,
}

/// Returns the block size with the highest occupancy. `limit` is the most threads of a block; 0 is no limit.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`, or any other driver error.
///
/// # Safety
///
/// The function is alive.
#[inline]
pub unsafe fn max_potential_block_size(
    function: CUfunction,
    shared_bytes: usize,
    limit: i32,
) -> Result<BlockSize> {
    let mut size = BlockSize::default();
    let (grid, block) = (&mut size.min_grid, &mut size.block);
    // SAFETY: both variables can be written to; the rest is as the caller ensures.
    unsafe {
        call!(cuOccupancyMaxPotentialBlockSize(
            grid,
            block,
            function,
            None,
            shared_bytes,
            limit
        ))?
    };
    Ok(size)
}

/// Returns the dynamic shared memory that each block can have if so many blocks of so many threads are to fit on
/// a multiprocessor at a time.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`, or any other driver error.
///
/// # Safety
///
/// The function is alive.
#[inline]
pub unsafe fn available_dynamic_shared(
    function: CUfunction,
    blocks: i32,
    threads: i32,
) -> Result<usize> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    out(|bytes| unsafe {
        call!(cuOccupancyAvailableDynamicSMemPerBlock(
            bytes, function, blocks, threads
        ))
    })
}

/// Returns how many clusters of this launch the device runs at a time.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_INVALID_CLUSTER_SIZE`, or any other driver error.
///
/// # Safety
///
/// The function is alive, and the configuration's attributes can be read.
#[inline]
pub unsafe fn max_active_clusters(function: CUfunction, config: &CUlaunchConfig) -> Result<i32> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    out(|clusters| unsafe { call!(cuOccupancyMaxActiveClusters(clusters, function, config)) })
}

/// Returns the most blocks that a cluster of this launch can have.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`, or any other driver error.
///
/// # Safety
///
/// As [`max_active_clusters`].
#[inline]
pub unsafe fn max_potential_cluster_size(
    function: CUfunction,
    config: &CUlaunchConfig,
) -> Result<i32> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    out(|size| unsafe { call!(cuOccupancyMaxPotentialClusterSize(size, function, config)) })
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
    parameters: &[*mut c_void],
) -> Result {
    // SAFETY: as the caller ensures; the driver only reads the pointers.
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
            parameters.as_ptr().cast_mut(),
            ptr::null_mut(),
        ))
    }
}

/// Launches a kernel as configured, with attributes such as the dimensions of a cluster.
///
/// # Errors
///
/// As [`launch_kernel`]; `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`, `CUDA_ERROR_INVALID_CLUSTER_SIZE`.
///
/// # Safety
///
/// As [`launch_kernel`], and the configuration's attributes can be read.
#[inline]
pub unsafe fn launch_kernel_ex(
    config: &CUlaunchConfig,
    function: CUfunction,
    parameters: &[*mut c_void],
) -> Result {
    // SAFETY: as the caller ensures; the driver only reads the pointers.
    unsafe {
        call!(cuLaunchKernelEx(
            config,
            function,
            parameters.as_ptr().cast_mut(),
            ptr::null_mut()
        ))
    }
}
