//! Advice and prefetches of managed memory by location, and its association with streams.

use cuguard_sys::{
    CUdeviceptr, CUmemLocation, CUresult, CUstream, mem_advise, mem_attach_flags, mem_location_type,
};

use crate::memory::{MemoryKind, MemoryRange};
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, lock};

/// The managed memory that contains an address.
fn managed(state: &DriverState, ptr: u64) -> DriverResult<&MemoryRange> {
    let range = state.map.find(ptr);
    let range = range.filter(|range| range.kind == MemoryKind::Managed);
    range.ok_or(CUresult::INVALID_VALUE)
}

/// Fails unless all of this is managed memory.
fn check_managed(state: &DriverState, ptr: u64, count: usize) -> DriverResult {
    let range = managed(state, ptr)?;
    valid(count > 0 && count as u64 <= range.end() - ptr)
}

/// Fails unless managed memory can be there. There is one host NUMA node.
fn check_location(state: &DriverState, location: CUmemLocation) -> DriverResult {
    match location.type_ {
        mem_location_type::DEVICE => state.check_device(location.id).map(drop),
        mem_location_type::HOST | mem_location_type::HOST_NUMA_CURRENT => Ok(()),
        mem_location_type::HOST_NUMA => check(location.id == 0, CUresult::INVALID_DEVICE),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// Managed memory does not move: advice is checked and has no effect.
pub unsafe fn cuMemAdvise_v2(
    ptr: CUdeviceptr,
    count: usize,
    advice: u32,
    location: CUmemLocation,
) -> DriverResult {
    let state = lock();
    state.current()?;
    valid((mem_advise::SET_READ_MOSTLY..=mem_advise::UNSET_ACCESSED_BY).contains(&advice))?;
    check_managed(&state, ptr, count)?;
    match advice {
        // These have no location.
        mem_advise::SET_READ_MOSTLY
        | mem_advise::UNSET_READ_MOSTLY
        | mem_advise::UNSET_PREFERRED_LOCATION => Ok(()),
        _ => check_location(&state, location),
    }
}

/// Managed memory does not move: the prefetch only has its position on the stream.
pub unsafe fn cuMemPrefetchAsync_v2(
    ptr: CUdeviceptr,
    count: usize,
    location: CUmemLocation,
    flags: u32,
    stream: CUstream,
) -> DriverResult {
    let mut state = lock();
    let stream = state.stream(stream)?;
    valid(flags == 0)?;
    check_managed(&state, ptr, count)?;
    check_location(&state, location)?;
    state.submit(stream, None, None, None).map(drop)
}

/// Devices with concurrent access to managed memory ignore associations: it only has its position on
/// the stream.
pub unsafe fn cuStreamAttachMemAsync(
    stream: CUstream,
    ptr: CUdeviceptr,
    length: usize,
    flags: u32,
) -> DriverResult {
    let mut state = lock();
    let is_default = matches!(stream, CUstream::NULL | CUstream::LEGACY);
    let stream = state.stream(stream)?;
    let known = [
        mem_attach_flags::GLOBAL,
        mem_attach_flags::HOST,
        mem_attach_flags::SINGLE,
    ];
    valid(known.contains(&flags))?;
    valid(flags != mem_attach_flags::SINGLE || !is_default)?;
    let range = managed(&state, ptr)?;
    valid(ptr == range.base && (length == 0 || length as u64 == range.size))?;
    state.submit(stream, None, None, None).map(drop)
}
