//! The steps that many cases begin with. A step that fails stops the case.

use crate::case::Case;
use crate::driver::*;

/// A kibibyte.
pub(crate) const KIB: usize = 1 << 10;
/// A mebibyte.
pub(crate) const MIB: usize = 1 << 20;
/// The driver's page of physical memory.
pub(crate) const PAGE: usize = 2 * MIB;

/// Starts the driver and answers the first device.
pub(crate) fn start(c: &Case) -> CUdevice {
    let mut device = -1;
    c.require("cuInit", cuInit(0));
    c.require("cuDeviceGet", cuDeviceGet(&mut device, 0));
    device
}

/// Starts the driver, retains the first device's primary context and makes it current.
pub(crate) fn primary(c: &Case) -> CUcontext {
    let device = start(c);
    let context = retain(c, device);
    c.require("cuCtxSetCurrent", cuCtxSetCurrent(context));
    context
}

/// Retains the primary context.
pub(crate) fn retain(c: &Case, device: CUdevice) -> CUcontext {
    let mut context = CUcontext::NULL;
    c.require(
        "cuDevicePrimaryCtxRetain",
        cuDevicePrimaryCtxRetain(&mut context, device),
    );
    context
}

/// Creates a context on the first device, which makes it current.
pub(crate) fn create(c: &Case) -> CUcontext {
    let mut context = CUcontext::NULL;
    c.require("cuCtxCreate", cuCtxCreate_v2(&mut context, 0, 0));
    context
}

/// The current context.
pub(crate) fn current(c: &Case) -> CUcontext {
    let mut context = CUcontext(1);
    c.require("cuCtxGetCurrent", cuCtxGetCurrent(&mut context));
    context
}

/// Pops the current context.
pub(crate) fn pop(c: &Case) -> CUcontext {
    let mut context = CUcontext(1);
    c.require("cuCtxPopCurrent", cuCtxPopCurrent_v2(&mut context));
    context
}

/// The primary context's flags and whether it is active.
pub(crate) fn state(c: &Case, device: CUdevice) -> (u32, i32) {
    let (mut flags, mut active) = (99, 99);
    c.require(
        "cuDevicePrimaryCtxGetState",
        cuDevicePrimaryCtxGetState(device, &mut flags, &mut active),
    );
    (flags, active)
}

/// Waits for the context.
pub(crate) fn synchronize(c: &Case) {
    c.require("cuCtxSynchronize", cuCtxSynchronize());
}

/// Device memory.
pub(crate) fn alloc(c: &Case, bytes: usize) -> CUdeviceptr {
    let mut ptr = 0;
    c.require("cuMemAlloc", cuMemAlloc_v2(&mut ptr, bytes));
    ptr
}

/// Frees device memory.
pub(crate) fn free(c: &Case, ptr: CUdeviceptr) {
    c.require("cuMemFree", cuMemFree_v2(ptr));
}

/// Stream-ordered device memory.
pub(crate) fn alloc_async(c: &Case, bytes: usize, stream: CUstream) -> CUdeviceptr {
    let mut ptr = 0;
    c.require("cuMemAllocAsync", cuMemAllocAsync(&mut ptr, bytes, stream));
    ptr
}

/// Frees stream-ordered device memory.
pub(crate) fn free_async(c: &Case, ptr: CUdeviceptr, stream: CUstream) {
    c.require("cuMemFreeAsync", cuMemFreeAsync(ptr, stream));
}

/// Pinned host memory.
pub(crate) fn pinned(c: &Case, bytes: usize) -> *mut c_void {
    let mut p = std::ptr::null_mut();
    c.require("cuMemHostAlloc", cuMemHostAlloc(&mut p, bytes, 0));
    p
}

/// Managed memory that every stream may use.
pub(crate) fn managed(c: &Case, bytes: usize) -> CUdeviceptr {
    let mut ptr = 0;
    c.require(
        "cuMemAllocManaged",
        cuMemAllocManaged(&mut ptr, bytes, flags::MEM_ATTACH_GLOBAL),
    );
    ptr
}

