//! Every raw free. The callers are [`OwnedResource`](super::OwnedResource), teardown, and code whose resources never
//! had a guard.

use cuguard_driver::result::{CallError, Result, event, graph, link, memory, module, pool, stream};
use cuguard_driver::sys::{
    CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUlinkState, CUmemoryPool, CUmodule, CUresult,
    CUstream, stream_capture_mode,
};
use cuguard_registry::{Key, ResourceKind};

use crate::core::release::peer_table;

/// Frees a resource.
///
/// # Safety
///
/// The key names a resource of the current context (of any context, for device memory) that is no longer used and that
/// nothing else frees. Stream-ordered memory is freed on `stream`; it is alive, and so is its context.
#[inline]
pub(crate) unsafe fn free(key: Key, stream: CUstream) -> Result {
    // SAFETY: as the caller ensures.
    match unsafe { free_once(key, stream) } {
        Err(error) if error.code == CUresult::STREAM_CAPTURE_UNSUPPORTED => {
            // SAFETY: as the caller ensures, and it is not freed yet.
            unsafe { free_in_capture(key, stream, error) }
        }
        freed => freed,
    }
}

/// Another stream is being captured, in a mode that prohibits frees on this thread. The call has ended that capture: what
/// remains is to lose no memory.
///
/// # Safety
///
/// As [`free`].
#[cold]
unsafe fn free_in_capture(key: Key, stream: CUstream, error: CallError) -> Result {
    let Ok(mode) = stream::exchange_capture_mode(stream_capture_mode::RELAXED) else {
        return Err(error);
    };
    // SAFETY: as the caller ensures.
    let freed = unsafe { free_once(key, stream) };
    // It was the mode of this thread before, so it is valid.
    let _ = stream::exchange_capture_mode(mode);
    freed
}

/// # Safety
///
/// As [`free`].
#[inline]
#[expect(clippy::disallowed_methods, reason = "the one place that frees")]
unsafe fn free_once(key: Key, stream: CUstream) -> Result {
    let address = key.address;
    let handle = address as usize;
    // SAFETY: as the caller ensures.
    unsafe {
        match key.kind {
            ResourceKind::StreamOrdered => memory::free_async(address, stream),
            ResourceKind::Device | ResourceKind::Managed => memory::free(address),
            // Pinned memory is registered too: `HostMemory` frees it afterwards. Registered memory belongs to the program.
            ResourceKind::Pinned | ResourceKind::Registered => {
                memory::host_unregister(std::ptr::with_exposed_provenance_mut(handle))
            }
            ResourceKind::WriteCombined => {
                memory::free_host(std::ptr::with_exposed_provenance_mut(handle))
            }
            ResourceKind::Stream => stream::destroy(CUstream(handle)),
            ResourceKind::Event => event::destroy(CUevent(handle)),
            ResourceKind::Module => module::unload(CUmodule(handle)),
            ResourceKind::MemoryPool => pool::destroy(CUmemoryPool(handle)),
            ResourceKind::PeerAccess => peer_table::disable(address),
            ResourceKind::Graph => graph::destroy(CUgraph(handle)),
            ResourceKind::GraphExec => graph::exec_destroy(CUgraphExec(handle)),
            // Its memory is released when its last block is freed, and by teardown.
            ResourceKind::Pool => Ok(()),
            // What only programs without guards have, and memory of a pool, which the pool frees.
            ResourceKind::Pooled
            | ResourceKind::Array
            | ResourceKind::Physical
            | ResourceKind::Mapped
            | ResourceKind::Imported
            | ResourceKind::GraphMemory
            | ResourceKind::AddressRange
            | ResourceKind::Context
            | ResourceKind::Library => Err(CallError {
                function: "free",
                code: CUresult::INVALID_VALUE,
            }),
        }
    }
}

/// Destroys a linker, which no guard owns: it does not outlive the call that creates it.
///
/// # Safety
///
/// The linker is alive, and neither it nor its image is used afterwards. Its context is current.
#[expect(clippy::disallowed_methods, reason = "the one place that frees")]
pub(crate) unsafe fn destroy_linker(linker: CUlinkState) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { link::destroy(linker) }
}

/// Adds a node to the graph that `stream` captures, which frees memory that a node of the same graph allocates. No memory
/// is freed now.
///
/// # Safety
///
/// The stream is alive and captures, and allocated the memory in that capture.
#[expect(clippy::disallowed_methods, reason = "the one place that frees")]
pub(crate) unsafe fn capture_free(address: CUdeviceptr, stream: CUstream) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { memory::free_async(address, stream) }
}
