//! The C types of the driver's parameters, under the names of its header. Enumerations are plain `u32`: a driver
//! may return values that are newer than this crate.

#![expect(
    missing_docs,
    non_snake_case,
    reason = "fields keep the driver's names, so that its documentation applies"
)]

use std::ffi::c_void;

/// A device, as `cuDeviceGet` returns it: its ordinal within the process.
pub type CUdevice = i32;

/// An address in a device's memory.
pub type CUdeviceptr = u64;

/// Physical memory that `cuMemCreate` allocated.
pub type CUmemGenericAllocationHandle = u64;

/// A host function for `cuLaunchHostFunc`.
pub type CUhostFn = unsafe extern "C" fn(user_data: *mut c_void);

/// A host function for `cuStreamAddCallback`.
pub type CUstreamCallback =
    unsafe extern "C" fn(stream: CUstream, status: crate::CUresult, user_data: *mut c_void);

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// An opaque handle: a pointer for the driver, a number for all other code, so that it can be sent to
        /// any thread and compared.
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub usize);

        impl $name {
            /// The null handle.
            pub const NULL: $name = $name(0);

            /// Whether this is the null handle.
            #[must_use]
            pub const fn is_null(self) -> bool {
                self.0 == 0
            }
        }
    )*};
}

handles! {
    /// A context.
    CUcontext;
    /// A stream. Null is the legacy default stream of the current context.
    CUstream;
    /// An event.
    CUevent;
    /// A loaded module.
    CUmodule;
    /// A kernel of a module.
    CUfunction;
    /// A memory pool.
    CUmemoryPool;
    /// An array: memory in the opaque layout that textures and surfaces read.
    CUarray;
}

impl CUstream {
    /// `CU_STREAM_LEGACY`: the legacy default stream by its explicit name.
    pub const LEGACY: CUstream = CUstream(1);
    /// `CU_STREAM_PER_THREAD`: the calling thread's default stream.
    pub const PER_THREAD: CUstream = CUstream(2);
}

/// A device's identity, stable across reboots.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUuuid {
    pub bytes: [u8; 16],
}

/// Where memory is located.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUmemLocation {
    pub type_: u32,
    pub id: i32,
}

/// The properties of a memory pool.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUmemPoolProps {
    pub allocType: u32,
    pub handleTypes: u32,
    pub location: CUmemLocation,
    pub win32SecurityAttributes: *mut c_void,
    /// 64 bytes in the driver's header.
    pub reserved: [u64; 8],
}

/// The properties of physical memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUmemAllocationProp {
    pub type_: u32,
    pub requestedHandleTypes: u32,
    pub location: CUmemLocation,
    pub win32HandleMetaData: *mut c_void,
    pub allocFlags: CUmemAllocationFlags,
}

/// The flags within [`CUmemAllocationProp`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUmemAllocationFlags {
    pub compressionType: u8,
    pub gpuDirectRDMACapable: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// Which device may access a mapped range, and how.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUmemAccessDesc {
    pub location: CUmemLocation,
    pub flags: u32,
}

/// A two-dimensional copy.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUDA_MEMCPY2D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcMemoryType: u32,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcPitch: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstMemoryType: u32,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstPitch: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
}

/// The shape of an array.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUDA_ARRAY3D_DESCRIPTOR {
    pub Width: usize,
    pub Height: usize,
    pub Depth: usize,
    pub Format: u32,
    pub NumChannels: u32,
    pub Flags: u32,
}
