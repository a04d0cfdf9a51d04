//! The driver's constants that this project uses, grouped by the driver's enumerations.

#![expect(missing_docs, reason = "the driver's own names")]

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

/// Values of virtual memory management and memory pools.
pub mod virtual_memory {
    pub const ALLOCATION_TYPE_PINNED: u32 = 1;
    pub const LOCATION_TYPE_DEVICE: u32 = 1;
    pub const ACCESS_NONE: u32 = 0;
    pub const ACCESS_READWRITE: u32 = 3;
    pub const GRANULARITY_MINIMUM: u32 = 0;
    pub const GRANULARITY_RECOMMENDED: u32 = 1;
}
