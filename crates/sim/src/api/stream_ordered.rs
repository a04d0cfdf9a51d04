//! Stream-ordered memory and memory pools.

use std::ffi::c_void;

use cuguard_sys::{
    CUdevice, CUdeviceptr, CUmemPoolProps, CUmemoryPool, CUresult, CUstream, pool_attribute,
    virtual_memory,
};

use super::{allocate_block, read, write_allocation, write_out};
use crate::copy_engine;
use crate::functions::Function;
use crate::handle::{self, Id, Kind};
use crate::memory::{MemoryKind, MemoryRange};
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, lock};

/// The id of a live pool.
fn find(state: &DriverState, pool: CUmemoryPool) -> DriverResult<Id> {
    let is_live = |id| state.pools.get(&id).is_some_and(|pool| !pool.destroyed);
    state.live_id(Kind::Pool, pool.0, CUresult::INVALID_VALUE, is_live)
}

/// Allocates from a pool, or from the current one of the stream's device.
fn allocate(
    pool: Option<CUmemoryPool>,
    bytes: usize,
    stream: CUstream,
) -> DriverResult<CUdeviceptr> {
    let mut state = lock();
    let stream = state.stream(stream)?;
    copy_engine::check_sticky_error()?;
    let pool = match pool {
        Some(pool) => find(&state, pool)?,
        None => {
            let context = state.streams[&stream].context;
            state.device(state.device_of(context)).pool
        }
    };
    if bytes == 0 {
        return Ok(0);
    }
    let size = bytes as u64;
    let block = allocate_block(bytes)?;
    let base = state.allocate_from_pool(pool, size, stream);
    let base = base.ok_or(CUresult::OUT_OF_MEMORY)?;
    let device = state.pools[&pool].device;
    // The allocation has a position on the stream: other streams must not use it before.
    match state.submit(stream, None, None, None) {
        Ok(work) => state.add_range(MemoryRange {
            allocated_at: Some((stream, work)),
            ..MemoryRange::new(base, size, MemoryKind::Pool(pool), device, block)
        }),
        Err(code) => {
            if let Some(pool) = state.pools.get_mut(&pool) {
                pool.undo_allocate(base, size);
            }
            return Err(code);
        }
    }
    Ok(base)
}

pub unsafe fn cuMemAllocAsync(
    ptr: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> DriverResult {
    let allocate = || allocate(None, bytes, stream);
    // SAFETY: as the caller guarantees.
    unsafe { write_allocation(Function::cuMemAllocAsync, ptr, 0, allocate) }
}

pub unsafe fn cuMemAllocFromPoolAsync(
    ptr: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> DriverResult {
    let allocate = || allocate(Some(pool), bytes, stream);
    // SAFETY: as the caller guarantees.
    unsafe { write_allocation(Function::cuMemAllocFromPoolAsync, ptr, 0, allocate) }
}

pub unsafe fn cuMemFreeAsync(ptr: CUdeviceptr, stream: CUstream) -> DriverResult {
    let mut state = lock();
    let stream = state.stream(stream)?;
    if ptr == 0 {
        return Ok(());
    }
    match state.map.at(ptr).map(|range| range.kind) {
        Some(MemoryKind::Pool(_) | MemoryKind::Device) => state.free_on_stream(ptr, stream),
        Some(MemoryKind::Managed) => Err(CUresult::NOT_SUPPORTED),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub unsafe fn cuMemPoolCreate(
    pool: *mut CUmemoryPool,
    props: *const CUmemPoolProps,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let props = unsafe { read(props) }?;
    valid(!pool.is_null())?;
    valid(props.allocType == virtual_memory::ALLOCATION_TYPE_PINNED)?;
    valid(props.location.type_ == virtual_memory::LOCATION_TYPE_DEVICE)?;
    // Not simulated: inter-process sharing, and a maximum size and usage, for which newer drivers
    // use the reserved bytes.
    let plain = props.handleTypes == 0 && props.reserved.iter().all(|byte| *byte == 0);
    check(plain, CUresult::NOT_SUPPORTED)?;
    let mut state = lock();
    let device = state.check_device(props.location.id);
    let id = state.add_pool(device.map_err(|_| CUresult::INVALID_VALUE)?)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_handle(pool, id) }
}

/// # Safety
///
/// `out` is null or valid for a write.
unsafe fn write_handle(out: *mut CUmemoryPool, id: Id) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUmemoryPool(handle::encode(Kind::Pool, id))) }
}

