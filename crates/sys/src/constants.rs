//! The driver's constants that this project uses, grouped by the driver's enumerations.

#![expect(missing_docs, reason = "the driver's own names")]

/// `CUdevice_attribute`, for `cuDeviceGetAttribute`.
pub mod device_attribute {
    pub const MAX_THREADS_PER_BLOCK: u32 = 1;
    pub const WARP_SIZE: u32 = 10;
    pub const MULTIPROCESSOR_COUNT: u32 = 16;
    pub const CAN_MAP_HOST_MEMORY: u32 = 19;
    pub const COMPUTE_MODE: u32 = 20;
    pub const ECC_ENABLED: u32 = 32;
    pub const UNIFIED_ADDRESSING: u32 = 41;
    pub const COMPUTE_CAPABILITY_MAJOR: u32 = 75;
    pub const COMPUTE_CAPABILITY_MINOR: u32 = 76;
    pub const MANAGED_MEMORY: u32 = 83;
    pub const CONCURRENT_MANAGED_ACCESS: u32 = 89;
    pub const VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: u32 = 102;
    pub const MEMORY_POOLS_SUPPORTED: u32 = 115;
}

/// `CUlimit`, for `cuCtxGetLimit` and `cuCtxSetLimit`.
pub mod limit {
    pub const STACK_SIZE: u32 = 0;
    pub const PRINTF_FIFO_SIZE: u32 = 1;
    pub const MALLOC_HEAP_SIZE: u32 = 2;
}

/// Flags of streams, events, managed and host memory.
pub mod flags {
    pub const STREAM_NON_BLOCKING: u32 = 1;
    pub const EVENT_BLOCKING_SYNC: u32 = 1;
    pub const EVENT_DISABLE_TIMING: u32 = 2;
    pub const EVENT_INTERPROCESS: u32 = 4;
    pub const MEM_ATTACH_GLOBAL: u32 = 1;
    pub const MEM_ATTACH_HOST: u32 = 2;
    pub const MEMHOSTALLOC_PORTABLE: u32 = 1;
    pub const MEMHOSTALLOC_DEVICEMAP: u32 = 2;
    pub const MEMHOSTALLOC_WRITECOMBINED: u32 = 4;
}

/// `CUmemPool_attribute`, for `cuMemPoolGetAttribute` and `cuMemPoolSetAttribute`.
pub mod pool_attribute {
    pub const REUSE_FOLLOW_EVENT_DEPENDENCIES: u32 = 1;
    pub const REUSE_ALLOW_OPPORTUNISTIC: u32 = 2;
    pub const REUSE_ALLOW_INTERNAL_DEPENDENCIES: u32 = 3;
    pub const RELEASE_THRESHOLD: u32 = 4;
    pub const RESERVED_MEM_CURRENT: u32 = 5;
    pub const RESERVED_MEM_HIGH: u32 = 6;
    pub const USED_MEM_CURRENT: u32 = 7;
    pub const USED_MEM_HIGH: u32 = 8;
}

/// `CUpointer_attribute`, for `cuPointerGetAttribute`.
pub mod pointer_attribute {
    pub const CONTEXT: u32 = 1;
    pub const MEMORY_TYPE: u32 = 2;
    pub const DEVICE_POINTER: u32 = 3;
    pub const HOST_POINTER: u32 = 4;
    pub const SYNC_MEMOPS: u32 = 6;
    pub const BUFFER_ID: u32 = 7;
    pub const IS_MANAGED: u32 = 8;
    pub const DEVICE_ORDINAL: u32 = 9;
    pub const RANGE_START_ADDR: u32 = 11;
    pub const RANGE_SIZE: u32 = 12;
    pub const MAPPED: u32 = 13;
}

/// `CUmemorytype`, for two-dimensional copies and pointer attributes.
pub mod memory_type {
    pub const HOST: u32 = 1;
    pub const DEVICE: u32 = 2;
    pub const ARRAY: u32 = 3;
    pub const UNIFIED: u32 = 4;
}

/// Values of virtual memory management and memory pools.
pub mod virtual_memory {
    pub const ALLOCATION_TYPE_PINNED: u32 = 1;
    pub const LOCATION_TYPE_DEVICE: u32 = 1;
    pub const ACCESS_NONE: u32 = 0;
    pub const ACCESS_READWRITE: u32 = 3;
    pub const GRANULARITY_MINIMUM: u32 = 0;
    pub const GRANULARITY_RECOMMENDED: u32 = 1;
}
