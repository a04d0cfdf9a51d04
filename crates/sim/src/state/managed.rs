//! Managed memory: advice and prefetches. Memory does not move; what the program asked for is kept
//! for the range attributes.

use cuguard_sys::{CUmemLocation, CUresult, mem_advise, mem_location_type};

use super::driver_state::DriverState;
use crate::memory::{CPU, MemoryRange, NOWHERE, PageAdvice};
use crate::result::{DriverResult, check, valid};

impl DriverState {
    /// The managed memory that contains all of a range, which is not empty.
    pub(crate) fn managed(&self, ptr: u64, count: usize) -> DriverResult<&MemoryRange> {
        let range = self.map.find(ptr).filter(|range| range.is_managed());
        let range = range.ok_or(CUresult::INVALID_VALUE)?;
        valid(count > 0 && count as u64 <= range.end() - ptr)?;
        Ok(range)
    }

    /// Changes the advice about managed memory.
    fn update_advice(
        &mut self,
        ptr: u64,
        count: usize,
        change: impl Fn(&mut PageAdvice),
    ) -> DriverResult {
        let base = self.managed(ptr, count)?.base;
        let range = self.map.at_mut(base).ok_or(CUresult::INVALID_VALUE)?;
        range.advice.update(ptr, count as u64, change);
        Ok(())
    }

    /// Sets advice about managed memory. The location is checked, and ignored where the advice needs
    /// none. The id of the host is -1. Like a real driver, does not support memory of pools.
    pub(crate) fn advise(
        &mut self,
        ptr: u64,
        count: usize,
        advice: u32,
        location: CUmemLocation,
    ) -> DriverResult {
        let accessor = match location.type_ {
            mem_location_type::DEVICE => location.id,
            _ => CPU,
        };
        let from_pool = self.managed(ptr, count)?.from_managed_pool;
        check(!from_pool, CUresult::NOT_SUPPORTED)?;
        // Measured: a NUMA node is accepted as preferred location and changes nothing.
        let is_node = location.type_ == mem_location_type::HOST_NUMA;
        self.update_advice(ptr, count, |page| match advice {
            mem_advise::SET_READ_MOSTLY => page.read_mostly = true,
            mem_advise::UNSET_READ_MOSTLY => page.read_mostly = false,
            mem_advise::SET_PREFERRED_LOCATION if !is_node => page.preferred = location,
            mem_advise::UNSET_PREFERRED_LOCATION => page.preferred = NOWHERE,
            mem_advise::SET_ACCESSED_BY => drop(page.accessed_by.insert(accessor)),
            mem_advise::UNSET_ACCESSED_BY => drop(page.accessed_by.remove(&accessor)),
            _ => {}
        })
    }

    /// Notes a prefetch of managed memory, when it is submitted. The location is checked.
    pub(crate) fn note_prefetch(
        &mut self,
        ptr: u64,
        count: usize,
        location: CUmemLocation,
    ) -> DriverResult {
        self.update_advice(ptr, count, |page| page.last_prefetch = location)
    }
}
