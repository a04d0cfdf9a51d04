//! Virtual memory management: addresses and physical memory apart, and mapped onto each other.

use std::ffi::c_void;

use cuguard_sys::{
    CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation,
    CUresult, virtual_memory,
};

use super::{check, get, put, valid};
use crate::PAGE;
use crate::address_map::{Origin, Range};
use crate::fault;
use crate::handle::{self, Id, Kind};
use crate::lock::lock;
use crate::machine::{Answer, Machine, Physical};
use crate::memory_block::MemoryBlock;

fn is_page_multiple(number: u64) -> bool {
    number.is_multiple_of(PAGE)
}

fn as_handle(id: Id) -> CUmemGenericAllocationHandle {
    handle::encode(Kind::Physical, id) as u64
}

/// The physical memory behind a handle that the program still has.
fn known(machine: &Machine, handle: CUmemGenericAllocationHandle) -> Result<Id, CUresult> {
    handle::decode(Kind::Physical, handle as usize)
        .filter(|id| {
            machine
                .physical
                .get(id)
                .is_some_and(|physical| physical.handles > 0)
        })
        .ok_or(CUresult::INVALID_VALUE)
}

pub(crate) unsafe fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    prop: *const CUmemAllocationProp,
    option: u32,
) -> Answer {
    valid(!prop.is_null() && option <= virtual_memory::GRANULARITY_RECOMMENDED)?;
    // SAFETY: as the caller promises.
    unsafe { put(granularity, PAGE as usize) }
}

pub(crate) unsafe fn cuMemAddressReserve(
    ptr: *mut CUdeviceptr,
    size: usize,
    alignment: usize,
    _addr: CUdeviceptr,
    flags: u64,
) -> Answer {
    valid(!ptr.is_null() && size > 0 && is_page_multiple(size as u64) && flags == 0)?;
    valid(alignment == 0 || alignment.is_power_of_two())?;
    let mut machine = lock();
    let align = PAGE.max(alignment as u64);
    let base = machine
        .addresses
        .pages
        .take(size as u64, align)
        .ok_or(CUresult::OUT_OF_MEMORY)?;
    machine.reservations.insert(base, size as u64);
    // SAFETY: as the caller promises.
    unsafe { put(ptr, base) }
}

pub(crate) unsafe fn cuMemAddressFree(ptr: CUdeviceptr, size: usize) -> Answer {
    let mut machine = lock();
    valid(machine.reservations.get(&ptr) == Some(&(size as u64)))?;
    valid(!machine.map.overlaps(ptr, size as u64))?;
    machine.reservations.remove(&ptr);
    machine.addresses.pages.give(ptr, size as u64);
    Ok(())
}

pub(crate) unsafe fn cuMemCreate(
    handle: *mut CUmemGenericAllocationHandle,
    size: usize,
    prop: *const CUmemAllocationProp,
    flags: u64,
) -> Answer {
    // SAFETY: as the caller promises.
    let prop = unsafe { get(prop) }?;
    valid(!handle.is_null() && size > 0 && is_page_multiple(size as u64) && flags == 0)?;
    valid(prop.type_ == virtual_memory::ALLOCATION_TYPE_PINNED)?;
    valid(prop.location.type_ == virtual_memory::LOCATION_TYPE_DEVICE)?;
    check(prop.requestedHandleTypes == 0, CUresult::NOT_SUPPORTED)?;
    let mut machine = lock();
    let device = machine.device(prop.location.id)?;
    fault::on_allocation(size as u64)?;
    // First what the host may not have, so that nothing needs to be taken back.
    let block = MemoryBlock::fresh(size).ok_or(CUresult::OUT_OF_MEMORY)?;
    if !machine.take_pages(device, size as u64) {
        return Err(CUresult::OUT_OF_MEMORY);
    }
    let id = machine.numbers.next(Kind::Physical);
    let physical = Physical {
        device,
        size: size as u64,
        prop: prop.into(),
        block,
        handles: 1,
        mappings: 0,
    };
    machine.physical.insert(id, physical);
    // SAFETY: as the caller promises.
    unsafe { put(handle, as_handle(id)) }
}

/// The memory stays for as long as it is mapped.
pub(crate) unsafe fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> Answer {
    let mut machine = lock();
    let id = known(&machine, handle)?;
    if let Some(physical) = machine.physical.get_mut(&id) {
        physical.handles -= 1;
    }
    machine.drop_physical_if_done(id);
    Ok(())
}

