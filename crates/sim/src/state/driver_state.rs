//! The state of the simulated driver, and lookups by handle.

use std::collections::{BTreeMap, HashMap};

use cuguard_sys::{CUmemLocation, CUresult, mem_location_type};

use super::graph_usage::GraphAddress;
use super::loaded_code::LoadedCode;
use super::objects::{Array, Context, Device, Physical};
use crate::config::Config;
use crate::graph::{CaptureTable, GraphTable, HostFunction};
use crate::handle::{self, Id, IdAllocator, Kind};
use crate::memory::{
    AddressMap, AddressSpace, Cleanup, DeviceMemory, MemoryRange, Pool, PoolLocation, Quarantine,
};
use crate::misuse;
use crate::result::DriverResult;
use crate::streams::{EventTable, Stream, WorkerPool};

#[derive(Debug, Default)]
pub(crate) struct DriverState {
    pub(crate) config: Config,
    pub(crate) devices: Vec<Device>,
    /// A context that is not here and whose id was issued is destroyed, or an inactive primary one.
    pub(crate) contexts: HashMap<Id, Context>,
    pub(crate) streams: HashMap<Id, Stream>,
    pub(crate) events: EventTable,
    pub(crate) pools: BTreeMap<Id, Pool>,
    /// The default and the current pool of locations other than device memory, once a program has
    /// asked for them.
    pub(crate) location_pools: BTreeMap<PoolLocation, (Id, Id)>,
    /// What pools of host and managed memory have reserved.
    pub(crate) host_memory: DeviceMemory,
    pub(crate) physical: HashMap<Id, Physical>,
    pub(crate) arrays: HashMap<Id, Array>,
    pub(crate) code: LoadedCode,
    pub(crate) map: AddressMap,
    pub(crate) addresses: AddressSpace,
    /// `cuMemAddressReserve`: base → size.
    pub(crate) reservations: BTreeMap<u64, u64>,
    /// Memory freed on a stream that has not reached the free, by context and range id. The program
    /// no longer owns the address, but work may still use the memory. Device memory is released by
    /// whichever comes first, the stream or the end of the memory's context.
    pub(crate) pending_frees: BTreeMap<(Option<Id>, u64), MemoryRange>,
    pub(crate) quarantine: Quarantine,
    pub(crate) graphs: GraphTable,
    pub(crate) captures: CaptureTable,
    /// What is to be called because the last reference to a user object was released, without the lock.
    pub(crate) destroyed_objects: Vec<HostFunction>,
    /// Where nodes of graphs allocate, by address.
    pub(crate) graph_addresses: BTreeMap<u64, GraphAddress>,
    pub(crate) workers: WorkerPool,
    /// Done when the lock is released.
    pub(crate) cleanups: Vec<Cleanup>,
    /// How many threads wait for memory that work in flight uses.
    pub(crate) memory_waiters: usize,
    pub(crate) ids: IdAllocator,
    /// How many kernels were launched.
    pub(crate) launches: u64,
    pub(crate) last_range: u64,
    pub(crate) last_context: u64,
}

impl DriverState {
    /// Handles misuse as configured. Returns the error that the call fails with.
    pub(crate) fn misuse(&self, error: CUresult, description: String) -> CUresult {
        misuse::report(self.config.misuse, error, description)
    }

    /// The id in a handle. A handle of a destroyed object, or of none, is misuse; null is only an
    /// error.
    pub(crate) fn live_id(
        &self,
        kind: Kind,
        handle: usize,
        error: CUresult,
        is_live: impl FnOnce(Id) -> bool,
    ) -> DriverResult<Id> {
        let id = handle::decode(kind, handle);
        let issued = id.filter(|id| self.ids.was_issued(kind, *id));
        let problem = match issued {
            Some(id) if is_live(id) => return Ok(id),
            Some(_) => "was destroyed",
            None if handle == 0 => return Err(error),
            None => "never existed",
        };
        let name = kind.name();
        Err(self.misuse(
            error,
            format!("use of the {name} {handle:#x}, which {problem}"),
        ))
    }

    pub(crate) fn check_device(&self, ordinal: i32) -> DriverResult<u32> {
        let device = u32::try_from(ordinal).ok();
        device
            .filter(|device| (*device as usize) < self.devices.len())
            .ok_or(CUresult::INVALID_DEVICE)
    }

    /// Whether there is such a location of memory. There is one NUMA node.
    pub(crate) fn location_exists(&self, location: CUmemLocation) -> bool {
        match location.type_ {
            mem_location_type::DEVICE => self.check_device(location.id).is_ok(),
            mem_location_type::HOST | mem_location_type::HOST_NUMA_CURRENT => true,
            mem_location_type::HOST_NUMA => location.id == 0,
            _ => false,
        }
    }

    pub(crate) fn device(&self, device: u32) -> &Device {
        &self.devices[device as usize]
    }

    pub(crate) fn device_mut(&mut self, device: u32) -> &mut Device {
        &mut self.devices[device as usize]
    }
}
