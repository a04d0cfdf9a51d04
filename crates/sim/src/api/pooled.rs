//! Stream-ordered memory and the pools it comes from.

use std::ffi::c_void;

use cuguard_sys::{
    CUdevice, CUdeviceptr, CUmemPoolProps, CUmemoryPool, CUresult, CUstream, pool_attribute,
    virtual_memory,
};

use super::{check, get, put, put_if_asked, valid};
use crate::address_map::{Origin, Range};
use crate::entry::{Function, may_fail};
use crate::fault;
use crate::handle::{self, Id, Kind};
use crate::lock::lock;
use crate::machine::{self, Answer, Machine};
use crate::memory_block::MemoryBlock;

fn as_handle(id: Id) -> CUmemoryPool {
    CUmemoryPool(handle::encode(Kind::Pool, id))
}

/// The pool behind a handle.
fn known(machine: &Machine, pool: CUmemoryPool) -> Result<Id, CUresult> {
    let id = handle::decode(Kind::Pool, pool.0);
    match id.filter(|id| machine.pools.get(id).is_some_and(|pool| !pool.destroyed)) {
        Some(id) => Ok(id),
        None if pool.is_null() => Err(CUresult::INVALID_VALUE),
        None => Err(machine.dead_handle(Kind::Pool, pool.0, CUresult::INVALID_VALUE)),
    }
}

fn allocate(
    machine: &mut Machine,
    pool: Id,
    bytes: usize,
    stream: Id,
) -> Result<CUdeviceptr, CUresult> {
    if bytes == 0 {
        return Ok(0);
    }
    let size = bytes as u64;
    fault::on_allocation(size)?;
    // First what the host may not have, so that nothing needs to be taken back.
    let block = MemoryBlock::fresh(bytes).ok_or(CUresult::OUT_OF_MEMORY)?;
    let base = take(machine, pool, size, stream).ok_or(CUresult::OUT_OF_MEMORY)?;
    let device = machine.pools[&pool].device;
    // The allocation has its place on the stream: other streams must not use it before.
    match machine.submit(stream, None, None, None) {
        Ok(work) => machine.add_range(Range {
            base,
            size,
            origin: Origin::Pool(pool),
            context: None,
            device,
            flags: 0,
            id: 0,
            born: Some((stream, work)),
            block,
        }),
        Err(code) => {
            if let Some(pool) = machine.pools.get_mut(&pool) {
                pool.undo_take(base, size);
            }
            return Err(code);
        }
    }
    Ok(base)
}

/// Addresses from a pool; all pools give back what they only hoard before that fails.
fn take(machine: &mut Machine, pool: Id, bytes: u64, stream: Id) -> Option<u64> {
    let device = machine.pools.get(&pool)?.device;
    for squeezed in [false, true] {
        if squeezed {
            machine.squeeze_pools(device, Some(pool));
        }
        let memory = &mut machine.devices[device as usize].memory;
        let taken = machine.pools.get_mut(&pool)?.take(bytes, stream, memory);
        if taken.is_some() {
            return taken;
        }
    }
    None
}

pub(crate) unsafe fn cuMemAllocAsync(
    ptr: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    // SAFETY: as the caller promises. A failed allocation leaves null behind.
    unsafe { put_if_asked(ptr, 0) };
    may_fail(Function::cuMemAllocAsync)?;
    valid(!ptr.is_null())?;
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
    unsafe { put_if_asked(ptr, 0) };
    may_fail(Function::cuMemAllocFromPoolAsync)?;
    valid(!ptr.is_null())?;
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
        Some(Origin::Pool(pool)) => free_pooled(&mut machine, pool, ptr, stream),
        Some(Origin::Device) => free_plain(&mut machine, ptr, stream),
        Some(Origin::Managed) => Err(CUresult::NOT_SUPPORTED),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn free_pooled(machine: &mut Machine, pool: Id, ptr: u64, stream: Id) -> Answer {
    machine.join_implied_order(stream);
    let range = machine.map.at(ptr).ok_or(CUresult::INVALID_VALUE)?;
    machine.check_allocated(range, stream)?;
    let (id, size) = (range.id, range.size);
    let work = machine.last_work(stream) + 1;
    // Noted before the work is handed over: that may be done at once.
    let range = machine.map.remove(ptr).ok_or(CUresult::INVALID_VALUE)?;
    if let Some(pool) = machine.pools.get_mut(&pool) {
        pool.free_after(ptr, size, stream, work);
        pool.leaving.insert(id, range);
    }
    let then = move |machine: &mut Machine| {
        let Some(pool) = machine.pools.get_mut(&pool) else {
            return;
        };
        pool.free_happened(stream, work);
        if let Some(range) = pool.leaving.remove(&id) {
            machine.free_happens(range);
        }
    };
    let submitted = machine.submit(stream, None, None, Some(Box::new(then)));
    if submitted.is_err()
        && let Some(pool) = machine.pools.get_mut(&pool)
        && let Some(range) = pool.leaving.remove(&id)
    {
        pool.undo_free(ptr, size, stream, work);
        machine.map.insert(range);
    }
    submitted.map(drop)
}

/// Memory from `cuMemAlloc`. The stream may be another context's: then the memory's own context may
/// end first, and the memory goes with it.
fn free_plain(machine: &mut Machine, ptr: u64, stream: Id) -> Answer {
    let range = machine.map.remove(ptr).ok_or(CUresult::INVALID_VALUE)?;
    let (id, owner) = (range.id, range.context.unwrap_or(0));
    let taken = move |machine: &mut Machine| {
        let owner = machine.contexts.get_mut(&owner)?;
        owner.leaving.remove(&id)
    };
    if let Some(owner) = machine.contexts.get_mut(&owner) {
        owner.leaving.insert(id, range);
    }
    let then = move |machine: &mut Machine| {
        if let Some(range) = taken(machine) {
            machine.free_happens(range);
        }
    };
    let submitted = machine.submit(stream, None, None, Some(Box::new(then)));
    if submitted.is_err()
        && let Some(range) = taken(machine)
    {
        machine.map.insert(range);
    }
    submitted.map(drop)
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
    // Sharing with other processes, and what newer drivers made of the reserved bytes: a largest
    // size, a use.
    let plain = props.handleTypes == 0 && props.reserved.iter().all(|byte| *byte == 0);
    check(plain, CUresult::NOT_SUPPORTED)?;
    let mut machine = lock();
    let device = machine
        .device(props.location.id)
        .map_err(|_| CUresult::INVALID_VALUE)?;
    let id = machine.add_pool(device)?;
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
