//! Memory ranges: how they are allocated and released, and checks that work may use them.

use std::sync::{Arc, Condvar};

use cuguard_sys::CUresult;

use super::driver_state::DriverState;
use super::pools::memory_of;
use crate::PAGE;
use crate::graph::Mapping;
use crate::handle::Id;
use crate::memory::{
    Address, Cleanup, Extent, MAX_PACKED, MemoryBlock, MemoryKind, MemoryRange, Pool, Span, Volume,
    is_device_address, is_unused, to_pages,
};
use crate::result::{DriverResult, valid};
use crate::streams::{OnComplete, Stream};

/// Notified when work that may have used memory is complete.
pub(super) static MEMORY_UNUSED: Condvar = Condvar::new();

/// An address that a driver function is to read or write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand {
    /// Memory that the driver knows.
    Known(u64),
    /// Memory that the driver knows, other than that of a pool of host memory.
    Device(u64),
    /// Known or pageable host memory.
    Any(u64),
}

impl Operand {
    pub(crate) fn address(self) -> u64 {
        let (Self::Known(address) | Self::Device(address) | Self::Any(address)) = self;
        address
    }
}

impl DriverState {
    /// The address of `bytes` of device memory in a context.
    pub(crate) fn allocate_device_memory(&mut self, context: Id, bytes: u64) -> DriverResult<u64> {
        let device = self.device_of(context);
        if bytes > MAX_PACKED {
            let pages = to_pages(bytes).filter(|pages| *pages <= self.config.memory);
            let pages = pages.ok_or(CUresult::OUT_OF_MEMORY)?;
            self.reserve_pages(device, pages)?;
            let base = self.addresses.pages.allocate(pages, PAGE);
            if base.is_none() {
                self.device_mut(device).memory.release(pages);
            }
            return base.ok_or(CUresult::OUT_OF_MEMORY);
        }
        let base = self.retry_with_trimmed_pools(Some(device), None, |state| {
            let memory = &mut state.devices[device as usize].memory;
            let context = state.contexts.get_mut(&context)?;
            context
                .packed
                .allocate(bytes, memory, &mut state.addresses.packed)
        });
        base.ok_or(CUresult::OUT_OF_MEMORY)
    }

    /// Adds a range to the map, with an id of its own.
    pub(crate) fn add_range(&mut self, mut range: MemoryRange) {
        self.last_range += 1;
        range.id = self.last_range;
        self.map.insert(range);
    }

    /// The same for newly allocated host memory. If it overlaps registered memory, the program freed
    /// that without unregistering it.
    pub(crate) fn add_host_range(&mut self, range: MemoryRange) -> DriverResult {
        let stale = self.map.overlapping(range.base, range.size).next();
        let Some((base, size)) = stale.map(|stale| (stale.base, stale.size)) else {
            self.add_range(range);
            return Ok(());
        };
        if let Some(stale) = self.map.remove(base) {
            self.discard(stale.block);
        }
        self.discard(range.block);
        self.invalid_use(format!(
            "host memory of {size} bytes at {base:#x} was freed while registered"
        ))
    }

    /// Releases what a range that was removed from the map occupies.
    pub(crate) fn release_range(&mut self, range: MemoryRange) {
        let memory = &mut self.devices[range.device as usize].memory;
        match range.kind {
            MemoryKind::Device | MemoryKind::Variable if range.size > MAX_PACKED => {
                let pages = to_pages(range.size).unwrap_or(range.size);
                memory.release(pages);
                self.addresses.pages.free(range.base, pages);
            }
            MemoryKind::Device | MemoryKind::Variable => {
                let context = range.context.and_then(|id| self.contexts.get_mut(&id));
                if let Some(context) = context {
                    let addresses = &mut self.addresses.packed;
                    context
                        .packed
                        .free(range.base, range.size, memory, addresses);
                }
            }
            MemoryKind::Pool(id) => {
                if let Some(pool) = self.pools.get_mut(&id) {
                    pool.free_now(range.base, range.size);
                    let memory = memory_of(&mut self.devices, &mut self.host_memory, pool);
                    pool.release(pool.release_threshold, memory);
                }
                // First, so that nothing uses the memory of the pool when it is sealed.
                self.discard(range.block);
                self.remove_pool_if_unused(id);
                return;
            }
            MemoryKind::Mapping { physical, .. } => {
                if let Some(physical) = self.physical.get_mut(&physical) {
                    physical.mappings -= 1;
                }
                self.remove_physical_if_unused(physical);
            }
            MemoryKind::Pinned | MemoryKind::Managed => {
                self.add_to_quarantine(range.base, range.block);
                return;
            }
            MemoryKind::Graph => self.free_graph_address(range.base),
            MemoryKind::Registered => self.note_end_of_mapping(&range, Mapping::Unregistered),
        }
        self.discard(range.block);
    }