/// Ordinary host memory that begins on a page and is never given back.
pub(crate) fn pages(bytes: usize) -> *mut u8 {
    let memory = Vec::leak(vec![0_u8; bytes + 4095]);
    let skip = memory.as_ptr().addr().wrapping_neg() % 4096;
    memory[skip..].as_mut_ptr()
}

/// A stream.
pub(crate) fn stream(c: &Case, flags: u32) -> CUstream {
    let mut stream = CUstream::NULL;
    c.require("cuStreamCreate", cuStreamCreate(&mut stream, flags));
    stream
}

/// Of physical memory of a device.
pub(crate) fn device_properties(device: CUdevice) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: virtual_memory::ALLOCATION_TYPE_PINNED,
        location: CUmemLocation {
            type_: virtual_memory::LOCATION_TYPE_DEVICE,
            id: device,
        },
        ..CUmemAllocationProp::default()
    }
}

/// A stream that does not wait for the legacy default stream, nor that for it.
pub(crate) fn independent(c: &Case) -> CUstream {
    stream(c, flags::STREAM_NON_BLOCKING)
}

/// Waits for a stream.
pub(crate) fn wait_for(c: &Case, stream: CUstream) {
    c.require("cuStreamSynchronize", cuStreamSynchronize(stream));
}

/// An event.
pub(crate) fn event(c: &Case, flags: u32) -> CUevent {
    let mut event = CUevent::NULL;
    c.require("cuEventCreate", cuEventCreate(&mut event, flags));
    event
}

/// Free device memory and all device memory, as the driver tells them.
pub(crate) fn memory(c: &Case) -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    c.require("cuMemGetInfo", cuMemGetInfo_v2(&mut free, &mut total));
    (free, total)
}

/// Free device memory.
pub(crate) fn free_bytes(c: &Case) -> usize {
    memory(c).0
}

/// How many KiB of device memory `body` took; negative if it gave some back.
pub(crate) fn taken_kib(c: &Case, body: impl FnOnce(&Case)) -> i64 {
    let before = free_bytes(c) as i64;
    body(c);
    (before - free_bytes(c) as i64) / KIB as i64
}

/// Copies bytes to the device.
pub(crate) fn write(c: &Case, ptr: CUdeviceptr, bytes: &[u8]) {
    let result = cuMemcpyHtoD_v2(ptr, bytes.as_ptr().cast(), bytes.len());
    c.require("cuMemcpyHtoD", result);
}

/// Copies bytes from the device.
pub(crate) fn read(c: &Case, ptr: CUdeviceptr, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let result = cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), ptr, count);
    c.require("cuMemcpyDtoH", result);
    bytes
}

/// A value of a memory pool.
pub(crate) fn pool_value(c: &Case, pool: CUmemoryPool, attribute: u32) -> u64 {
    let mut value = 0_u64;
    let result = cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast());
    c.require("cuMemPoolGetAttribute", result);
    value
}

/// What a pool holds, in KiB.
pub(crate) fn reserved_kib(c: &Case, pool: CUmemoryPool) -> u64 {
    pool_value(c, pool, pool_attribute::RESERVED_MEM_CURRENT) / KIB as u64
}

/// What of a pool is in use, in bytes.
pub(crate) fn used(c: &Case, pool: CUmemoryPool) -> u64 {
    pool_value(c, pool, pool_attribute::USED_MEM_CURRENT)
}

/// Sets a value of a memory pool.
pub(crate) fn set_pool_value(pool: CUmemoryPool, attribute: u32, mut value: u64) -> CUresult {
    cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast())
}

/// The first device's default pool.
pub(crate) fn default_pool(c: &Case) -> CUmemoryPool {
    let mut pool = CUmemoryPool::NULL;
    c.require(
        "cuDeviceGetDefaultMemPool",
        cuDeviceGetDefaultMemPool(&mut pool, 0),
    );
    pool
}
