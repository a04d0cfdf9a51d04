//! Memory: which addresses and pages are in use, and the bytes behind them.
//!
//! Must not know contexts and streams (other than their ids), the driver's state or its lock.

mod address_map;
mod address_space;
mod block;
mod device_memory;
mod extent;
mod free_ranges;
mod freed_blocks;
mod pages;
mod pool;
mod quarantine;

pub(crate) use address_map::{AddressMap, MemoryKind, MemoryRange};
pub(crate) use address_space::{AddressSpace, is_device_address};
pub(crate) use block::{Cleanup, MemoryBlock, is_unused};
pub use device_memory::OtherProcess;
pub(crate) use device_memory::{DeviceMemory, MAX_PACKED, PackedPages, to_pages};
pub(crate) use extent::{Extent, Shape, Span};
pub(crate) use pages::{Address, is_mapped};
pub(crate) use pool::Pool;
pub(crate) use quarantine::Quarantine;