    /// Keeps the addresses of freed host memory for a while.
    pub(super) fn add_to_quarantine(&mut self, base: u64, block: Arc<MemoryBlock>) {
        let size = block.len() as u64;
        let expired = self.quarantine.add(base, size, block.clone());
        self.cleanups.extend(expired.into_iter().map(Cleanup::Drop));
        self.cleanups.push(Cleanup::Seal(block));
    }

    /// Removes physical memory to which neither a handle nor a mapping refers.
    pub(crate) fn remove_physical_if_unused(&mut self, id: Id) {
        if let Some(physical) = self.physical.get(&id)
            && physical.handles == 0
            && physical.mappings == 0
            && let Some(physical) = self.physical.remove(&id)
        {
            self.device_mut(physical.device)
                .memory
                .release(physical.size);
            self.discard(physical.block);
        }
    }

    pub(crate) fn remove_array(&mut self, id: Id) {
        if let Some(array) = self.arrays.remove(&id) {
            let device = self.device_of(array.context);
            let pages = to_pages(array.bytes).unwrap_or(0);
            self.device_mut(device).memory.release(pages);
            self.discard(array.block);
        }
    }

    /// Host memory was removed from the map and will be released when no work uses it.
    pub(crate) fn expect_release(&mut self, range: &MemoryRange) {
        if matches!(range.kind, MemoryKind::Pinned | MemoryKind::Managed) {
            self.quarantine.expect(range.base, range.size);
        }
    }

    /// Marks the instantiated graphs that have the mapping of page-locked memory.
    pub(crate) fn note_end_of_mapping(&mut self, range: &MemoryRange, end: Mapping) {
        let memory = range.base..range.base + range.size;
        self.graphs.note_end_of_mapping(range.id, &memory, end);
    }

    /// Drops a block once the lock is released.
    pub(crate) fn discard(&mut self, block: Arc<MemoryBlock>) {
        self.cleanups.push(Cleanup::Drop(block));
    }

    /// Makes threads that wait for unused memory check again.
    pub(crate) fn notify_memory_waiters(&self) {
        if self.memory_waiters > 0 {
            MEMORY_UNUSED.notify_all();
        }
    }

    /// Frees memory on a stream. The address is invalid from now on, the memory is freed when the
    /// stream reaches the free. The stream may be of another context than the memory, which is
    /// released with its own context if that is destroyed first.
    pub(crate) fn free_on_stream(&mut self, base: u64, stream: Id) -> DriverResult {
        self.join_implicit_dependencies(stream);
        let range = self.map.at(base).ok_or(CUresult::INVALID_VALUE)?;
        self.check_allocated(range, stream)?;
        let (key, size, kind) = ((range.context, range.id), range.size, range.kind);
        let device = range.device;
        let work = self.last_work(stream) + 1;
        // Before the work is submitted, since it may complete at once.
        let freed_after = self.launches;
        let removed = self.map.remove(base);
        let removed = removed.map(|range| MemoryRange {
            freed_after,
            ..range
        });
        self.pending_frees.extend(removed.map(|range| (key, range)));
        if let Some(pool) = self.pool_of(kind) {
            pool.free_after(base, size, stream, work);
        }
        let submitted = self.submit(stream, None, None, Some(OnComplete::Free(key)));
        if submitted.is_err()
            && let Some(range) = self.pending_frees.remove(&key)
        {
            if let Some(pool) = self.pool_of(kind) {
                pool.undo_free(base, size, stream, work);
            }
            self.map.insert(range);
        }
        submitted?;
        if kind == MemoryKind::Graph {
            self.uncount_graph_memory(device, size);
        }
        Ok(())
    }

    /// A stream has reached a free.
    pub(crate) fn complete_free(&mut self, key: (Option<Id>, u64), stream: Id, work: u64) {
        let Some(range) = self.pending_frees.remove(&key) else {
            return;
        };
        // No call can fail because of this; unless misuse aborts, it is only recorded.
        let _ = self.check_unused(&range, "freed on a stream");
        match self.pool_of(range.kind) {
            Some(pool) => {
                pool.free_reached(stream, work);
                self.discard(range.block);
            }
            None => self.release_range(range),
        }
    }

    fn pool_of(&mut self, kind: MemoryKind) -> Option<&mut Pool> {
        match kind {
            MemoryKind::Pool(id) => self.pools.get_mut(&id),
            _ => None,
        }
    }

    /// Fails if work in flight uses memory that is being freed.
    pub(crate) fn check_unused(&self, range: &MemoryRange, how: &str) -> DriverResult {
        if is_unused(&range.block) {
            return Ok(());
        }
        self.invalid_use(format!(
            "memory of {} bytes at {:#x} is {how} while work that uses it is in flight",
            range.size, range.base
        ))
    }

    /// The stream that has not reached the allocation of host memory yet. The memory must not be
    /// reused before that, since the allocation fills it.
    pub(crate) fn still_allocates(&self, range: &MemoryRange) -> Option<Id> {
        let (stream, work) = range.allocated_at.filter(|_| range.on_host())?;
        (!self.is_done(stream, work)).then_some(stream)
    }

