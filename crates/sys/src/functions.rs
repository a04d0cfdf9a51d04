//! Signatures of the driver functions that this project calls or simulates. Each returns a
//! [`CUresult`](crate::CUresult).

/// Calls the macro `$callback` with the signatures of all functions that this project calls or simulates, as a
/// sequence of `fn name(parameter: type, ...);`.
///
/// The types are those of this crate and of `core::ffi`; the caller imports them with
/// `use cuguard_sys::*;`.
///
/// ```
/// macro_rules! names {
///     ($(fn $name:ident($($parameter:ident: $type:ty),*);)*) => { [$(stringify!($name)),*] };
/// }
/// let typed = cuguard_sys::with_functions!(names);
/// assert!(typed.contains(&"cuMemAlloc_v2"));
/// assert!(typed.iter().all(|name| cuguard_sys::NAMES.contains(name)));
/// ```
#[macro_export]
#[rustfmt::skip]
macro_rules! with_functions {
    ($callback:ident) => {
        $callback! {
            // Initialization and errors
            fn cuInit(flags: u32);
            fn cuDriverGetVersion(driver_version: *mut i32);
            fn cuGetErrorName(error: CUresult, text: *mut *const c_char);
            fn cuGetErrorString(error: CUresult, text: *mut *const c_char);
            fn cuGetProcAddress(symbol: *const c_char, out: *mut *mut c_void, cuda_version: i32, flags: u64);
            // Devices
            fn cuDeviceGet(device: *mut CUdevice, ordinal: i32);
            fn cuDeviceGetCount(count: *mut i32);
            fn cuDeviceGetName(name: *mut c_char, len: i32, dev: CUdevice);
            fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice);
            fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice);
            fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice);
            fn cuDeviceGetAttribute(value: *mut i32, attrib: u32, dev: CUdevice);
            fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, dev: CUdevice);
            fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, bus_id: *const c_char);
            fn cuDeviceGetPCIBusId(bus_id: *mut c_char, len: i32, dev: CUdevice);
            fn cuDeviceCanAccessPeer(can_access_peer: *mut i32, dev: CUdevice, peer_dev: CUdevice);
            fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, dev: CUdevice);
            fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice);
            fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool);
            // Primary contexts
            fn cuDevicePrimaryCtxRetain(out: *mut CUcontext, dev: CUdevice);
            fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice);
            fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: u32);
            fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut u32, active: *mut i32);
            fn cuDevicePrimaryCtxReset_v2(dev: CUdevice);
            // Contexts
            fn cuCtxCreate_v2(out: *mut CUcontext, flags: u32, dev: CUdevice);
            fn cuCtxDestroy_v2(ctx: CUcontext);
            fn cuCtxPushCurrent_v2(ctx: CUcontext);
            fn cuCtxPopCurrent_v2(out: *mut CUcontext);
            fn cuCtxSetCurrent(ctx: CUcontext);
            fn cuCtxGetCurrent(out: *mut CUcontext);
            fn cuCtxGetDevice(device: *mut CUdevice);
            fn cuCtxGetFlags(flags: *mut u32);
            fn cuCtxSynchronize();
            fn cuCtxSetLimit(limit: u32, value: usize);
            fn cuCtxGetLimit(value: *mut usize, limit: u32);
            fn cuCtxGetCacheConfig(config: *mut u32);
            fn cuCtxSetCacheConfig(config: u32);
            fn cuCtxGetSharedMemConfig(config: *mut u32);
            fn cuCtxSetSharedMemConfig(config: u32);
            fn cuCtxGetApiVersion(ctx: CUcontext, version: *mut u32);
            fn cuCtxGetStreamPriorityRange(least_priority: *mut i32, greatest_priority: *mut i32);
            fn cuCtxResetPersistingL2Cache();
            // Memory
            fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
            fn cuMemAlloc_v2(ptr: *mut CUdeviceptr, bytes: usize);
            fn cuMemAllocPitch_v2(ptr: *mut CUdeviceptr, pitch: *mut usize, width_in_bytes: usize, height: usize, element_size_bytes: u32);
            fn cuMemFree_v2(ptr: CUdeviceptr);
            fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, ptr: CUdeviceptr);
            fn cuMemAllocHost_v2(out: *mut *mut c_void, bytes: usize);
            fn cuMemFreeHost(p: *mut c_void);
            fn cuMemHostAlloc(out: *mut *mut c_void, bytes: usize, flags: u32);
            fn cuMemHostGetDevicePointer_v2(out: *mut CUdeviceptr, p: *mut c_void, flags: u32);
            fn cuMemHostGetFlags(flags: *mut u32, p: *mut c_void);
            fn cuMemAllocManaged(ptr: *mut CUdeviceptr, bytes: usize, flags: u32);
            fn cuMemHostRegister_v2(p: *mut c_void, bytes: usize, flags: u32);
            fn cuMemHostUnregister(p: *mut c_void);
            // Copies
            fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize);
            fn cuMemcpyPeer(dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize);
            fn cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize);
            fn cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize);
            fn cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize);
            fn cuMemcpyHtoA_v2(dst: CUarray, dst_offset: usize, src: *const c_void, bytes: usize);
            fn cuMemcpyAtoH_v2(dst: *mut c_void, src: CUarray, src_offset: usize, bytes: usize);
            fn cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D);
            fn cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D);
            fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream);
            fn cuMemcpyPeerAsync(dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize, stream: CUstream);
            fn cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream);
            fn cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream);
            fn cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream);
            fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream);
            // Fills
            fn cuMemsetD8_v2(dst: CUdeviceptr, value: u8, count: usize);
            fn cuMemsetD16_v2(dst: CUdeviceptr, value: u16, count: usize);
            fn cuMemsetD32_v2(dst: CUdeviceptr, value: u32, count: usize);
            fn cuMemsetD2D8_v2(dst: CUdeviceptr, dst_pitch: usize, value: u8, width: usize, height: usize);
            fn cuMemsetD2D16_v2(dst: CUdeviceptr, dst_pitch: usize, value: u16, width: usize, height: usize);
            fn cuMemsetD2D32_v2(dst: CUdeviceptr, dst_pitch: usize, value: u32, width: usize, height: usize);
            fn cuMemsetD8Async(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream);
            fn cuMemsetD16Async(dst: CUdeviceptr, value: u16, count: usize, stream: CUstream);
            fn cuMemsetD32Async(dst: CUdeviceptr, value: u32, count: usize, stream: CUstream);
            fn cuMemsetD2D8Async(dst: CUdeviceptr, dst_pitch: usize, value: u8, width: usize, height: usize, stream: CUstream);
            fn cuMemsetD2D16Async(dst: CUdeviceptr, dst_pitch: usize, value: u16, width: usize, height: usize, stream: CUstream);
            fn cuMemsetD2D32Async(dst: CUdeviceptr, dst_pitch: usize, value: u32, width: usize, height: usize, stream: CUstream);
            // Arrays
            fn cuArray3DCreate_v2(out: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR);
            fn cuArray3DGetDescriptor_v2(descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray);
            fn cuArrayDestroy(array: CUarray);
            // Virtual memory
            fn cuMemAddressReserve(ptr: *mut CUdeviceptr, size: usize, alignment: usize, addr: CUdeviceptr, flags: u64);
            fn cuMemAddressFree(ptr: CUdeviceptr, size: usize);
            fn cuMemCreate(handle: *mut CUmemGenericAllocationHandle, size: usize, prop: *const CUmemAllocationProp, flags: u64);
            fn cuMemRelease(handle: CUmemGenericAllocationHandle);
            fn cuMemMap(ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64);
            fn cuMemUnmap(ptr: CUdeviceptr, size: usize);
            fn cuMemSetAccess(ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize);
            fn cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, ptr: CUdeviceptr);
            fn cuMemGetAllocationGranularity(granularity: *mut usize, prop: *const CUmemAllocationProp, option: u32);
            fn cuMemGetAllocationPropertiesFromHandle(prop: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle);
            fn cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void);
            // Stream-ordered memory
            fn cuMemFreeAsync(ptr: CUdeviceptr, stream: CUstream);
            fn cuMemAllocAsync(ptr: *mut CUdeviceptr, bytes: usize, stream: CUstream);
            fn cuMemPoolTrimTo(pool: CUmemoryPool, min_bytes_to_keep: usize);
            fn cuMemPoolSetAttribute(pool: CUmemoryPool, attr: u32, value: *mut c_void);
            fn cuMemPoolGetAttribute(pool: CUmemoryPool, attr: u32, value: *mut c_void);
            fn cuMemPoolCreate(pool: *mut CUmemoryPool, props: *const CUmemPoolProps);
            fn cuMemPoolDestroy(pool: CUmemoryPool);
            fn cuMemAllocFromPoolAsync(ptr: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream);
            // Pointers and managed memory
            fn cuPointerGetAttribute(data: *mut c_void, attribute: u32, ptr: CUdeviceptr);
            fn cuPointerGetAttributes(num_attributes: u32, attributes: *mut u32, data: *mut *mut c_void, ptr: CUdeviceptr);
            fn cuPointerSetAttribute(value: *const c_void, attribute: u32, ptr: CUdeviceptr);
            fn cuMemPrefetchAsync(ptr: CUdeviceptr, count: usize, device: CUdevice, stream: CUstream);
            fn cuMemAdvise(ptr: CUdeviceptr, count: usize, advice: u32, device: CUdevice);
            // Streams
            fn cuStreamCreate(out: *mut CUstream, flags: u32);
            fn cuStreamCreateWithPriority(out: *mut CUstream, flags: u32, priority: i32);
            fn cuStreamGetPriority(stream: CUstream, priority: *mut i32);
            fn cuStreamGetFlags(stream: CUstream, flags: *mut u32);
            fn cuStreamGetCtx(stream: CUstream, out: *mut CUcontext);
            fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32);
            fn cuStreamAddCallback(stream: CUstream, callback: Option<CUstreamCallback>, user_data: *mut c_void, flags: u32);
            fn cuStreamIsCapturing(stream: CUstream, capture_status: *mut u32);
            fn cuStreamQuery(stream: CUstream);
            fn cuStreamSynchronize(stream: CUstream);
            fn cuStreamDestroy_v2(stream: CUstream);
            // Events
            fn cuEventCreate(out: *mut CUevent, flags: u32);
            fn cuEventRecord(event: CUevent, stream: CUstream);
            fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: u32);
            fn cuEventQuery(event: CUevent);
            fn cuEventSynchronize(event: CUevent);
            fn cuEventDestroy_v2(event: CUevent);
            fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
            // Host functions and the profiler
            fn cuLaunchHostFunc(stream: CUstream, function: Option<CUhostFn>, user_data: *mut c_void);
            fn cuProfilerStart();
            fn cuProfilerStop();
            // Modules and kernels
            fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
            fn cuModuleUnload(module: CUmodule);
            fn cuModuleGetFunction(out: *mut CUfunction, module: CUmodule, name: *const c_char);
            fn cuModuleGetGlobal_v2(ptr: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);
            fn cuLaunchKernel(function: CUfunction, grid_dim_x: u32, grid_dim_y: u32, grid_dim_z: u32, block_dim_x: u32, block_dim_y: u32, block_dim_z: u32, shared_mem_bytes: u32, stream: CUstream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void);
        }
    };
}
