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

/// The location as range attributes report it: the host has one id.
fn reported(location: CUmemLocation) -> CUmemLocation {
    match location.type_ {
        mem_location_type::HOST => CUmemLocation {
            id: CPU,
            ..location
        },
        _ => location,
    }
}

/// Whether there is such a location. There is one host NUMA node.
fn exists(state: &DriverState, location: CUmemLocation) -> bool {
    match location.type_ {
        mem_location_type::DEVICE => state.check_device(location.id).is_ok(),
        mem_location_type::HOST | mem_location_type::HOST_NUMA_CURRENT => true,
        mem_location_type::HOST_NUMA => location.id == 0,
        _ => false,
    }
}

/// Whether advice can be about a location.
fn can_advise(state: &DriverState, advice: u32, location: CUmemLocation) -> bool {
    let CUmemLocation { type_, .. } = location;
    match advice {
        mem_advise::SET_PREFERRED_LOCATION => exists(state, location),
        mem_advise::SET_ACCESSED_BY | mem_advise::UNSET_ACCESSED_BY => {
            let accessor = [mem_location_type::DEVICE, mem_location_type::HOST].contains(&type_);
            accessor && exists(state, location)
        }
        // These ignore which device or node it is.
        _ => (mem_location_type::DEVICE..=mem_location_type::HOST_NUMA_CURRENT).contains(&type_),
    }
}

/// Sets advice, or returns `unknown` for a location that it cannot be about.
fn advise(
    ptr: CUdeviceptr,
    count: usize,
    advice: u32,
    location: CUmemLocation,
    unknown: CUresult,
) -> DriverResult {
    let mut state = lock();
    state.current()?;
    valid((mem_advise::SET_READ_MOSTLY..=mem_advise::UNSET_ACCESSED_BY).contains(&advice))?;
    state.managed(ptr, count)?;
    check(can_advise(&state, advice, location), unknown)?;
    state.advise(ptr, count, advice, reported(location))
}

pub unsafe fn cuMemAdvise(
    ptr: CUdeviceptr,
    count: usize,
    advice: u32,
    device: CUdevice,
) -> DriverResult {
    let unknown = CUresult::INVALID_DEVICE;
    self::advise(ptr, count, advice, location(device), unknown)
}

pub unsafe fn cuMemAdvise_v2(
    ptr: CUdeviceptr,
    count: usize,
    advice: u32,
    location: CUmemLocation,
) -> DriverResult {
    self::advise(ptr, count, advice, location, CUresult::INVALID_VALUE)
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
    let unknown = match location.type_ {
        mem_location_type::DEVICE => CUresult::INVALID_DEVICE,
        _ => CUresult::INVALID_VALUE,
    };
    check(exists(&state, location), unknown)?;
    // The prefetch has its position on the stream.
    state.submit(stream, None, None, None)?;
    state.note_prefetch(ptr, count, reported(location))
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
    let is_null = stream == CUstream::NULL;
    let stream = state.stream(stream)?;
    state.check_not_capturing(stream)?;
    state.check_implicit(stream)?;
    let known = [
        mem_attach_flags::GLOBAL,
        mem_attach_flags::HOST,
        mem_attach_flags::SINGLE,
    ];
    valid(known.contains(&flags))?;
    valid(flags != mem_attach_flags::SINGLE || !is_null)?;
    let range = state.map.find(ptr);
    let range = range.filter(|range| range.kind == MemoryKind::Managed);
    let range = range.ok_or(CUresult::INVALID_VALUE)?;
    valid(ptr == range.base && (length == 0 || length as u64 == range.size))?;
    state.submit(stream, None, None, None).map(drop)
}
