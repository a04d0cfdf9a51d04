//! Memory pools by location: the default and the current pool of a device, of the host, of a NUMA
//! node, and of managed memory; and which locations can access a pool.

use cuguard_sys::{
    CUmemAccessDesc, CUmemLocation, CUmemoryPool, CUresult, mem_access_flags as access_flags,
    mem_location_type,
};

use super::read;
use super::stream_ordered::{check_id, find, write_handle};
use crate::memory::PoolLocation;
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, lock};

/// A location that has a default and a current pool.
fn location_of(
    state: &DriverState,
    location: CUmemLocation,
    allocation_type: u32,
) -> DriverResult<PoolLocation> {
    let has_pools = location.type_ <= mem_location_type::HOST_NUMA;
    check(has_pools, CUresult::NOT_SUPPORTED)?;
    let location = PoolLocation::new(location, allocation_type);
    let location = location.ok_or(CUresult::INVALID_VALUE)?;
    valid(location.managed || location.type_ != mem_location_type::NONE)?;
    check_id(state, location)?;
    Ok(location)
}

pub unsafe fn cuMemGetDefaultMemPool(
    pool: *mut CUmemoryPool,
    location: *mut CUmemLocation,
    allocation_type: u32,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let location = unsafe { read(location) }?;
    valid(!pool.is_null())?;
    let mut state = lock();
    let location = location_of(&state, location, allocation_type)?;
    let (default, _) = state.location_pools(location)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_handle(pool, default) }
}

pub unsafe fn cuMemGetMemPool(
    pool: *mut CUmemoryPool,
    location: *mut CUmemLocation,
    allocation_type: u32,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let location = unsafe { read(location) }?;
    valid(!pool.is_null())?;
    let mut state = lock();
    let location = location_of(&state, location, allocation_type)?;
    let (_, current) = state.location_pools(location)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_handle(pool, current) }
}

pub unsafe fn cuMemSetMemPool(
    location: *mut CUmemLocation,
    allocation_type: u32,
    pool: CUmemoryPool,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let location = unsafe { read(location) }?;
    let mut state = lock();
    let location = location_of(&state, location, allocation_type)?;
    let id = find(&state, pool)?;
    valid(state.pools[&id].location == location)?;
    state.set_location_pool(location, id)
}

/// Access to device memory from another location is not simulated.
fn check_access(
    state: &DriverState,
    pool: PoolLocation,
    desc: CUmemAccessDesc,
) -> DriverResult<(u32, i32)> {
    let (type_, id) = (desc.location.type_, desc.location.id);
    let to_device = type_ == mem_location_type::DEVICE;
    check(
        to_device || !pool.is_device_memory(),
        CUresult::NOT_SUPPORTED,
    )?;
    check(desc.flags != access_flags::READ, CUresult::NOT_SUPPORTED)?;
    let known = [access_flags::NONE, access_flags::READWRITE];
    valid(known.contains(&desc.flags))?;
    match type_ {
        mem_location_type::DEVICE => {
            let device = state.check_device(id)? as i32;
            let own = device == pool.id && desc.flags == access_flags::READWRITE;
            check(own || !pool.is_device_memory(), CUresult::INVALID_DEVICE)?;
            Ok((type_, device))
        }
        mem_location_type::HOST | mem_location_type::HOST_NUMA => {
            // The host always has access to its own memory.
            let allowed = pool.managed || desc.flags == access_flags::READWRITE;
            check(allowed, CUresult::NOT_SUPPORTED)?;
            Ok((mem_location_type::HOST, 0))
        }
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub unsafe fn cuMemPoolSetAccess(
    pool: CUmemoryPool,
    map: *const CUmemAccessDesc,
    count: usize,
) -> DriverResult {
    let mut state = lock();
    let id = find(&state, pool)?;
    valid(!map.is_null())?;
    let location = state.pools[&id].location;
    // All are checked before the first has an effect.
    let mut requests = Vec::new();
    for index in 0..count {
        // SAFETY: the caller guarantees `count` elements.
        let desc = unsafe { read(map.wrapping_add(index)) }?;
        requests.push((check_access(&state, location, desc)?, desc.flags));
    }
    for (place, flags) in requests {
        state.set_pool_access(id, place, flags);
    }
    Ok(())
}

pub unsafe fn cuMemPoolGetAccess(
    flags: *mut u32,
    pool: CUmemoryPool,
    location: *mut CUmemLocation,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let location = unsafe { read(location) }?;
    valid(!flags.is_null())?;
    let state = lock();
    let pool = &state.pools[&find(&state, pool)?];
    let place = match location.type_ {
        mem_location_type::DEVICE => {
            let device = state.check_device(location.id);
            let device = device.map_err(|_| CUresult::INVALID_VALUE)?;
            (location.type_, device as i32)
        }
        mem_location_type::HOST | mem_location_type::HOST_NUMA => (mem_location_type::HOST, 0),
        _ => return Err(CUresult::INVALID_VALUE),
    };
    // SAFETY: as the caller guarantees.
    unsafe { super::write_out(flags, pool.access(place)) }
}
