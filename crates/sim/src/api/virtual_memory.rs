//! Virtual memory management: reserving addresses, creating physical memory, mapping it.

use std::ffi::c_void;

use cuguard_sys::{
    CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation,
    CUresult, mem_allocation_handle_type, virtual_memory,
};

use super::{allocate_block, read, write_out};
use crate::PAGE;
use crate::handle::{self, Id, Kind};
use crate::memory::{MemoryBlock, MemoryKind, MemoryRange};
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, Physical, lock};

fn is_page_multiple(number: u64) -> bool {
    number.is_multiple_of(PAGE)
}

fn as_handle(id: Id) -> CUmemGenericAllocationHandle {
    handle::encode(Kind::Physical, id) as u64
}

/// The id of physical memory to which the program has a handle.
fn find(state: &DriverState, handle: CUmemGenericAllocationHandle) -> DriverResult<Id> {
    let has_handle = |id: &Id| state.physical.get(id).is_some_and(|p| p.handles > 0);
    let id = handle::decode(Kind::Physical, handle as usize);
    id.filter(has_handle).ok_or(CUresult::INVALID_VALUE)
}

/// Whether one reservation contains all of a range.
fn is_reserved(state: &DriverState, base: u64, size: u64) -> bool {
    let reserved = state.reservations.range(..=base).next_back();
    let room = reserved.and_then(|(start, len)| (start + len).checked_sub(base));
    room.is_some_and(|room| size <= room)
}

pub unsafe fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    prop: *const CUmemAllocationProp,
    option: u32,
) -> DriverResult {
    valid(!prop.is_null() && option <= virtual_memory::GRANULARITY_RECOMMENDED)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(granularity, PAGE as usize) }
}

pub unsafe fn cuMemAddressReserve(
    ptr: *mut CUdeviceptr,
    size: usize,
    alignment: usize,
    _addr: CUdeviceptr,
    flags: u64,
) -> DriverResult {
    let size = size as u64;
    valid(!ptr.is_null() && size > 0 && is_page_multiple(size) && flags == 0)?;
    valid(alignment == 0 || alignment.is_power_of_two())?;
    let mut state = lock();
    let align = PAGE.max(alignment as u64);
    let base = state.addresses.pages.allocate(size, align);
    let base = base.ok_or(CUresult::OUT_OF_MEMORY)?;
    state.reservations.insert(base, size);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(ptr, base) }
}

pub unsafe fn cuMemAddressFree(ptr: CUdeviceptr, size: usize) -> DriverResult {
    let size = size as u64;
    let mut state = lock();
    valid(state.reservations.get(&ptr) == Some(&size))?;
    valid(!state.map.overlaps(ptr, size))?;
    state.reservations.remove(&ptr);
    state.addresses.pages.free(ptr, size);
    Ok(())
}

pub unsafe fn cuMemCreate(
    handle: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    prop: *const CUmemAllocationProp,
    flags: u64,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let prop = unsafe { read(prop) }?;
    let size = bytes as u64;
    valid(!handle.is_null() && size > 0 && is_page_multiple(size) && flags == 0)?;
    valid(prop.type_ == virtual_memory::ALLOCATION_TYPE_PINNED)?;
    valid(prop.location.type_ == virtual_memory::LOCATION_TYPE_DEVICE)?;
    // Sharing between processes is not simulated, and the device's attributes say so.
    let shared = prop.requestedHandleTypes;
    let fabric = mem_allocation_handle_type::FABRIC;
    check(shared != fabric, CUresult::NOT_PERMITTED)?;
    valid(shared == 0 && prop.win32HandleMetaData.is_null())?;
    let mut state = lock();
    let device = state.check_device(prop.location.id)?;
    let block = allocate_block(bytes)?;
    state.reserve_pages(device, size)?;
    let id = state.ids.next(Kind::Physical);
    let physical = Physical {
        device,
        size,
        block,
        handles: 1,
        mappings: 0,
    };
    state.physical.insert(id, physical);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(handle, as_handle(id)) }
}

/// The memory stays allocated while it is mapped.
pub unsafe fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> DriverResult {
    let mut state = lock();
    let id = find(&state, handle)?;
    if let Some(physical) = state.physical.get_mut(&id) {
        physical.handles -= 1;
    }
    state.remove_physical_if_unused(id);
    Ok(())
}

