//! Memory that graphs allocate.
//!
//! The address of an allocation is fixed when its node is created, and belongs to the graph and its
//! instances. The memory is allocated when the graph is launched, and then the program's: it may be
//! freed by a node, by the program, or by another graph.

use std::collections::BTreeMap;

use cuguard_sys::CUresult;

use super::driver_state::DriverState;
use super::graph_usage::GraphAddress;
use crate::PAGE;
use crate::graph::{NodeParams, Step};
use crate::handle::Id;
use crate::memory::{BLOCK_ALIGN, CHUNK, MemoryBlock, MemoryKind, MemoryRange, to_pages};
use crate::result::{DriverResult, check, valid};

impl DriverState {
    /// Reserves the address of an allocation.
    pub(crate) fn reserve_graph_address(&mut self, device: u32, bytes: u64) -> DriverResult<u64> {
        let size = to_pages(bytes).filter(|size| *size <= self.config.memory);
        let size = size.ok_or(CUresult::OUT_OF_MEMORY)?;
        let base = self.addresses.pages.allocate(size, PAGE);
        let base = base.ok_or(CUresult::OUT_OF_MEMORY)?;
        let owners = 1;
        let address = GraphAddress {
            device,
            bytes,
            size,
            owners,
        };
        self.graph_addresses.insert(base, address);
        Ok(base)
    }

    /// Whether an address lies in memory that a graph allocates, now or when it is launched.
    pub(crate) fn is_graph_address(&self, address: u64, len: u64) -> bool {
        let before = self.graph_addresses.range(..=address).next_back();
        before.is_some_and(|(base, found)| {
            let offset = address - base;
            offset <= found.bytes && len <= found.bytes - offset
        })
    }

    /// An instance of a graph shares the addresses of its allocations.
    pub(crate) fn share_graph_memory(&mut self, steps: &[Step]) {
        for address in allocations(steps) {
            if let Some(found) = self.graph_addresses.get_mut(&address) {
                found.owners += 1;
            }
        }
    }

    /// A graph, which may have a cycle, is about to be destroyed.
    pub(crate) fn release_graph_memory(&mut self, graph: Id) {
        for address in self.graphs.addresses(graph) {
            self.unshare_graph_address(address);
        }
    }

    /// An instance is about to be destroyed.
    pub(crate) fn unshare_graph_memory(&mut self, steps: &[Step]) {
        for address in allocations(steps) {
            self.unshare_graph_address(address);
        }
    }

    fn unshare_graph_address(&mut self, address: u64) {
        if let Some(found) = self.graph_addresses.get_mut(&address) {
            found.owners = found.owners.saturating_sub(1);
        }
        self.free_graph_address(address);
    }

    /// Frees an address that has no owner, unless the memory is still allocated.
    pub(super) fn free_graph_address(&mut self, base: u64) {
        let unowned = |address: &&GraphAddress| address.owners == 0;
        if self.graph_addresses.get(&base).is_some_and(|a| unowned(&a))
            && self.map.at(base).is_none()
            && let Some(address) = self.graph_addresses.remove(&base)
        {
            self.addresses.pages.free(base, address.size);
        }
    }

    /// Whether memory is allocated at the address of a node.
    pub(crate) fn is_graph_memory_allocated(&self, base: u64) -> bool {
        let range = self.map.at(base);
        range.is_some_and(|range| range.kind == MemoryKind::Graph)
    }

    /// Allocates the memory of a node, on a stream.
    pub(crate) fn allocate_graph_memory(&mut self, base: u64, stream: Id) -> DriverResult {
        let found = self.graph_addresses.get(&base);
        let found = found.ok_or(CUresult::INVALID_VALUE)?;
        let (device, bytes) = (found.device, found.bytes);
        valid(self.map.at(base).is_none())?;
        let block = MemoryBlock::allocate(bytes as usize);
        let block = block.ok_or(CUresult::OUT_OF_MEMORY)?;
        let size = bytes.next_multiple_of(BLOCK_ALIGN);
        let allocated = self.device(device).graph_memory.allocated + size;
        self.grow_graph_memory(device, allocated)?;
        let work = self.submit(stream, None, None, None)?;
        self.device_mut(device).graph_memory.allocated = allocated;
        self.add_range(MemoryRange {
            allocated_at: Some((stream, work)),
            ..MemoryRange::new(base, bytes, MemoryKind::Graph, device, block)
        });
        Ok(())
    }

