//! Memory pools, and how devices reclaim what pools do not use.

use cuguard_sys::CUresult;

use super::driver_state::DriverState;
use crate::handle::{Id, Kind};
use crate::memory::Pool;
use crate::result::{DriverResult, check};

impl DriverState {
    /// Reserves pages of a device.
    pub(crate) fn reserve_pages(&mut self, device: u32, bytes: u64) -> DriverResult {
        let reserved = self.retry_with_trimmed_pools(device, None, |state| {
            let enough = state.device_mut(device).memory.reserve(bytes);
            enough.then_some(())
        });
        check(reserved.is_some(), CUresult::OUT_OF_MEMORY)
    }

    /// Allocates; if that fails, trims the device's pools and tries again.
    pub(crate) fn retry_with_trimmed_pools<T>(
        &mut self,
        device: u32,
        pool: Option<Id>,
        allocate: impl Fn(&mut Self) -> Option<T>,
    ) -> Option<T> {
        allocate(self).or_else(|| {
            self.trim_pools(device, pool);
            allocate(self)
        })
    }

    /// Makes every pool of a device release what it does not use. Measured: memory that was freed
    /// on a stream with which the host has not synchronized since is not released, even if the
    /// stream is idle; only the pool that allocates checks the progress of its streams.
    fn trim_pools(&mut self, device: u32, allocating: Option<Id>) {
        let streams = &self.streams;
        let memory = &mut self.devices[device as usize].memory;
        let pools = self.pools.iter_mut();
        for (id, pool) in pools.filter(|(_, pool)| pool.device == device) {
            pool.reclaim(|stream| match streams.get(&stream) {
                None => Some(u64::MAX),
                Some(stream) => (allocating == Some(*id)).then_some(stream.completed),
            });
            pool.release(0, memory);
        }
    }

    pub(crate) fn add_pool(&mut self, device: u32) -> DriverResult<Id> {
        let base = self.addresses.allocate_pool();
        let base = base.ok_or(CUresult::OUT_OF_MEMORY)?;
        let id = self.ids.next(Kind::Pool);
        let span = self.addresses.pool_span();
        self.pools.insert(id, Pool::new(device, base, span));
        Ok(id)
    }

    /// The address of `bytes` of a pool, for work on a stream.
    pub(crate) fn allocate_from_pool(&mut self, pool: Id, bytes: u64, stream: Id) -> Option<u64> {
        let device = self.pools.get(&pool)?.device;
        self.retry_with_trimmed_pools(device, Some(pool), |state| {
            let memory = &mut state.devices[device as usize].memory;
            state.pools.get_mut(&pool)?.allocate(bytes, stream, memory)
        })
    }

    /// Removes a destroyed pool with its last block.
    pub(crate) fn remove_pool_if_unused(&mut self, id: Id) {
        if let Some(pool) = self.pools.get_mut(&id)
            && pool.destroyed
            && pool.live == 0
        {
            pool.release(0, &mut self.devices[pool.device as usize].memory);
            if pool.reserved() == 0 {
                let base = pool.base;
                self.pools.remove(&id);
                self.addresses.free_pool(base);
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
            let memory = &mut self.devices[pool.device as usize].memory;
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
