//! Memory: which addresses and pages are in use, and the bytes behind them.
//!
//! Must not know contexts and streams (other than their ids), the driver's state or its lock.

mod address_map;
mod address_space;
mod advice;
mod block;
mod device_memory;
mod extent;
mod free_ranges;
mod freed_blocks;
mod freed_ranges;
mod heap;
mod pages;
mod pool;
mod pool_location;
mod quarantine;

pub(crate) use address_map::{AddressMap, MemoryKind, MemoryRange};
pub(crate) use address_space::{AddressSpace, is_device_address};
pub(crate) use advice::{Advice, CPU, NO_DEVICE, NOWHERE, PageAdvice};
pub(crate) use block::{Cleanup, FILL_BYTE, MemoryBlock, is_unused};
pub use device_memory::OtherProcess;
pub(crate) use device_memory::{BLOCK_ALIGN, DeviceMemory, MAX_PACKED, PackedPages, to_pages};
pub(crate) use extent::{Extent, Shape, Span, Volume};
pub(crate) use heap::Heap;
pub(crate) use pages::{Address, address_space_limit, host_page, is_mapped};
pub(crate) use pool::{CHUNK, Pool};
pub(crate) use pool_location::PoolLocation;
pub(crate) use quarantine::Quarantine;
