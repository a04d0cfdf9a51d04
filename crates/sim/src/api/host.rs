//! Host memory that the driver knows of: pinned, registered, managed.

use std::ffi::c_void;

use cuguard_sys::{CUdevice, CUdeviceptr, CUresult, CUstream, flags};

use super::memory::remove_when_idle;
use super::{check, put, put_if_asked, valid};
use crate::address_map::{Origin, Range};
use crate::entry::{Function, may_fail};
use crate::fault;
use crate::lock::lock;
use crate::machine::{Answer, Machine};
use crate::memory_block::{Address, MemoryBlock};
use crate::os;

/// Host memory of the driver's own, known to it under the address that the host uses.
fn allocate(bytes: usize, origin: Origin, flags: u32) -> Result<Address, CUresult> {
    let mut machine = lock();
    let context = machine.usable_current()?;
    fault::on_allocation(bytes as u64)?;
    let block = MemoryBlock::fresh_pages(bytes).ok_or(CUresult::OUT_OF_MEMORY)?;
    let start = block.start();
    let device = machine.device_of(context);
    machine.add_host_range(Range {
        base: start.as_ptr() as u64,
        size: bytes as u64,
        origin,
        context: Some(context),
        device,
        flags,
        id: 0,
        born: None,
        block,
    })?;
    Ok(start)
}

/// Pinned memory, for both functions that have it to give.
///
/// # Safety
///
/// `out` is null or valid for a write.
unsafe fn pin(function: Function, out: *mut *mut c_void, bytes: usize, flags: u32) -> Answer {
    const KNOWN: u32 = flags::MEMHOSTALLOC_PORTABLE
        | flags::MEMHOSTALLOC_DEVICEMAP
        | flags::MEMHOSTALLOC_WRITECOMBINED;
    // SAFETY: as the caller promises. A failed allocation leaves null behind.
    unsafe { put_if_asked(out, std::ptr::null_mut()) };
    may_fail(function)?;
    valid(!out.is_null() && flags & !KNOWN == 0)?;
    if bytes == 0 {
        return lock().usable_current().map(drop);
    }
    // With unified addressing all pinned memory is mapped.
    let start = allocate(bytes, Origin::Pinned, flags | flags::MEMHOSTALLOC_DEVICEMAP)?;
    // SAFETY: as the caller promises.
    unsafe { put(out, start.as_ptr().cast()) }
}

pub(crate) unsafe fn cuMemHostAlloc(out: *mut *mut c_void, bytes: usize, flags: u32) -> Answer {
    // SAFETY: as the caller promises.
    unsafe { pin(Function::cuMemHostAlloc, out, bytes, flags) }
}

pub(crate) unsafe fn cuMemAllocHost_v2(out: *mut *mut c_void, bytes: usize) -> Answer {
    // SAFETY: as the caller promises.
    unsafe { pin(Function::cuMemAllocHost_v2, out, bytes, 0) }
}

/// Waits for all work of the memory's context, and for all other work that uses the memory.
pub(crate) unsafe fn cuMemFreeHost(ptr: *mut c_void) -> Answer {
    let machine = lock();
    machine.check_current_if_any()?;
    if ptr.is_null() {
        return Ok(());
    }
    let origin = machine.map.at(ptr as u64).map(|range| range.origin);
    valid(origin == Some(Origin::Pinned))?;
    let (mut machine, range) = remove_when_idle(machine, ptr as u64);
    machine.release_range(range.ok_or(CUresult::INVALID_VALUE)?);
    Ok(())
}

pub(crate) unsafe fn cuMemAllocManaged(ptr: *mut CUdeviceptr, bytes: usize, flags: u32) -> Answer {
    // SAFETY: as the caller promises. A failed allocation leaves null behind.
    unsafe { put_if_asked(ptr, 0) };
    may_fail(Function::cuMemAllocManaged)?;
    valid(!ptr.is_null() && bytes > 0)?;
    valid(matches!(
        flags,
        flags::MEM_ATTACH_GLOBAL | flags::MEM_ATTACH_HOST
    ))?;
    let start = allocate(bytes, Origin::Managed, flags)?;
    // SAFETY: as the caller promises.
    unsafe { put(ptr, start.as_ptr() as u64) }
}

