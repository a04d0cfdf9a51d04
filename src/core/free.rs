//! Every raw free: only an [`OwnedResource`](super::OwnedResource), teardown, and what never had a guard call this.

use cuguard_driver::result::{Result, event, memory, module, pool, stream};
use cuguard_driver::sys::{CUevent, CUmemoryPool, CUmodule, CUstream};
use cuguard_registry::{Key, Kind};

/// Frees a resource.
///
/// # Safety
///
/// The key names a resource of the current context (of any context, for device memory) that is no longer used and that
/// nothing else frees. Stream-ordered memory is freed on `stream`; it is alive, and so is its context.
#[inline]
#[expect(clippy::disallowed_methods, reason = "the one place that frees")]
pub(crate) unsafe fn free(key: Key, stream: CUstream) -> Result {
    let address = key.address;
    let handle = address as usize;
    // SAFETY: as the caller ensures.
    unsafe {
        match key.kind {
            Kind::StreamOrdered => memory::free_async(address, stream),
            Kind::Device | Kind::Managed => memory::free(address),
            // Pinned memory is registered too: `HostMemory` frees it afterwards. Registered memory belongs to the program.
            Kind::Pinned | Kind::Registered => {
                memory::host_unregister(std::ptr::with_exposed_provenance_mut(handle))
            }
            Kind::Stream => stream::destroy(CUstream(handle)),
            Kind::Event => event::destroy(CUevent(handle)),
            Kind::Module => module::unload(CUmodule(handle)),
            Kind::MemoryPool => pool::destroy(CUmemoryPool(handle)),
        }
    }
}
