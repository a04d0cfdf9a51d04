//! Stream-ordered memory and memory pools.

use std::ffi::c_void;
use std::sync::Arc;

use cuguard_sys::{
    CUdevice, CUdeviceptr, CUmemLocation, CUmemPoolProps, CUmemoryPool, CUresult, CUstream,
    mem_location_type, pool_attribute,
};

use super::{allocate_block, read, write_allocation, write_out};
use crate::functions::Function;
use crate::handle::{self, Id, Kind};
use crate::memory::{
    Advice, MemoryBlock, MemoryKind, MemoryRange, NOWHERE, PageAdvice, PoolLocation,
};
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, lock};
use crate::streams::Run;
use crate::{copy_engine, fault};

/// The id of a live pool.
pub(super) fn find(state: &DriverState, pool: CUmemoryPool) -> DriverResult<Id> {
    let is_live = |id| state.pools.get(&id).is_some_and(|pool| !pool.destroyed);
    state.live_id(Kind::Pool, pool.0, CUresult::INVALID_VALUE, is_live)
}

/// Fails unless a location that has an id exists.
pub(super) fn check_id(state: &DriverState, location: PoolLocation) -> DriverResult {
    let PoolLocation { type_, id, .. } = location;
    let has_id = matches!(
        type_,
        mem_location_type::DEVICE | mem_location_type::HOST_NUMA
    );
    valid(!has_id || state.location_exists(CUmemLocation { type_, id }))
}

/// Where new memory of a pool is preferred, as range attributes report it.
fn preferred(location: PoolLocation) -> CUmemLocation {
    let (type_, id) = (location.type_, location.id);
    match type_ {
        mem_location_type::NONE => NOWHERE,
        _ => CUmemLocation { type_, id },
    }
}

/// The work that allocates memory of a pool that the host can access. Earlier work on the stream may
/// still use the same memory.
fn fill(block: Arc<MemoryBlock>) -> Run {
    // SAFETY: the program accesses the memory only after the allocation, or before the free that
    // precedes it.
    Box::new(copy_engine::work(move || unsafe { block.fill_new() }))
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
    state.check_implicit(stream)?;
    if state.is_capturing(stream) {
        return super::graph_memory::capture_allocation(&mut state, stream, bytes);
    }
    state.check_unsafe_call()?;
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
    // Device memory first, so that there is nothing to undo if the host is out of memory.
    let device_block = match state.pools[&pool].location.is_device_memory() {
        true => Some(allocate_block(bytes)?),
        false => fault::on_allocation(size).map(|()| None)?,
    };
    let base = state.allocate_from_pool(pool, size, stream);
    let base = base.ok_or(CUresult::OUT_OF_MEMORY)?;
    let found = &state.pools[&pool];
    let (location, device) = (found.location, found.device);
    let (block, fill) = match (device_block, &found.backing) {
        (Some(block), _) => (block, None),
        (None, Some(all)) => {
            let block = MemoryBlock::within(all, (base - found.base) as usize, bytes);
            (block.clone(), Some(fill(block)))
        }
        (None, None) => return Err(CUresult::OUT_OF_MEMORY),
    };
    // The allocation has a position on the stream: other streams must not use it before.
    match state.submit(stream, None, fill, None) {
        Ok(work) => state.add_range(MemoryRange {
            allocated_at: Some((stream, work)),
            from_managed_pool: location.managed,
            sync_memops: location.managed,
            advice: Advice::new(PageAdvice {
                preferred: preferred(location),
                ..PageAdvice::default()
            }),
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
    state.check_implicit(stream)?;
    if state.is_capturing(stream) {
        return super::graph_memory::capture_free(&mut state, stream, ptr);
    }
    state.check_unsafe_call()?;
    match state.map.at(ptr).map(|range| range.kind) {
        Some(MemoryKind::Pool(_) | MemoryKind::Device | MemoryKind::Graph) => {
            state.free_on_stream(ptr, stream)
        }
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
    let location = PoolLocation::new(props.location, props.allocType);
    let location = location.ok_or(CUresult::INVALID_VALUE)?;
    if location.managed {
        valid(props.maxSize == 0)?;
        let known = location.type_ <= mem_location_type::HOST_NUMA_CURRENT;
        check(known, CUresult::NOT_SUPPORTED)?;
    } else {
        let kinds = mem_location_type::DEVICE..=mem_location_type::HOST_NUMA;
        valid(kinds.contains(&location.type_))?;
    }
    valid(props.reserved.iter().all(|byte| *byte == 0) && props.gpuDirectRDMACapable == 0)?;
    // Sharing between processes is not simulated, and the device's attributes say so. The usage is
    // a hint.
    valid(props.handleTypes == 0)?;
    let mut state = lock();
    check_id(&state, location)?;
    let id = state.add_pool(location, props.maxSize as u64)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_handle(pool, id) }
}

/// # Safety
///
/// `out` is null or valid for a write.
pub(super) unsafe fn write_handle(out: *mut CUmemoryPool, id: Id) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUmemoryPool(handle::encode(Kind::Pool, id))) }
}

/// Blocks of the pool stay valid until they are freed.
pub unsafe fn cuMemPoolDestroy(pool: CUmemoryPool) -> DriverResult {
    let mut state = lock();
    let id = find(&state, pool)?;
    valid(!state.is_default_pool(id))?;
    state.replace_current_pool(id);
    if let Some(pool) = state.pools.get_mut(&id) {
        pool.destroyed = true;
    }
    state.remove_pool_if_unused(id);
    Ok(())
}

pub unsafe fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) -> DriverResult {
    let mut state = lock();
    let id = find(&state, pool)?;
    state.trim_pool(id, keep as u64);
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
    // Like a real driver, also accepts a managed pool, and makes it the device's managed one.
    let location = state.pools[&id].location;
    let of_device = location.type_ == mem_location_type::DEVICE;
    valid(of_device && location.id == device as i32)?;
    state.set_location_pool(location, id)
}