pub(crate) unsafe fn cuMemHostRegister_v2(ptr: *mut c_void, bytes: usize, flags: u32) -> Answer {
    /// Portable, mapped, input/output memory, read-only.
    const KNOWN: u32 = 0xf;
    let start = Address::new(ptr.cast()).ok_or(CUresult::INVALID_VALUE)?;
    valid(bytes > 0 && flags & !KNOWN == 0)?;
    // Large memory takes a while to look at, so that is done before the lock is taken.
    let is_mapped = os::is_mapped(start, bytes);
    let mut machine = lock();
    let context = machine.current()?;
    let base = ptr as u64;
    if machine.map.overlaps(base, bytes as u64) {
        let registered = |range: &Range| range.origin == Origin::Registered;
        let known = machine.map.find(base).is_none_or(registered);
        return Err(if known {
            CUresult::HOST_MEMORY_ALREADY_REGISTERED
        } else {
            CUresult::INVALID_VALUE
        });
    }
    valid(is_mapped)?;
    machine.check_not_freed(base, bytes as u64)?;
    let device = machine.device_of(context);
    machine.add_range(Range {
        base,
        size: bytes as u64,
        origin: Origin::Registered,
        context: Some(context),
        device,
        flags: flags | flags::MEMHOSTALLOC_DEVICEMAP,
        id: 0,
        born: None,
        block: MemoryBlock::borrowed(start, bytes),
    });
    Ok(())
}

/// Waits for all work of the context that registered the memory, and for all other work that uses
/// it.
pub(crate) unsafe fn cuMemHostUnregister(ptr: *mut c_void) -> Answer {
    valid(!ptr.is_null())?;
    let machine = lock();
    machine.check_current_if_any()?;
    let base = ptr as u64;
    let origin = machine.map.at(base).map(|range| range.origin);
    if origin != Some(Origin::Registered) {
        return Err(match machine.map.find(base) {
            Some(_) => CUresult::INVALID_VALUE,
            None => CUresult::HOST_MEMORY_NOT_REGISTERED,
        });
    }
    let (mut machine, range) = remove_when_idle(machine, base);
    machine.release_range(range.ok_or(CUresult::HOST_MEMORY_NOT_REGISTERED)?);
    Ok(())
}

pub(crate) unsafe fn cuMemHostGetDevicePointer_v2(
    out: *mut CUdeviceptr,
    ptr: *mut c_void,
    flags: u32,
) -> Answer {
    valid(flags == 0)?;
    let machine = lock();
    machine.current()?;
    let range = machine.map.find(ptr as u64);
    valid(range.is_some_and(|r| matches!(r.origin, Origin::Pinned | Origin::Registered)))?;
    // SAFETY: as the caller promises.
    unsafe { put(out, ptr as u64) }
}

pub(crate) unsafe fn cuMemHostGetFlags(flags: *mut u32, ptr: *mut c_void) -> Answer {
    let machine = lock();
    machine.current()?;
    let range = machine
        .map
        .find(ptr as u64)
        .ok_or(CUresult::INVALID_VALUE)?;
    valid(matches!(range.origin, Origin::Pinned | Origin::Registered))?;
    // SAFETY: as the caller promises.
    unsafe { put(flags, range.flags) }
}

const CPU: CUdevice = -1;

/// Advice is taken where it makes sense and has no effect.
pub(crate) unsafe fn cuMemAdvise(
    ptr: CUdeviceptr,
    count: usize,
    advice: u32,
    device: CUdevice,
) -> Answer {
    let machine = lock();
    machine.current()?;
    valid((1..=6).contains(&advice) && count > 0)?;
    check_managed(&machine, ptr, count)?;
    // Read-mostly advice looks at no device.
    let about_device = advice > 2;
    let known = device == CPU || machine.device(device).is_ok();
    check(!about_device || known, CUresult::INVALID_DEVICE)
}

/// Managed memory is where it is; the request only takes its place on the stream.
pub(crate) unsafe fn cuMemPrefetchAsync(
    ptr: CUdeviceptr,
    count: usize,
    device: CUdevice,
    stream: CUstream,
) -> Answer {
    let mut machine = lock();
    let stream = machine.stream(stream)?;
    valid(count > 0)?;
    check_managed(&machine, ptr, count)?;
    if device != CPU {
        machine.device(device)?;
    }
    machine.submit(stream, None, None, None).map(drop)
}

fn check_managed(machine: &Machine, ptr: u64, count: usize) -> Answer {
    let range = machine
        .map
        .find(ptr)
        .filter(|range| range.origin == Origin::Managed);
    let fits = |range: &Range| count as u64 <= range.base + range.size - ptr;
    valid(range.is_some_and(fits))
}
