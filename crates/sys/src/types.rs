//! The C types that the functions take, under the names that the driver's header gives them.
//! Enumerations are plain `u32`: a driver may answer values that are newer than this crate.

#![expect(
    non_snake_case,
    reason = "fields keep the driver's names, so that its documentation applies"
)]

use std::ffi::c_void;

/// A device's number within the process, as `cuDeviceGet` answers it.
pub type CUdevice = i32;

/// An address in a device's memory.
pub type CUdeviceptr = u64;

/// A piece of physical memory made by `cuMemCreate`.
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
        /// An opaque handle: a pointer for the driver, a number for everybody else, so that it
        /// can be sent to any thread and compared.
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
    /// An array, the opaque layout that textures and surfaces read.
    CUarray;
}

impl CUstream {
    /// `CU_STREAM_LEGACY`: the legacy default stream by its explicit name.
    pub const LEGACY: CUstream = CUstream(1);
    /// `CU_STREAM_PER_THREAD`: the calling thread's default stream.
    pub const PER_THREAD: CUstream = CUstream(2);
}

/// A device's identity, stable over reboots.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the driver's own names")]
pub struct CUuuid {
    pub bytes: [u8; 16],
}

/// Where memory lies.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the driver's own names")]
pub struct CUmemLocation {
    pub type_: u32,
    pub id: i32,
}

/// What a memory pool is made of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the driver's own names")]
pub struct CUmemPoolProps {
    pub allocType: u32,
    pub handleTypes: u32,
    pub location: CUmemLocation,
    pub win32SecurityAttributes: *mut c_void,
    pub reserved: [u8; 64],
}

impl Default for CUmemPoolProps {
    fn default() -> Self {
        Self {
            allocType: 0,
            handleTypes: 0,
            location: CUmemLocation::default(),
            win32SecurityAttributes: std::ptr::null_mut(),
            reserved: [0; 64],
        }
    }
}

/// What physical memory to create.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the driver's own names")]
pub struct CUmemAllocationProp {
    pub type_: u32,
    pub requestedHandleTypes: u32,
    pub location: CUmemLocation,
    pub win32HandleMetaData: *mut c_void,
    pub allocFlags: CUmemAllocationFlags,
}

impl Default for CUmemAllocationProp {
    fn default() -> Self {
        Self {
            type_: 0,
            requestedHandleTypes: 0,
            location: CUmemLocation::default(),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationFlags::default(),
        }
    }
}

/// The flags within [`CUmemAllocationProp`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the driver's own names")]
pub struct CUmemAllocationFlags {
    pub compressionType: u8,
    pub gpuDirectRDMACapable: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// Who may use a mapped range, and how.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the driver's own names")]
pub struct CUmemAccessDesc {
    pub location: CUmemLocation,
    pub flags: u32,
}

/// A two-dimensional copy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the driver's own names")]
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

impl Default for CUDA_MEMCPY2D {
    fn default() -> Self {
        Self {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: 0,
            srcHost: std::ptr::null(),
            srcDevice: 0,
            srcArray: CUarray::NULL,
            srcPitch: 0,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: 0,
            dstHost: std::ptr::null_mut(),
            dstDevice: 0,
            dstArray: CUarray::NULL,
            dstPitch: 0,
            WidthInBytes: 0,
            Height: 0,
        }
    }
}

/// The shape of an array.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the driver's own names")]
pub struct CUDA_ARRAY3D_DESCRIPTOR {
    pub Width: usize,
    pub Height: usize,
    pub Depth: usize,
    pub Format: u32,
    pub NumChannels: u32,
    pub Flags: u32,
}