    /// Fails if the allocation of stream-ordered memory does not happen before new work on a stream.
    pub(crate) fn check_allocated(&self, range: &MemoryRange, stream: Id) -> DriverResult {
        let Some((on, work)) = range.allocated_at else {
            return Ok(());
        };
        let covers = |own: &Stream| own.clock.covers(on, work);
        if on == stream || self.is_done(on, work) || self.streams.get(&stream).is_some_and(covers) {
            return Ok(());
        }
        self.invalid_use(format!(
            "stream-ordered memory at {:#x} is used on {} before its allocation on {}: nothing \
             orders the two",
            range.base,
            self.stream_name(stream),
            self.stream_name(on)
        ))
    }

    /// The memory of an operand, for work on a stream, and whether it is pageable. The length of
    /// pageable memory cannot be checked.
    pub(crate) fn resolve(
        &self,
        stream: Id,
        operand: Operand,
        volume: impl Into<Volume>,
    ) -> DriverResult<(Extent, bool)> {
        let volume = volume.into();
        let address = operand.address();
        let len = self.byte_len(address, volume)?;
        let range = self.map.find(address);
        let must_be_known = !matches!(operand, Operand::Any(_)) || is_device_address(address);
        let context = self.streams.get(&stream).map(|own| own.context);
        let device = context.map_or(0, |context| self.device_of(context));
        let accessible = range.is_none_or(|range| self.is_accessible(range, device));
        // The host's own memory is host memory to a copy, also where no device has access to it.
        valid(accessible || matches!(operand, Operand::Any(_)))?;
        let from_host_pool = range.is_some_and(MemoryRange::is_from_host_pool);
        valid(!from_host_pool || !matches!(operand, Operand::Device(_)))?;
        if must_be_known || range.is_some() {
            let spans = self.map.spans(address, len)?;
            range.map_or(Ok(()), |range| self.check_allocated(range, stream))?;
            return Ok((Extent::new(spans, volume), false));
        }
        let start = Address::new(address as *mut u8).ok_or(CUresult::INVALID_VALUE)?;
        self.check_not_freed(address, volume.rows.width as u64)?;
        Ok((Extent::new(vec![Span::pageable(start, len)], volume), true))
    }

    /// Fails unless the memory of an operand exists, or will exist when a graph is launched.
    pub(crate) fn check_operand(&self, operand: Operand, volume: Volume) -> DriverResult {
        let address = operand.address();
        let len = self.byte_len(address, volume)?;
        if self.is_graph_address(address, len as u64) {
            return Ok(());
        }
        let pageable = matches!(operand, Operand::Any(_)) && !is_device_address(address);
        if pageable && self.map.find(address).is_none() {
            return valid(address != 0);
        }
        self.map.spans(address, len).map(drop)
    }

    /// Whether an address that is in no range is in memory that was freed. The end of live memory is not, unless
    /// freed memory starts there.
    pub(crate) fn is_freed(&self, address: u64) -> bool {
        let start = match is_device_address(address) {
            true => self.map.find_freed(address),
            false => self.quarantine.find(address, 1),
        };
        let at_end = || {
            let last = address.checked_sub(1);
            last.is_some_and(|last| self.map.find(last).is_some())
        };
        // A pool of host memory is in quarantine as a whole.
        let is_host_pool = || !is_device_address(address) && self.is_pool(address);
        start.is_some_and(|start| (start == address && !is_host_pool()) || !at_end())
    }

    /// Whether a pool starts at an address.
    fn is_pool(&self, base: u64) -> bool {
        self.pools.values().any(|pool| pool.base == base)
    }

    /// Fails if host memory is in quarantine, or in a pool where nothing is allocated.
    pub(crate) fn check_not_freed(&self, address: u64, bytes: u64) -> DriverResult {
        let Some(base) = self.quarantine.find(address, bytes) else {
            return Ok(());
        };
        // Where nothing is allocated, addresses of a pool are in quarantine from the start.
        let problem = match self.is_pool(base) {
            true => "of a pool, where nothing is allocated",
            false => "that was freed",
        };
        self.invalid_use(format!(
            "use of {bytes} bytes at {address:#x} in host memory at {base:#x} {problem}"
        ))
    }

    /// The length of a volume at an address. A length that wraps around the address space is misuse:
    /// a real driver was seen to accept it, and to corrupt the context.
    fn byte_len(&self, address: u64, volume: Volume) -> DriverResult<usize> {
        let len = volume.byte_len().ok_or(CUresult::INVALID_VALUE)?;
        if address.checked_add(len as u64).is_some() {
            return Ok(len);
        }
        self.invalid_use(format!(
            "{len} bytes from {address:#x} wrap around the address space"
        ))
    }

    /// Misuse of memory.
    fn invalid_use<T>(&self, description: String) -> DriverResult<T> {
        Err(self.misuse(CUresult::INVALID_VALUE, description))
    }
}
