//! Advice and prefetches of managed memory, and its association with streams.
//!
//! Managed memory does not move: what a program asks for only changes the range attributes.

use cuguard_sys::{
    CUdevice, CUdeviceptr, CUmemLocation, CUresult, CUstream, mem_advise, mem_attach_flags,
    mem_location_type,
};

use crate::memory::{CPU, MemoryKind};
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, lock};

/// A device, or the host.
fn location(device: CUdevice) -> CUmemLocation {
    let type_ = match device {
        CPU => mem_location_type::HOST,
        _ => mem_location_type::DEVICE,
    };
    CUmemLocation { type_, id: device }
}

/// The location, whose id is ignored for the host. Fails unless managed memory can be there. There is
/// one host NUMA node.
fn checked(state: &DriverState, location: CUmemLocation) -> DriverResult<CUmemLocation> {
    match location.type_ {
        mem_location_type::DEVICE => state.check_device(location.id).map(|_| location),
        mem_location_type::HOST => Ok(CUmemLocation {
            id: CPU,
            ..location
        }),
        mem_location_type::HOST_NUMA_CURRENT => Ok(location),
        mem_location_type::HOST_NUMA => {
            check(location.id == 0, CUresult::INVALID_DEVICE).map(|()| location)
        }
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub unsafe fn cuMemAdvise(
    ptr: CUdeviceptr,
    count: usize,
    advice: u32,
    device: CUdevice,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { cuMemAdvise_v2(ptr, count, advice, location(device)) }
}

pub unsafe fn cuMemAdvise_v2(
    ptr: CUdeviceptr,
    count: usize,
    advice: u32,
    location: CUmemLocation,
) -> DriverResult {
    let mut state = lock();
    state.current()?;
    valid((mem_advise::SET_READ_MOSTLY..=mem_advise::UNSET_ACCESSED_BY).contains(&advice))?;
    state.managed(ptr, count)?;
    let location = match advice {
        // These ignore the location.
        mem_advise::SET_READ_MOSTLY
        | mem_advise::UNSET_READ_MOSTLY
        | mem_advise::UNSET_PREFERRED_LOCATION => location,
        _ => checked(&state, location)?,
    };
    state.advise(ptr, count, advice, location)
}

pub unsafe fn cuMemPrefetchAsync(
    ptr: CUdeviceptr,
    count: usize,
    device: CUdevice,
    stream: CUstream,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { cuMemPrefetchAsync_v2(ptr, count, location(device), 0, stream) }
}

pub unsafe fn cuMemPrefetchAsync_v2(
    ptr: CUdeviceptr,
    count: usize,
    location: CUmemLocation,
    flags: u32,
    stream: CUstream,
) -> DriverResult {
    let mut state = lock();
    let stream = state.stream(stream)?;
    state.check_not_capturing(stream)?;
    state.check_implicit(stream)?;
    valid(flags == 0)?;
    state.managed(ptr, count)?;
    let location = checked(&state, location)?;
    // The prefetch has its position on the stream.
    state.submit(stream, None, None, None)?;
    state.note_prefetch(ptr, count, location)
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
    state.check_not_capturing(stream)?;
    state.check_implicit(stream)?;
    let known = [
        mem_attach_flags::GLOBAL,
        mem_attach_flags::HOST,
        mem_attach_flags::SINGLE,
    ];
    valid(known.contains(&flags))?;
    valid(flags != mem_attach_flags::SINGLE || !is_default)?;
    let range = state.map.find(ptr);
    let range = range.filter(|range| range.kind == MemoryKind::Managed);
    let range = range.ok_or(CUresult::INVALID_VALUE)?;
    valid(ptr == range.base && (length == 0 || length as u64 == range.size))?;
    state.submit(stream, None, None, None).map(drop)
}
