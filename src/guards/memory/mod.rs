//! Guards of memory, one a file. Each holds a [`OwnedResource`](crate::core::OwnedResource), which does the
//! freeing; what is here is what a kind of memory can do.

mod cust_interop;
mod device_box;
mod device_buffer;
mod host_limit;
mod host_pages;
mod into_raw;
mod managed_buffer;
mod memory_pool;
mod pinned_buffer;
mod registered;
mod stream_ordered;

pub use device_box::DeviceBox;
pub use device_buffer::DeviceBuffer;
pub(crate) use device_buffer::bytes_of;
pub use managed_buffer::ManagedBuffer;
pub use memory_pool::MemoryPool;
pub use pinned_buffer::PinnedBuffer;
pub use registered::RegisteredVec;