/// Physical memory is mapped whole.
pub(crate) unsafe fn cuMemMap(
    ptr: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> Answer {
    let mut machine = lock();
    let id = known(&machine, handle)?;
    let size = size as u64;
    valid(flags == 0 && size > 0 && is_page_multiple(size) && is_page_multiple(ptr))?;
    let reserved = machine.reservations.range(..=ptr).next_back();
    let room = reserved.and_then(|(base, len)| (base + len).checked_sub(ptr));
    valid(room.is_some_and(|room| size <= room) && !machine.map.overlaps(ptr, size))?;
    let physical = &machine.physical[&id];
    check(
        offset == 0 && size == physical.size,
        CUresult::NOT_SUPPORTED,
    )?;
    let range = Range {
        base: ptr,
        size,
        origin: Origin::Mapping {
            physical: id,
            accessible: false,
        },
        context: None,
        device: physical.device,
        flags: 0,
        id: 0,
        born: None,
        block: MemoryBlock::view(&physical.block),
    };
    machine.add_range(range);
    if let Some(physical) = machine.physical.get_mut(&id) {
        physical.mappings += 1;
    }
    Ok(())
}

/// The mappings that lie side by side from `ptr` and end at `ptr + size`.
fn whole_mappings(machine: &Machine, ptr: u64, size: u64) -> Result<Vec<u64>, CUresult> {
    let end = ptr.checked_add(size).ok_or(CUresult::INVALID_VALUE)?;
    let mut bases = Vec::new();
    let mut at = ptr;
    while at < end {
        let range = machine.map.at(at).ok_or(CUresult::INVALID_VALUE)?;
        valid(matches!(range.origin, Origin::Mapping { .. }))?;
        bases.push(at);
        at += range.size;
    }
    valid(at == end && !bases.is_empty())?;
    Ok(bases)
}

/// What is reserved and not mapped may lie in the range too; a mapping must lie in it whole.
pub(crate) unsafe fn cuMemUnmap(ptr: CUdeviceptr, size: usize) -> Answer {
    let mut machine = lock();
    let end = ptr
        .checked_add(size as u64)
        .ok_or(CUresult::INVALID_VALUE)?;
    let reserved = machine.reservations.range(..=ptr).next_back();
    valid(size > 0 && reserved.is_some_and(|(base, len)| end <= base + len))?;
    let mut bases = Vec::new();
    for range in machine.map.overlapping(ptr, size as u64) {
        valid(ptr <= range.base && range.base + range.size <= end)?;
        bases.push(range.base);
    }
    for range in bases.iter().filter_map(|base| machine.map.at(*base)) {
        machine.check_unused(range, "unmapped")?;
    }
    for base in bases {
        if let Some(range) = machine.map.remove(base) {
            machine.release_range(range);
        }
    }
    Ok(())
}

pub(crate) unsafe fn cuMemSetAccess(
    ptr: CUdeviceptr,
    size: usize,
    desc: *const CUmemAccessDesc,
    count: usize,
) -> Answer {
    valid(count > 0)?;
    let mut machine = lock();
    let bases = whole_mappings(&machine, ptr, size as u64)?;
    // All are looked at before the first has an effect.
    let mut wishes = Vec::new();
    for index in 0..count {
        // SAFETY: the array has `count` elements, by the caller's promise.
        let desc = unsafe { get(desc.wrapping_add(index)) }?;
        valid(desc.location.type_ == virtual_memory::LOCATION_TYPE_DEVICE)?;
        valid(desc.flags == virtual_memory::ACCESS_READWRITE || desc.flags == 0)?;
        wishes.push((machine.device(desc.location.id)?, desc.flags != 0));
    }
    for (device, allowed) in wishes {
        for base in &bases {
            // Access from another device is not simulated: copies between devices need none.
            if let Some(range) = machine.map.at_mut(*base)
                && range.device == device
                && let Origin::Mapping { accessible, .. } = &mut range.origin
            {
                *accessible = allowed;
            }
        }
    }
    Ok(())
}

pub(crate) unsafe fn cuMemGetAccess(
    flags: *mut u64,
    location: *const CUmemLocation,
    ptr: CUdeviceptr,
) -> Answer {
    // SAFETY: as the caller promises.
    let location = unsafe { get(location) }?;
    let machine = lock();
    let device = machine
        .device(location.id)
        .map_err(|_| CUresult::INVALID_VALUE)?;
    let range = machine.map.find(ptr).ok_or(CUresult::INVALID_VALUE)?;
    let Origin::Mapping { accessible, .. } = range.origin else {
        return Err(CUresult::INVALID_VALUE);
    };
    let allowed = if accessible && device == range.device {
        virtual_memory::ACCESS_READWRITE
    } else {
        virtual_memory::ACCESS_NONE
    };
    // SAFETY: as the caller promises.
    unsafe { put(flags, u64::from(allowed)) }
}

pub(crate) unsafe fn cuMemGetAllocationPropertiesFromHandle(
    prop: *mut CUmemAllocationProp,
    handle: CUmemGenericAllocationHandle,
) -> Answer {
    let machine = lock();
    let found = machine.physical[&known(&machine, handle)?].prop;
    // SAFETY: as the caller promises.
    unsafe { put(prop, found.into()) }
}

pub(crate) unsafe fn cuMemRetainAllocationHandle(
    handle: *mut CUmemGenericAllocationHandle,
    addr: *mut c_void,
) -> Answer {
    valid(!handle.is_null())?;
    let mut machine = lock();
    let origin = machine.map.find(addr as u64).map(|range| range.origin);
    let Some(Origin::Mapping { physical: id, .. }) = origin else {
        return Err(CUresult::INVALID_VALUE);
    };
    if let Some(physical) = machine.physical.get_mut(&id) {
        physical.handles += 1;
    }
    // SAFETY: as the caller promises.
    unsafe { put(handle, as_handle(id)) }
}
