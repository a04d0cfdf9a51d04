//! Stream-ordered memory and the pools it comes from.

use std::ffi::c_void;

use cuguard_sys::{
    CUdevice, CUdeviceptr, CUmemPoolProps, CUmemoryPool, CUresult, CUstream, pool_attribute,
    virtual_memory,
};

use super::memory::ALIGNMENT;
use super::{get, put, valid};
use crate::address_map::{Origin, Range};
use crate::fault;
use crate::handle::{self, Kind};
use crate::machine::{self, Answer, Machine, lock};
use crate::memory_block::MemoryBlock;
use crate::pool::{POOL_SPAN, Pool};

fn as_handle(id: u32) -> CUmemoryPool {
    CUmemoryPool(handle::encode(Kind::Pool, id))
}

/// The pool behind a handle.
fn known(machine: &Machine, pool: CUmemoryPool) -> Result<u32, CUresult> {
    let id = handle::decode(Kind::Pool, pool.0);
    match id.filter(|id| machine.pools.get(id).is_some_and(|pool| !pool.destroyed)) {
        Some(id) => Ok(id),
        None if pool.is_null() => Err(CUresult::INVALID_VALUE),
        None => Err(machine.dead_handle(Kind::Pool, pool.0, CUresult::INVALID_VALUE)),
    }
}

fn allocate(
    machine: &mut Machine,
    pool: u32,
    bytes: usize,
    stream: u32,
) -> Result<CUdeviceptr, CUresult> {
    if bytes == 0 {
        return Ok(0);
    }
    fault::on_allocation(bytes as u64)?;
    let device = machine.pools[&pool].device;
    let mut taken = None;
    for squeezed in [false, true] {
        if squeezed {
            machine.squeeze_pools(device);
        }
        let streams = &machine.streams;
        let done = |stream: u32, work: u64| {
            streams
                .get(&stream)
                .is_none_or(|stream| stream.completed() >= work)
        };
        let memory = &mut machine.devices[device as usize].memory;
        let from = machine
            .pools
            .get_mut(&pool)
            .ok_or(CUresult::INVALID_VALUE)?;
        taken = from.take(bytes as u64, stream, memory, done);
        if taken.is_some() {
            break;
        }
    }
    let base = taken.ok_or(CUresult::OUT_OF_MEMORY)?;
    let range = |block| Range {
        base,
        size: bytes as u64,
        origin: Origin::Pool(pool),
        context: None,
        device,
        flags: 0,
        id: 0,
        block,
    };
    match MemoryBlock::fresh(bytes, ALIGNMENT) {
        Some(block) => machine.add_range(range(block)),
        None => {
            machine.release_range(&range(MemoryBlock::empty()));
            return Err(CUresult::OUT_OF_MEMORY);
        }
    }
    Ok(base)
}

pub(crate) unsafe fn cuMemAllocAsync(
    ptr: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    // SAFETY: as the caller promises. A failed allocation leaves null behind.
    unsafe { put(ptr, 0) }?;
    let mut machine = lock();
    let stream = machine.stream(stream)?;
    machine::corrupted()?;
    let context = machine.streams[&stream].context;
    let pool = machine.on(machine.device_of(context)).pool;
    let base = allocate(&mut machine, pool, bytes, stream)?;
    // SAFETY: as the caller promises.
    unsafe { put(ptr, base) }
}