    /// Reserves what a launch allocates at a time, beside what is allocated now and not at the addresses
    /// `left`, so that it fails before any node executes.
    pub(crate) fn reserve_graph_memory(&mut self, steps: &[Step], left: &[u64]) -> DriverResult {
        let mut peaks: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
        let freed = left.iter().map(|address| (*address, -1));
        let changes = steps.iter().filter_map(|step| match step.params {
            NodeParams::Allocate(allocation) => Some((allocation.address, 1)),
            NodeParams::Free(address) => Some((address, -1)),
            _ => None,
        });
        for (address, sign) in freed.chain(changes) {
            if let Some(found) = self.graph_addresses.get(&address) {
                let (now, peak) = peaks.entry(found.device).or_default();
                *now += sign * found.bytes.next_multiple_of(BLOCK_ALIGN) as i64;
                *peak = (*peak).max(*now);
            }
        }
        for (device, (_, peak)) in peaks {
            let allocated = self.device(device).graph_memory.allocated;
            let needed = allocated.saturating_add_signed(peak);
            self.grow_graph_memory(device, needed)?;
        }
        Ok(())
    }

    /// Reserves as many chunks of a device as `needed` bytes take. Where they do not fit, those that do stay reserved; unused
    /// memory of pools is not taken for them.
    fn grow_graph_memory(&mut self, device: u32, needed: u64) -> DriverResult {
        let device = self.device_mut(device);
        let used = device.graph_memory.used;
        let missing = needed.next_multiple_of(CHUNK).saturating_sub(used);
        let is_grown = device.memory.reserve(missing);
        if is_grown {
            device.graph_memory.used += missing;
        } else {
            let chunks = device.memory.free() / CHUNK * CHUNK;
            if device.memory.reserve(chunks) {
                device.graph_memory.stuck += chunks;
            }
        }
        device.graph_memory.note_peak();
        check(is_grown, CUresult::OUT_OF_MEMORY)
    }

    /// Memory of a graph on a device is freed. What it occupied stays reserved for the next launch.
    pub(crate) fn uncount_graph_memory(&mut self, device: u32, bytes: u64) {
        let usage = &mut self.device_mut(device).graph_memory;
        let size = bytes.next_multiple_of(BLOCK_ALIGN);
        usage.allocated = usage.allocated.saturating_sub(size);
    }

    /// Releases what is reserved for launches and not used.
    pub(crate) fn trim_graph_memory(&mut self, device: u32) {
        let device = self.device_mut(device);
        let usage = &mut device.graph_memory;
        let unused = usage.used - usage.allocated.next_multiple_of(CHUNK);
        usage.used -= unused;
        device.memory.release(unused);
    }
}

/// The addresses at which an instantiated graph allocates.
pub(crate) fn allocations(steps: &[Step]) -> impl Iterator<Item = u64> {
    steps.iter().filter_map(|step| step.params.allocates_at())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::state::start::new_state;

    #[test]
    fn what_a_refused_launch_reserved_stays_reserved() {
        let config = Config::new().memory(1 << 30);
        let mut state = new_state(config, &[0]).unwrap();
        let free = |state: &DriverState| state.device(0).memory.free();
        let all = free(&state);
        assert!(state.grow_graph_memory(0, all + 1).is_err());
        let left = free(&state);
        assert!(left < CHUNK, "{left}");
        state.trim_graph_memory(0);
        assert_eq!((free(&state), state.device(0).graph_memory.used), (left, 0));
        assert!(state.grow_graph_memory(0, 1).is_err());
        let usage = state.device(0).graph_memory;
        assert_eq!(usage.reserved(), all / CHUNK * CHUNK);
        assert_eq!(
            (usage.used_high, usage.reserved_high),
            (0, usage.reserved())
        );
    }

    #[test]
    fn what_cannot_be_submitted_is_not_counted() {
        let mut state = new_state(Config::new(), &[0]).unwrap();
        let context = state.device(0).primary;
        state.open_context(context, 0, 0).unwrap();
        let (stream, destroyed) = (state.contexts[&context].legacy, u64::MAX);
        let base = state.reserve_graph_address(0, 1000).unwrap();
        assert!(state.allocate_graph_memory(base, destroyed).is_err());
        assert_eq!(state.device(0).graph_memory.allocated, 0);
        state.allocate_graph_memory(base, stream).unwrap();
        let allocated = state.device(0).graph_memory.allocated;
        assert!(allocated >= 1000 && state.is_graph_memory_allocated(base));
        assert!(state.free_on_stream(base, destroyed).is_err());
        assert_eq!(state.device(0).graph_memory.allocated, allocated);
        assert!(state.is_graph_memory_allocated(base));
        state.free_on_stream(base, stream).unwrap();
        assert_eq!(state.device(0).graph_memory.allocated, 0);
    }
}
