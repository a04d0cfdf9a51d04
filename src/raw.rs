//! Every raw free, and nothing else: law 1 says that only a guard frees, and this is where it
//! does.

use cuguard_driver::api;
use cuguard_driver::sys::{CUevent, CUmemoryPool, CUmodule, CUresult, CUstream};

use crate::registry::{Key, Kind};

/// Gives a resource back to the driver. Answers the driver's function, by its name without
/// version, and what it said.
///
/// # Safety
///
/// The key names a resource of the current context (of any, for memory) that nobody uses any more
/// and nobody else frees. `stream` is the stream on which stream-ordered memory is freed; it is
/// alive, and so is its context.
pub(crate) unsafe fn free(key: Key, stream: CUstream) -> (&'static str, CUresult) {
    let address = key.address;
    let handle = address as usize;
    // SAFETY: the caller vouches for the resource.
    unsafe {
        match key.kind {
            Kind::Device | Kind::Managed => ("cuMemFree", api::cuMemFree_v2(address)),
            Kind::StreamOrdered => ("cuMemFreeAsync", api::cuMemFreeAsync(address, stream)),
            // The memory itself belongs to the program.
            Kind::Pinned | Kind::Registered => (
                "cuMemHostUnregister",
                api::cuMemHostUnregister(std::ptr::with_exposed_provenance_mut(handle)),
            ),
            Kind::Stream => ("cuStreamDestroy", api::cuStreamDestroy_v2(CUstream(handle))),
            Kind::Event => ("cuEventDestroy", api::cuEventDestroy_v2(CUevent(handle))),
            Kind::Module => ("cuModuleUnload", api::cuModuleUnload(CUmodule(handle))),
            Kind::MemoryPool => (
                "cuMemPoolDestroy",
                api::cuMemPoolDestroy(CUmemoryPool(handle)),
            ),
        }
    }
}
