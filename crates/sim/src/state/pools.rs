//! Memory pools, and how devices reclaim what pools do not use.

use cuguard_sys::{CUresult, mem_access_flags, mem_location_type};

use super::driver_state::DriverState;
use super::objects::Device;
use crate::handle::{Id, Kind};
use crate::memory::{
    CHUNK, DeviceMemory, MemoryBlock, MemoryKind, MemoryRange, Pool, PoolLocation,
    address_space_limit,
};
use crate::result::{DriverResult, check};

/// With a limit of the address space, the part of it that a pool of host or managed memory uses.
const SHARE_OF_LIMIT: u64 = 64;

/// The memory that a pool reserves from.
pub(super) fn memory_of<'a>(
    devices: &'a mut [Device],
    host: &'a mut DeviceMemory,
    pool: &Pool,
) -> &'a mut DeviceMemory {
    match pool.memory_device() {
        Some(device) => &mut devices[device as usize].memory,
        None => host,
    }
}

impl DriverState {
    /// Reserves pages of a device.
    pub(crate) fn reserve_pages(&mut self, device: u32, bytes: u64) -> DriverResult {
        let reserved = self.retry_with_trimmed_pools(Some(device), None, |state| {
            let enough = state.device_mut(device).memory.reserve(bytes);
            enough.then_some(())
        });
        check(reserved.is_some(), CUresult::OUT_OF_MEMORY)
    }

    /// Allocates; if that fails, trims the pools of the same memory and tries again: of the device,
    /// or of the host without one.
    pub(crate) fn retry_with_trimmed_pools<T>(
        &mut self,
        device: Option<u32>,
        pool: Option<Id>,
        allocate: impl Fn(&mut Self) -> Option<T>,
    ) -> Option<T> {
        allocate(self).or_else(|| {
            self.trim_pools(device, pool);
            allocate(self)
        })
    }

    /// Makes every pool of the same memory release what it does not use. Measured: memory that was freed
    /// on a stream with which the host has not synchronized since is not released, even if the
    /// stream is idle; only the pool that allocates checks the progress of its streams.
    fn trim_pools(&mut self, device: Option<u32>, allocating: Option<Id>) {
        let streams = &self.streams;
        let pools = self.pools.iter_mut();
        for (id, pool) in pools.filter(|(_, pool)| pool.memory_device() == device) {
            pool.reclaim(|stream| match streams.get(&stream) {
                None => Some(u64::MAX),
                Some(stream) => (allocating == Some(*id)).then_some(stream.completed),
            });
            let memory = memory_of(&mut self.devices, &mut self.host_memory, pool);
            pool.release(0, memory);
        }
    }

    /// Creates a pool. It reserves at most `max` bytes, in whole chunks; 0 for no limit.
    pub(crate) fn add_pool(&mut self, location: PoolLocation, max: u64) -> DriverResult<Id> {
        let device = match location.type_ {
            mem_location_type::DEVICE => location.id as u32,
            _ => 0,
        };
        let mut pool = if location.is_device_memory() {
            let base = self.addresses.allocate_pool();
            let base = base.ok_or(CUresult::OUT_OF_MEMORY)?;
            Pool::new(device, base, self.addresses.pool_span())
        } else {
            // Its addresses are reserved by the first allocation.
            Pool::new(device, 0, 0)
        };
        pool.location = location;
        pool.max_reserved = match max {
            0 => None,
            max => max.checked_next_multiple_of(CHUNK),
        };
        let id = self.ids.next(Kind::Pool);
        self.pools.insert(id, pool);
        Ok(id)
    }

    /// The default and the current pool of a location.
    pub(crate) fn location_pools(&mut self, location: PoolLocation) -> DriverResult<(Id, Id)> {
        if location.is_device_memory() {
            let device = self.device(location.id as u32);
            return Ok((device.default_pool, device.pool));
        }
        if let Some(pools) = self.location_pools.get(&location) {
            return Ok(*pools);
        }
        let pool = self.add_pool(location, 0)?;
        self.location_pools.insert(location, (pool, pool));
        Ok((pool, pool))
    }

    /// Makes a pool the current one of its location.
    pub(crate) fn set_location_pool(&mut self, location: PoolLocation, pool: Id) -> DriverResult {
        let (default, _) = self.location_pools(location)?;
        if location.is_device_memory() {
            self.device_mut(location.id as u32).pool = pool;
        } else {
            self.location_pools.insert(location, (default, pool));
        }
        Ok(())
    }

    /// Whether a pool is the default one of a location.
    pub(crate) fn is_default_pool(&self, id: Id) -> bool {
        let of_devices = self.devices.iter().map(|device| device.default_pool);
        let of_locations = self.location_pools.values().map(|(default, _)| *default);
        of_devices.chain(of_locations).any(|default| default == id)
    }

    /// Where a pool is current, the default one is from now on.
    pub(crate) fn replace_current_pool(&mut self, id: Id) {
        for device in self.devices.iter_mut().filter(|device| device.pool == id) {
            device.pool = device.default_pool;
        }
        for (default, current) in self.location_pools.values_mut() {
            if *current == id {
                *current = *default;
            }
        }
    }