pub(crate) unsafe fn cuMemAllocFromPoolAsync(
    ptr: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Answer {
    // SAFETY: as the caller promises. A failed allocation leaves null behind.
    unsafe { put(ptr, 0) }?;
    let mut machine = lock();
    let stream = machine.stream(stream)?;
    machine::corrupted()?;
    let pool = known(&machine, pool)?;
    let base = allocate(&mut machine, pool, bytes, stream)?;
    // SAFETY: as the caller promises.
    unsafe { put(ptr, base) }
}

/// From here on the address is no longer known. The memory itself is free when the stream gets
/// there.
pub(crate) unsafe fn cuMemFreeAsync(ptr: CUdeviceptr, stream: CUstream) -> Answer {
    let mut machine = lock();
    let stream = machine.stream(stream)?;
    if ptr == 0 {
        return Ok(());
    }
    match machine.map.at(ptr).map(|range| range.origin) {
        Some(Origin::Pool(id)) => {
            let work = machine.submit(stream, Vec::new(), None, None)?;
            let range = machine.map.remove(ptr).ok_or(CUresult::INVALID_VALUE)?;
            if let Some(pool) = machine.pools.get_mut(&id) {
                pool.free_after(range.base, range.size, stream, work);
            }
            Ok(())
        }
        Some(Origin::Device) => {
            let range = machine.map.remove(ptr).ok_or(CUresult::INVALID_VALUE)?;
            let freed = range.clone();
            let then = move |machine: &mut Machine| machine.release_range(&freed);
            match machine.submit(stream, Vec::new(), None, Some(Box::new(then))) {
                Ok(_) => Ok(()),
                Err(code) => {
                    machine.map.insert(range);
                    Err(code)
                }
            }
        }
        Some(Origin::Managed) => Err(CUresult::NOT_SUPPORTED),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuMemPoolCreate(
    pool: *mut CUmemoryPool,
    props: *const CUmemPoolProps,
) -> Answer {
    // SAFETY: as the caller promises.
    let props = unsafe { get(props) }?;
    valid(!pool.is_null())?;
    valid(props.allocType == virtual_memory::ALLOCATION_TYPE_PINNED)?;
    valid(props.location.type_ == virtual_memory::LOCATION_TYPE_DEVICE)?;
    if props.handleTypes != 0 {
        // Sharing with other processes.
        return Err(CUresult::NOT_SUPPORTED);
    }
    let mut machine = lock();
    let device = machine
        .device(props.location.id)
        .map_err(|_| CUresult::INVALID_VALUE)?;
    let base = machine
        .addresses
        .take(POOL_SPAN, crate::PAGE)
        .ok_or(CUresult::OUT_OF_MEMORY)?;
    let id = machine.new_id();
    machine.pools.insert(id, Pool::new(device, base));
    // SAFETY: as the caller promises.
    unsafe { put(pool, as_handle(id)) }
}

/// Blocks of the pool that are still in use stay valid until they are freed.
pub(crate) unsafe fn cuMemPoolDestroy(pool: CUmemoryPool) -> Answer {
    let mut machine = lock();
    let id = known(&machine, pool)?;
    valid(
        machine
            .devices
            .iter()
            .all(|device| device.default_pool != id),
    )?;
    for device in &mut machine.devices {
        if device.pool == id {
            device.pool = device.default_pool;
        }
    }
    if let Some(pool) = machine.pools.get_mut(&id) {
        pool.destroyed = true;
    }
    machine.drop_pool_if_done(id);
    Ok(())
}

pub(crate) unsafe fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) -> Answer {
    let mut machine = lock();
    let id = known(&machine, pool)?;
    let machine = &mut *machine;
    if let Some(pool) = machine.pools.get_mut(&id) {
        pool.release(
            keep as u64,
            &mut machine.devices[pool.device as usize].memory,
        );
    }
    Ok(())
}

pub(crate) unsafe fn cuMemPoolGetAttribute(
    pool: CUmemoryPool,
    attr: u32,
    value: *mut c_void,
) -> Answer {
    let machine = lock();
    let pool = &machine.pools[&known(&machine, pool)?];
    let number = match attr {
        pool_attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES
        | pool_attribute::REUSE_ALLOW_OPPORTUNISTIC
        | pool_attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            let on = pool.reuse[attr as usize - 1];
            // SAFETY: these attributes are a C int.
            return unsafe { put(value.cast::<i32>(), i32::from(on)) };
        }
        pool_attribute::RELEASE_THRESHOLD => pool.release_threshold,
        pool_attribute::RESERVED_MEM_CURRENT => pool.reserved(),
        pool_attribute::RESERVED_MEM_HIGH => pool.reserved_high,
        pool_attribute::USED_MEM_CURRENT => pool.used,
        pool_attribute::USED_MEM_HIGH => pool.used_high,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    // SAFETY: these attributes are 64 bits wide.
    unsafe { put(value.cast::<u64>(), number) }
}

pub(crate) unsafe fn cuMemPoolSetAttribute(
    pool: CUmemoryPool,
    attr: u32,
    value: *mut c_void,
) -> Answer {
    let mut machine = lock();
    let id = known(&machine, pool)?;
    let Some(pool) = machine.pools.get_mut(&id) else {
        return Err(CUresult::INVALID_VALUE);
    };
    match attr {
        pool_attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES
        | pool_attribute::REUSE_ALLOW_OPPORTUNISTIC
        | pool_attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            // SAFETY: these attributes are a C int.
            pool.reuse[attr as usize - 1] = unsafe { get(value.cast::<i32>()) }? != 0;
        }
        pool_attribute::RELEASE_THRESHOLD => {
            // SAFETY: this attribute is 64 bits wide.
            pool.release_threshold = unsafe { get(value.cast::<u64>()) }?;
        }
        pool_attribute::RESERVED_MEM_HIGH | pool_attribute::USED_MEM_HIGH => {
            // The high marks can only be set back. SAFETY: 64 bits wide.
            valid(unsafe { get(value.cast::<u64>()) }? == 0)?;
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

pub(crate) unsafe fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, dev: CUdevice) -> Answer {
    let machine = lock();
    let id = machine.on(machine.device(dev)?).default_pool;
    // SAFETY: as the caller promises.
    unsafe { put(pool, as_handle(id)) }
}

pub(crate) unsafe fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice) -> Answer {
    let machine = lock();
    let id = machine.on(machine.device(dev)?).pool;
    // SAFETY: as the caller promises.
    unsafe { put(pool, as_handle(id)) }
}

pub(crate) unsafe fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) -> Answer {
    let mut machine = lock();
    let device = machine.device(dev)?;
    let id = known(&machine, pool)?;
    valid(machine.pools[&id].device == device)?;
    machine.on_mut(device).pool = id;
    Ok(())
}