/// Blocks of the pool stay valid until they are freed.
pub unsafe fn cuMemPoolDestroy(pool: CUmemoryPool) -> DriverResult {
    let mut state = lock();
    let id = find(&state, pool)?;
    valid(state.devices.iter().all(|device| device.default_pool != id))?;
    for device in &mut state.devices {
        if device.pool == id {
            device.pool = device.default_pool;
        }
    }
    if let Some(pool) = state.pools.get_mut(&id) {
        pool.destroyed = true;
    }
    state.remove_pool_if_unused(id);
    Ok(())
}

pub unsafe fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) -> DriverResult {
    let mut state = lock();
    let id = find(&state, pool)?;
    let state = &mut *state;
    if let Some(pool) = state.pools.get_mut(&id) {
        let memory = &mut state.devices[pool.device as usize].memory;
        pool.release(keep as u64, memory);
    }
    Ok(())
}

pub unsafe fn cuMemPoolGetAttribute(
    pool: CUmemoryPool,
    attr: u32,
    value: *mut c_void,
) -> DriverResult {
    let state = lock();
    let pool = &state.pools[&find(&state, pool)?];
    let number = match attr {
        pool_attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES
        | pool_attribute::REUSE_ALLOW_OPPORTUNISTIC
        | pool_attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            let on = pool.reuse[attr as usize - 1];
            // SAFETY: these attributes are a C int.
            return unsafe { write_out(value.cast(), i32::from(on)) };
        }
        pool_attribute::RELEASE_THRESHOLD => pool.release_threshold,
        pool_attribute::RESERVED_MEM_CURRENT => pool.reserved(),
        pool_attribute::RESERVED_MEM_HIGH => pool.reserved_high,
        pool_attribute::USED_MEM_CURRENT => pool.used,
        pool_attribute::USED_MEM_HIGH => pool.used_high,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    // SAFETY: these attributes are 64 bits wide.
    unsafe { write_out(value.cast(), number) }
}

pub unsafe fn cuMemPoolSetAttribute(
    pool: CUmemoryPool,
    attr: u32,
    value: *mut c_void,
) -> DriverResult {
    let mut state = lock();
    let id = find(&state, pool)?;
    let Some(pool) = state.pools.get_mut(&id) else {
        return Err(CUresult::INVALID_VALUE);
    };
    match attr {
        pool_attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES
        | pool_attribute::REUSE_ALLOW_OPPORTUNISTIC
        | pool_attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            // SAFETY: these attributes are a C int.
            pool.reuse[attr as usize - 1] = unsafe { read(value.cast::<i32>()) }? != 0;
        }
        pool_attribute::RELEASE_THRESHOLD => {
            // SAFETY: this attribute is 64 bits wide.
            pool.release_threshold = unsafe { read(value.cast::<u64>()) }?;
        }
        pool_attribute::RESERVED_MEM_HIGH | pool_attribute::USED_MEM_HIGH => {
            // The high-water marks can only be reset. SAFETY: 64 bits wide.
            valid(unsafe { read(value.cast::<u64>()) }? == 0)?;
            if attr == pool_attribute::RESERVED_MEM_HIGH {
                pool.reserved_high = pool.reserved();
            } else {
                pool.used_high = pool.used;
            }
        }
        _ => return Err(CUresult::INVALID_VALUE),
    }
    Ok(())
}

pub unsafe fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, dev: CUdevice) -> DriverResult {
    let state = lock();
    let id = state.device(state.check_device(dev)?).default_pool;
    // SAFETY: as the caller guarantees.
    unsafe { write_handle(pool, id) }
}

pub unsafe fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice) -> DriverResult {
    let state = lock();
    let id = state.device(state.check_device(dev)?).pool;
    // SAFETY: as the caller guarantees.
    unsafe { write_handle(pool, id) }
}

pub unsafe fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) -> DriverResult {
    let mut state = lock();
    let device = state.check_device(dev)?;
    let id = find(&state, pool)?;
    valid(state.pools[&id].device == device)?;
    state.device_mut(device).pool = id;
    Ok(())
}