/// Like a real driver, maps only all of the physical memory.
pub unsafe fn cuMemMap(
    ptr: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> DriverResult {
    let mut state = lock();
    let id = find(&state, handle)?;
    let size = size as u64;
    valid(flags == 0 && size > 0 && is_page_multiple(size) && is_page_multiple(ptr))?;
    valid(is_reserved(&state, ptr, size) && !state.map.overlaps(ptr, size))?;
    let Some(physical) = state.physical.get_mut(&id) else {
        return Err(CUresult::INVALID_VALUE);
    };
    let whole = offset == 0 && size == physical.size;
    check(whole, CUresult::NOT_SUPPORTED)?;
    physical.mappings += 1;
    let kind = MemoryKind::Mapping {
        physical: id,
        accessible: false,
    };
    let block = MemoryBlock::view(&physical.block);
    let range = MemoryRange::new(ptr, size, kind, physical.device, block);
    state.add_range(range);
    Ok(())
}

/// The bases of the adjacent mappings from `ptr` to `ptr + size`.
fn whole_mappings(state: &DriverState, ptr: u64, size: u64) -> DriverResult<Vec<u64>> {
    let end = ptr.checked_add(size).ok_or(CUresult::INVALID_VALUE)?;
    let mut bases = Vec::new();
    let mut at = ptr;
    while at < end {
        let range = state.map.at(at).ok_or(CUresult::INVALID_VALUE)?;
        valid(matches!(range.kind, MemoryKind::Mapping { .. }))?;
        bases.push(at);
        at += range.size;
    }
    valid(at == end && !bases.is_empty())?;
    Ok(bases)
}

/// The range may include addresses that are not mapped, but no part of a mapping.
pub unsafe fn cuMemUnmap(ptr: CUdeviceptr, size: usize) -> DriverResult {
    let mut state = lock();
    let size = size as u64;
    valid(size > 0 && is_reserved(&state, ptr, size))?;
    let mut bases = Vec::new();
    for range in state.map.overlapping(ptr, size) {
        valid(ptr <= range.base && range.end() <= ptr + size)?;
        bases.push(range.base);
    }
    for range in bases.iter().filter_map(|base| state.map.at(*base)) {
        state.check_unused(range, "unmapped")?;
    }
    for base in bases {
        if let Some(range) = state.map.remove(base) {
            state.release_range(range);
        }
    }
    Ok(())
}

pub unsafe fn cuMemSetAccess(
    ptr: CUdeviceptr,
    size: usize,
    desc: *const CUmemAccessDesc,
    count: usize,
) -> DriverResult {
    valid(count > 0)?;
    let mut state = lock();
    let bases = whole_mappings(&state, ptr, size as u64)?;
    // All are checked before the first has an effect.
    let mut requests = Vec::new();
    for index in 0..count {
        // SAFETY: the caller guarantees `count` elements.
        let desc = unsafe { read(desc.wrapping_add(index)) }?;
        valid(desc.location.type_ == virtual_memory::LOCATION_TYPE_DEVICE)?;
        valid(desc.flags == virtual_memory::ACCESS_READWRITE || desc.flags == 0)?;
        requests.push((state.check_device(desc.location.id)?, desc.flags != 0));
    }
    for (device, allowed) in requests {
        for base in &bases {
            // Access from other devices is not simulated: copies between devices work without.
            if let Some(range) = state.map.at_mut(*base)
                && range.device == device
                && let MemoryKind::Mapping { accessible, .. } = &mut range.kind
            {
                *accessible = allowed;
            }
        }
    }
    Ok(())
}

pub unsafe fn cuMemGetAccess(
    flags: *mut u64,
    location: *const CUmemLocation,
    ptr: CUdeviceptr,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let location = unsafe { read(location) }?;
    let state = lock();
    let device = state.check_device(location.id);
    let device = device.map_err(|_| CUresult::INVALID_VALUE)?;
    let range = state.map.find(ptr).ok_or(CUresult::INVALID_VALUE)?;
    let MemoryKind::Mapping { accessible, .. } = range.kind else {
        return Err(CUresult::INVALID_VALUE);
    };
    let allowed = match accessible && device == range.device {
        true => virtual_memory::ACCESS_READWRITE,
        false => virtual_memory::ACCESS_NONE,
    };
    // SAFETY: as the caller guarantees.
    unsafe { write_out(flags, u64::from(allowed)) }
}

/// `cuMemCreate` accepts no other properties.
pub unsafe fn cuMemGetAllocationPropertiesFromHandle(
    out: *mut CUmemAllocationProp,
    handle: CUmemGenericAllocationHandle,
) -> DriverResult {
    let state = lock();
    let device = state.physical[&find(&state, handle)?].device;
    let prop = CUmemAllocationProp {
        type_: virtual_memory::ALLOCATION_TYPE_PINNED,
        location: CUmemLocation {
            type_: virtual_memory::LOCATION_TYPE_DEVICE,
            id: device as i32,
        },
        ..CUmemAllocationProp::default()
    };
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, prop) }
}

pub unsafe fn cuMemRetainAllocationHandle(
    handle: *mut CUmemGenericAllocationHandle,
    addr: *mut c_void,
) -> DriverResult {
    valid(!handle.is_null())?;
    let mut state = lock();
    let kind = state.map.find(addr as u64).map(|range| range.kind);
    let Some(MemoryKind::Mapping { physical: id, .. }) = kind else {
        return Err(CUresult::INVALID_VALUE);
    };
    if let Some(physical) = state.physical.get_mut(&id) {
        physical.handles += 1;
    }
    // SAFETY: as the caller guarantees.
    unsafe { write_out(handle, as_handle(id)) }
}
