//! Every raw free, and nothing else: law 1 says that only a guard frees, and this is where it
//! does.

use cuguard_driver::api;
use cuguard_driver::sys::{CUevent, CUmemoryPool, CUmodule, CUresult, CUstream};

use cuguard_registry::{Key, Kind};

/// Gives a resource back to the driver, and answers what it said.
///
/// # Safety
///
/// The key names a resource of the current context (of any, for memory) that nobody uses any more
/// and nobody else frees. `stream` is the stream on which stream-ordered memory is freed; it is
/// alive, and so is its context.
#[inline]
pub(crate) unsafe fn free(key: Key, stream: CUstream) -> CUresult {
    let address = key.address;
    let handle = address as usize;
    // SAFETY: the caller vouches for the resource.
    unsafe {
        match key.kind {
            Kind::StreamOrdered => api::cuMemFreeAsync(address, stream),
            Kind::Device | Kind::Managed => api::cuMemFree_v2(address),
            // The memory itself belongs to the program.
            Kind::Pinned | Kind::Registered => {
                api::cuMemHostUnregister(std::ptr::with_exposed_provenance_mut(handle))
            }
            Kind::Stream => api::cuStreamDestroy_v2(CUstream(handle)),
            Kind::Event => api::cuEventDestroy_v2(CUevent(handle)),
            Kind::Module => api::cuModuleUnload(CUmodule(handle)),
            Kind::MemoryPool => api::cuMemPoolDestroy(CUmemoryPool(handle)),
        }
    }
}

/// The driver's function that [`free`] calls, by its name without version.
pub(crate) fn function(kind: Kind) -> &'static str {
    match kind {
        Kind::StreamOrdered => "cuMemFreeAsync",
        Kind::Device | Kind::Managed => "cuMemFree",
        Kind::Pinned | Kind::Registered => "cuMemHostUnregister",
        Kind::Stream => "cuStreamDestroy",
        Kind::Event => "cuEventDestroy",
        Kind::Module => "cuModuleUnload",
        Kind::MemoryPool => "cuMemPoolDestroy",
    }
}
