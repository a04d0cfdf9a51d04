//! Device memory: `cuMemAlloc`, `cuMemFree` and what is asked about them.

use cuguard_sys::{CUdeviceptr, CUresult};

use super::{put, put_if_asked, valid};
use crate::address_map::{Origin, Range};
use crate::entry::{Function, may_fail};
use crate::fault;
use crate::lock::{Guard, lock};
use crate::machine::Answer;
use crate::memory_block::MemoryBlock;
use crate::wait::{synchronize_context, wait_until_unused};

/// Rows of `cuMemAllocPitch` begin at multiples of this.
const PITCH: usize = 512;

pub(crate) unsafe fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Answer {
    let machine = lock();
    let device = machine.device_of(machine.current()?);
    let memory = &machine.on(device).memory;
    // Managed memory lies on the device once that has used it, as far as there is room: it yields
    // to everything else.
    let free_now = memory
        .free()
        .saturating_sub(machine.map.resident_managed(device));
    // SAFETY: as the caller promises.
    unsafe {
        put_if_asked(free, free_now as usize);
        put_if_asked(total, memory.total as usize);
    }
    Ok(())
}

fn allocate(bytes: usize) -> Result<CUdeviceptr, CUresult> {
    let mut machine = lock();
    let context = machine.usable_current()?;
    valid(bytes > 0)?;
    fault::on_allocation(bytes as u64)?;
    // First what the host may not have, so that nothing needs to be taken back.
    let block = MemoryBlock::fresh(bytes).ok_or(CUresult::OUT_OF_MEMORY)?;
    let base = machine.take_device_memory(context, bytes as u64)?;
    let device = machine.device_of(context);
    machine.add_range(Range {
        base,
        size: bytes as u64,
        origin: Origin::Device,
        context: Some(context),
        device,
        flags: 0,
        id: 0,
        born: None,
        block,
    });
    Ok(base)
}

pub(crate) unsafe fn cuMemAlloc_v2(ptr: *mut CUdeviceptr, bytes: usize) -> Answer {
    // SAFETY: as the caller promises. A failed allocation leaves null behind.
    unsafe { put_if_asked(ptr, 0) };
    may_fail(Function::cuMemAlloc_v2)?;
    valid(!ptr.is_null())?;
    let base = allocate(bytes)?;
    // SAFETY: as the caller promises.
    unsafe { put(ptr, base) }
}

pub(crate) unsafe fn cuMemAllocPitch_v2(
    ptr: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> Answer {
    // SAFETY: as the caller promises. A failed allocation leaves null behind.
    unsafe { put_if_asked(ptr, 0) };
    may_fail(Function::cuMemAllocPitch_v2)?;
    valid(!ptr.is_null() && !pitch.is_null() && width > 0 && height > 0)?;
    valid(matches!(element, 4 | 8 | 16))?;
    let row = width
        .checked_next_multiple_of(PITCH)
        .ok_or(CUresult::OUT_OF_MEMORY)?;
    let bytes = row.checked_mul(height).ok_or(CUresult::OUT_OF_MEMORY)?;
    let base = allocate(bytes)?;
    // SAFETY: as the caller promises.
    unsafe {
        put(ptr, base)?;
        put(pitch, row)
    }
}

/// Takes the range that begins at `base` out of the map, after all work of its context is done.
/// Host memory is also waited for until no work of other contexts uses it: the program may do with
/// it what it likes then. `None` if there is none, or somebody else was faster.
pub(super) fn remove_when_idle(mut machine: Guard, base: u64) -> (Guard, Option<Range>) {
    let Some(found) = machine.map.at(base) else {
        return (machine, None);
    };
    let id = found.id;
    if let Some(context) = found.context {
        machine = synchronize_context(machine, context);
    }
    let same = machine.map.at(base).is_some_and(|range| range.id == id);
    let range = if same { machine.map.remove(base) } else { None };
    if let Some(range) = range.as_ref().filter(|range| range.on_host()) {
        machine.announce_release(range);
        machine = wait_until_unused(machine, &range.block);
    }
    (machine, range)
}

/// Works on every thread, whatever context is current there. Waits for all work of the memory's
/// context, except for stream-ordered memory, which is freed at once.
pub(crate) unsafe fn cuMemFree_v2(ptr: CUdeviceptr) -> Answer {
    let mut machine = lock();
    machine.check_current_if_any()?;
    if ptr == 0 {
        return Ok(());
    }
    let found = machine.map.at(ptr).ok_or(CUresult::INVALID_VALUE)?;
    let range = match found.origin {
        Origin::Pool(_) => {
            machine.check_unused(found, "freed at once")?;
            machine.map.remove(ptr)
        }
        Origin::Device | Origin::Managed => {
            let removed;
            (machine, removed) = remove_when_idle(machine, ptr);
            removed
        }
        _ => None,
    };
    machine.release_range(range.ok_or(CUresult::INVALID_VALUE)?);
    Ok(())
}

pub(crate) unsafe fn cuMemGetAddressRange_v2(
    base: *mut CUdeviceptr,
    size: *mut usize,
    ptr: CUdeviceptr,
) -> Answer {
    let machine = lock();
    machine.current()?;
    let range = machine.map.find(ptr).ok_or(CUresult::NOT_FOUND)?;
    if let Origin::Mapping {
        accessible: false, ..
    } = range.origin
    {
        return Err(CUresult::NOT_FOUND);
    }
    // SAFETY: as the caller promises.
    unsafe {
        put_if_asked(base, range.base);
        put_if_asked(size, range.size as usize);
    }
    Ok(())
}
