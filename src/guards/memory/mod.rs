//! Guards of memory, one type a file. Each holds an [`OwnedResource`](crate::core::OwnedResource), which frees the
//! memory; the files here have the operations of each kind of memory.
//!
//! They know nothing of scopes: a scope borrows the guards and reads their address and length.

mod address;
mod buffer_views;
mod cast;
mod chunks;
mod device_box;
mod device_buffer;
mod device_memory;
#[cfg(any(test, not(feature = "cust")))]
mod device_pointer;
mod device_view;
mod device_view_mut;
mod driver_memory;
mod driver_pool;
mod host_limit;
mod host_pages;
mod into_raw;
mod length;
mod managed_advice;
mod managed_buffer;
mod pinned_buffer;
mod pitched_buffer;
mod pitched_views;
mod pool;
mod registered;
mod source;
mod stream_ordered;
mod view_writes;
mod write_combined;

#[cfg(feature = "cust")]
pub use cust::memory::DevicePointer;
pub use device_box::DeviceBox;
pub use device_buffer::DeviceBuffer;
pub(crate) use device_memory::DeviceMemory;
#[cfg(not(feature = "cust"))]
pub use device_pointer::DevicePointer;
pub use device_view::DeviceView;
pub use device_view_mut::DeviceViewMut;
pub use driver_pool::DriverPool;
pub(crate) use host_limit::host_vec;
pub(crate) use length::{bytes_of, check_alignment, check_len, check_range};
pub use managed_advice::{ManagedAdvice, MemoryLocation};
pub use managed_buffer::ManagedBuffer;
pub use pinned_buffer::PinnedBuffer;
pub use pitched_buffer::PitchedBuffer;
pub use pool::{Compaction, Pool, PoolStats, PoolStream};
pub use registered::RegisteredVec;
pub(crate) use source::PoolRef;
pub use source::{DriverPoolStream, Source};
pub use write_combined::WriteCombinedBuffer;
