//! Device memory: `cuMemAlloc`, `cuMemFree` and queries.

use cuguard_sys::{CUdeviceptr, CUresult};

use super::{allocate_block, write_allocation, write_optional, write_out};
use crate::functions::Function;
use crate::memory::{MemoryKind, MemoryRange};
use crate::result::{DriverResult, check, valid};
use crate::state::{lock, remove_when_idle};

/// The row alignment of `cuMemAllocPitch`.
const PITCH_ALIGN: usize = 512;

pub unsafe fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> DriverResult {
    let state = lock();
    let device = state.device_of(state.current()?);
    let memory = &state.device(device).memory;
    // Managed memory that the device has used is resident there while there is room: it is evicted
    // for anything else.
    let managed = state.map.resident_managed(device);
    // SAFETY: as the caller guarantees.
    unsafe {
        write_optional(free, memory.free().saturating_sub(managed) as usize);
        write_optional(total, memory.total as usize);
    }
    Ok(())
}

fn allocate(bytes: usize) -> DriverResult<CUdeviceptr> {
    let mut state = lock();
    let context = state.usable_current()?;
    valid(bytes > 0)?;
    let size = bytes as u64;
    let block = allocate_block(bytes)?;
    let base = state.allocate_device_memory(context, size)?;
    let device = state.device_of(context);
    state.add_range(MemoryRange {
        context: Some(context),
        ..MemoryRange::new(base, size, MemoryKind::Device, device, block)
    });
    Ok(base)
}

pub unsafe fn cuMemAlloc_v2(ptr: *mut CUdeviceptr, bytes: usize) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { write_allocation(Function::cuMemAlloc_v2, ptr, 0, || allocate(bytes)) }
}

pub unsafe fn cuMemAllocPitch_v2(
    ptr: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> DriverResult {
    let allocate = || {
        valid(!pitch.is_null() && width > 0 && height > 0)?;
        valid(matches!(element, 4 | 8 | 16))?;
        let row = width.checked_next_multiple_of(PITCH_ALIGN);
        let row = row.ok_or(CUresult::INVALID_VALUE)?;
        let bytes = row.checked_mul(height).ok_or(CUresult::INVALID_VALUE)?;
        let base = allocate(bytes)?;
        // SAFETY: as the caller guarantees.
        unsafe { write_out(pitch, row) }?;
        Ok(base)
    };
    // SAFETY: as the caller guarantees.
    unsafe { write_allocation(Function::cuMemAllocPitch_v2, ptr, 0, allocate) }
}

/// Works on every thread, with any current context. Waits for all work of the memory's context, but
/// frees stream-ordered memory at once.
pub unsafe fn cuMemFree_v2(ptr: CUdeviceptr) -> DriverResult {
    let mut state = lock();
    state.check_current_if_any()?;
    if ptr == 0 {
        return Ok(());
    }
    let found = state.map.at(ptr).ok_or(CUresult::INVALID_VALUE)?;
    if let Some(stream) = state.still_allocates(found) {
        return state.free_on_stream(ptr, stream);
    }
    let range = match found.kind {
        MemoryKind::Pool(_) => {
            state.check_unused(found, "freed at once")?;
            state.map.remove(ptr)
        }
        MemoryKind::Graph => {
            state.check_unused(found, "freed at once")?;
            let (device, bytes) = (found.device, found.size);
            state.uncount_graph_memory(device, bytes);
            state.map.remove(ptr)
        }
        MemoryKind::Device | MemoryKind::Managed => {
            let removed;
            (state, removed) = remove_when_idle(state, ptr);
            removed
        }
        _ => None,
    };
    state.release_range(range.ok_or(CUresult::INVALID_VALUE)?);
    Ok(())
}

pub unsafe fn cuMemGetAddressRange_v2(
    base: *mut CUdeviceptr,
    size: *mut usize,
    ptr: CUdeviceptr,
) -> DriverResult {
    let state = lock();
    let device = state.device_of(state.current()?);
    let range = state.map.find(ptr).ok_or(CUresult::NOT_FOUND)?;
    check(state.is_accessible(range, device), CUresult::NOT_FOUND)?;
    // SAFETY: as the caller guarantees.
    unsafe {
        write_optional(base, range.base);
        write_optional(size, range.size as usize);
    }
    Ok(())
}
