//! Where the memory of a pool is.

use cuguard_sys::{CUmemLocation, mem_allocation_type, mem_location_type};

/// The location and the allocation type of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolLocation {
    /// Managed memory, else pinned.
    pub(crate) managed: bool,
    /// `CUmemLocationType`; for managed memory, where it is preferred.
    pub(crate) type_: u32,
    /// The device or the NUMA node, else 0.
    pub(crate) id: i32,
}

impl PoolLocation {
    /// Memory of a device.
    pub(crate) fn device(device: u32) -> Self {
        Self {
            managed: false,
            type_: mem_location_type::DEVICE,
            id: device as i32,
        }
    }

    /// The location of a driver call, unless the allocation type is unknown. The id counts only for
    /// devices and NUMA nodes.
    pub(crate) fn new(location: CUmemLocation, allocation_type: u32) -> Option<Self> {
        let has_id = matches!(
            location.type_,
            mem_location_type::DEVICE | mem_location_type::HOST_NUMA
        );
        Some(Self {
            managed: match allocation_type {
                mem_allocation_type::PINNED => false,
                mem_allocation_type::MANAGED => true,
                _ => return None,
            },
            type_: location.type_,
            id: if has_id { location.id } else { 0 },
        })
    }

    /// Whether it is memory of a device that the host cannot access.
    pub(crate) fn is_device_memory(self) -> bool {
        !self.managed && self.type_ == mem_location_type::DEVICE
    }

    /// Whether it is pinned host memory.
    pub(crate) fn is_host_memory(self) -> bool {
        !self.managed && !self.is_device_memory()
    }
}
