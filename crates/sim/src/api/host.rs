//! Host memory that the driver knows: pinned, registered, managed.

use std::ffi::c_void;
use std::ptr::null_mut;

use cuguard_sys::{CUdeviceptr, CUresult, flags};

use super::{write_allocation, write_out};
use crate::fault;
use crate::functions::Function;
use crate::memory::{Address, MemoryBlock, MemoryKind, MemoryRange, is_mapped, is_unused};
use crate::result::{DriverResult, valid};
use crate::state::{StateGuard, lock, remove_when_idle, synchronize_context};

/// Allocates host memory, which has the same address on the device.
fn allocate(bytes: usize, kind: MemoryKind, flags: u32) -> DriverResult<Address> {
    let mut state = lock();
    let context = state.usable_current()?;
    fault::on_allocation(bytes as u64)?;
    let block = MemoryBlock::allocate_pages(bytes).ok_or(CUresult::OUT_OF_MEMORY)?;
    let start = block.start();
    let (base, device) = (start.as_ptr() as u64, state.device_of(context));
    state.add_host_range(MemoryRange {
        context: Some(context),
        flags,
        ..MemoryRange::new(base, bytes as u64, kind, device, block)
    })?;
    Ok(start)
}

fn allocate_pinned(bytes: usize, flags: u32) -> DriverResult<*mut c_void> {
    const KNOWN: u32 = flags::MEMHOSTALLOC_PORTABLE
        | flags::MEMHOSTALLOC_DEVICEMAP
        | flags::MEMHOSTALLOC_WRITECOMBINED;
    valid(flags & !KNOWN == 0)?;
    if bytes == 0 {
        return lock().usable_current().map(|_| null_mut());
    }
    // With unified addressing all pinned memory is mapped.
    let flags = flags | flags::MEMHOSTALLOC_DEVICEMAP;
    allocate(bytes, MemoryKind::Pinned, flags).map(|start| start.as_ptr().cast())
}

pub unsafe fn cuMemHostAlloc(out: *mut *mut c_void, bytes: usize, flags: u32) -> DriverResult {
    let allocate = || allocate_pinned(bytes, flags);
    // SAFETY: as the caller guarantees.
    unsafe { write_allocation(Function::cuMemHostAlloc, out, null_mut(), allocate) }
}

pub unsafe fn cuMemAllocHost_v2(out: *mut *mut c_void, bytes: usize) -> DriverResult {
    let allocate = || allocate_pinned(bytes, 0);
    // SAFETY: as the caller guarantees.
    unsafe { write_allocation(Function::cuMemAllocHost_v2, out, null_mut(), allocate) }
}

/// Frees or unregisters the page-locked memory at `base`, once all work of its context is complete. As measured on a real
/// driver, work of other contexts is not waited for, and fails with `CUDA_ERROR_LAUNCH_FAILED` when it accesses the memory:
/// that is misuse. `None` if another thread freed or unregistered it first.
fn end_page_lock(state: StateGuard, base: u64) -> DriverResult<Option<()>> {
    let context = state.map.at(base).and_then(|range| range.context);
    let state = match context {
        Some(context) => synchronize_context(state, context),
        None => state,
    };
    let in_use = |range: &MemoryRange| range.context == context && !is_unused(&range.block);
    if state.map.at(base).is_some_and(in_use) {
        let what = format!(
            "work of another context uses the page-locked memory at {base:#x}; synchronize with it before"
        );
        return Err(state.misuse(CUresult::INVALID_VALUE, what));
    }
    let (mut state, range) = remove_when_idle(state, base);
    Ok(range.map(|range| state.release_range(range)))
}

/// Waits for all work of the memory's context.
pub unsafe fn cuMemFreeHost(ptr: *mut c_void) -> DriverResult {
    let state = lock();
    state.check_current_if_any()?;
    if ptr.is_null() {
        return Ok(());
    }
    let kind = state.map.at(ptr as u64).map(|range| range.kind);
    valid(kind == Some(MemoryKind::Pinned))?;
    end_page_lock(state, ptr as u64)?.ok_or(CUresult::INVALID_VALUE)
}

pub unsafe fn cuMemAllocManaged(ptr: *mut CUdeviceptr, bytes: usize, flags: u32) -> DriverResult {
    let allocate = || {
        let attach = [flags::MEM_ATTACH_GLOBAL, flags::MEM_ATTACH_HOST];
        valid(bytes > 0 && attach.contains(&flags))?;
        allocate(bytes, MemoryKind::Managed, flags).map(|start| start.as_ptr() as u64)
    };
    // SAFETY: as the caller guarantees.
    unsafe { write_allocation(Function::cuMemAllocManaged, ptr, 0, allocate) }
}

pub unsafe fn cuMemHostRegister_v2(ptr: *mut c_void, bytes: usize, flags: u32) -> DriverResult {
    /// Portable, mapped, input/output memory, read-only.
    const KNOWN: u32 = 0xf;
    let start = Address::new(ptr.cast()).ok_or(CUresult::INVALID_VALUE)?;
    valid(bytes > 0 && flags & !KNOWN == 0)?;
    // Without the lock, since this is slow for large memory.
    let is_mapped = is_mapped(start, bytes);
    let mut state = lock();
    let context = state.current()?;
    let (base, size) = (ptr as u64, bytes as u64);
    if state.map.overlaps(base, size) {
        let registered = |range: &MemoryRange| range.kind == MemoryKind::Registered;
        return Err(match state.map.find(base).is_none_or(registered) {
            true => CUresult::HOST_MEMORY_ALREADY_REGISTERED,
            false => CUresult::INVALID_VALUE,
        });
    }
    valid(is_mapped)?;
    state.check_not_freed(base, size)?;
    let device = state.device_of(context);
    let block = MemoryBlock::borrowed(start, bytes);
    state.add_range(MemoryRange {
        context: Some(context),
        flags: flags | flags::MEMHOSTALLOC_DEVICEMAP,
        ..MemoryRange::new(base, size, MemoryKind::Registered, device, block)
    });
    Ok(())
}

/// Waits for all work of the context that registered the memory.
pub unsafe fn cuMemHostUnregister(ptr: *mut c_void) -> DriverResult {
    valid(!ptr.is_null())?;
    let state = lock();
    state.check_current_if_any()?;
    let base = ptr as u64;
    let kind = state.map.at(base).map(|range| range.kind);
    if kind != Some(MemoryKind::Registered) {
        return Err(match state.map.find(base) {
            Some(_) => CUresult::INVALID_VALUE,
            None => CUresult::HOST_MEMORY_NOT_REGISTERED,
        });
    }
    end_page_lock(state, base)?.ok_or(CUresult::HOST_MEMORY_NOT_REGISTERED)
}

/// The flags of the pinned or registered memory at an address.
fn pinned_flags(ptr: *mut c_void) -> DriverResult<u32> {
    let state = lock();
    state.current()?;
    let range = state.map.find(ptr as u64);
    let range = range.filter(|range| range.is_pinned());
    range
        .map(|range| range.flags)
        .ok_or(CUresult::INVALID_VALUE)
}

pub unsafe fn cuMemHostGetDevicePointer_v2(
    out: *mut CUdeviceptr,
    ptr: *mut c_void,
    flags: u32,
) -> DriverResult {
    valid(flags == 0)?;
    pinned_flags(ptr)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, ptr as u64) }
}

pub unsafe fn cuMemHostGetFlags(out: *mut u32, ptr: *mut c_void) -> DriverResult {
    let flags = pinned_flags(ptr)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, flags) }
}
