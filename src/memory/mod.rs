//! Guards of memory, one a file. Each holds a [`Claim`](crate::claim::Claim), which does the
//! freeing; what is here is what a kind of memory can do.

mod device_box;
mod device_buffer;
mod handover;
mod host_memory;
mod host_pages;
mod lent;
mod managed_buffer;
mod memory_pool;
mod pinned_buffer;
mod registered;
mod stream_ordered;

pub use device_box::DeviceBox;
pub use device_buffer::DeviceBuffer;
pub(crate) use host_pages::HostMemory;
pub use managed_buffer::ManagedBuffer;
pub use memory_pool::MemoryPool;
pub(crate) use memory_pool::PoolCore;
pub use pinned_buffer::PinnedBuffer;
pub use registered::Registered;
pub(crate) use registered::free_deferred;