    /// Sets which access a location has to a pool, also to what is allocated from it.
    pub(crate) fn set_pool_access(&mut self, id: Id, place: (u32, i32), flags: u32) {
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.set_access(place, flags);
        }
    }

    /// Whether work of a device can access memory: a mapping if `cuMemSetAccess` allows it, memory of
    /// a host pool if `cuMemPoolSetAccess` does, any other.
    pub(crate) fn is_accessible(&self, range: &MemoryRange, device: u32) -> bool {
        let place = (mem_location_type::DEVICE, device as i32);
        match range.kind {
            MemoryKind::Mapping { accessible, .. } => accessible,
            MemoryKind::Pool(id) if range.is_from_host_pool() => {
                let pool = self.pools.get(&id);
                pool.is_some_and(|pool| pool.access(place) != mem_access_flags::NONE)
            }
            _ => true,
        }
    }

    /// Reserves the addresses of a pool of host or managed memory, for at least `bytes`. They cost
    /// nothing until they are used, but count where the address space of the process is limited.
    fn reserve_addresses(&mut self, id: Id, bytes: u64) -> Option<()> {
        let pool = self.pools.get(&id)?;
        if pool.location.is_device_memory() || pool.backing.is_some() {
            return Some(());
        }
        let least = bytes.checked_next_multiple_of(CHUNK)?;
        let share = address_space_limit().map(|limit| limit / SHARE_OF_LIMIT / CHUNK * CHUNK);
        let span = self.addresses.pool_span().min(share.unwrap_or(u64::MAX));
        let reserve = |span: u64| MemoryBlock::allocate_pages(span as usize);
        let block = reserve(span.max(least)).or_else(|| {
            drop(self.quarantine.clear());
            reserve(least)
        })?;
        let pool = self.pools.get_mut(&id)?;
        pool.set_backing(block);
        // Where nothing is allocated, the addresses count as freed.
        self.quarantine.expect(pool.base, pool.span());
        Some(())
    }

    /// The address of `bytes` of a pool, for work on a stream.
    pub(crate) fn allocate_from_pool(&mut self, pool: Id, bytes: u64, stream: Id) -> Option<u64> {
        self.reserve_addresses(pool, bytes)?;
        let device = self.pools.get(&pool)?.memory_device();
        self.retry_with_trimmed_pools(device, Some(pool), |state| {
            let pool = state.pools.get_mut(&pool)?;
            let memory = memory_of(&mut state.devices, &mut state.host_memory, pool);
            pool.allocate(bytes, stream, memory)
        })
    }

    /// Makes a pool release what it does not use, down to `keep` bytes.
    pub(crate) fn trim_pool(&mut self, id: Id, keep: u64) {
        if let Some(pool) = self.pools.get_mut(&id) {
            let memory = memory_of(&mut self.devices, &mut self.host_memory, pool);
            pool.release(keep, memory);
        }
    }

    /// Removes a destroyed pool with its last block.
    pub(crate) fn remove_pool_if_unused(&mut self, id: Id) {
        if let Some(pool) = self.pools.get_mut(&id)
            && pool.destroyed
            && pool.live == 0
        {
            let memory = memory_of(&mut self.devices, &mut self.host_memory, pool);
            pool.release(0, memory);
            if pool.reserved() == 0 {
                let (base, backing) = (pool.base, pool.backing.take());
                let of_device = pool.location.is_device_memory();
                self.pools.remove(&id);
                match backing {
                    Some(block) => self.add_to_quarantine(base, block),
                    None if of_device => self.addresses.free_pool(base),
                    None => {}
                }
            }
        }
    }

    /// The host has synchronized: pools reuse the blocks that completed work freed, and release
    /// chunks to the device. `completed` returns the last work of a stream that the host
    /// has synchronized with, if any. All work of removed streams is complete.
    fn reclaim(&mut self, completed: impl Fn(&Self, Id) -> Option<u64>) {
        let mut pools = std::mem::take(&mut self.pools);
        let mut destroyed = Vec::new();
        for (id, pool) in pools.iter_mut().filter(|(_, pool)| pool.has_freed()) {
            pool.reclaim(|stream| match self.streams.contains_key(&stream) {
                true => completed(self, stream),
                false => Some(u64::MAX),
            });
            let memory = memory_of(&mut self.devices, &mut self.host_memory, pool);
            pool.release(pool.release_threshold, memory);
            if pool.destroyed {
                destroyed.push(*id);
            }
        }
        self.pools = pools;
        for pool in destroyed {
            self.remove_pool_if_unused(pool);
        }
    }

    pub(crate) fn reclaim_after_stream(&mut self, stream: Id, number: u64) {
        self.reclaim(|_, other| (other == stream).then_some(number));
    }

    pub(crate) fn reclaim_after_context(&mut self, context: Id) {
        self.reclaim(|state, stream| {
            let stream = state.streams.get(&stream)?;
            (stream.context == context).then_some(stream.completed)
        });
    }
}
