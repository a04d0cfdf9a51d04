//! Contexts, the stack of current contexts, and settings of a context.

use std::ops::RangeInclusive;

use cuguard_sys::{CUcontext, CUdevice, CUresult, limit};

use super::primary_context::are_context_flags;
use super::{check_context, write_optional, write_out};
use crate::handle::{self, Id, Kind};
use crate::result::{DriverResult, check, valid};
use crate::state::{Closing, DriverState, end_context, lock, synchronize_context};
use crate::thread_state;

const GREATEST_PRIORITY: i32 = -5;

pub(super) fn clamp_priority(priority: i32) -> i32 {
    priority.clamp(GREATEST_PRIORITY, 0)
}

/// The id of a context, live or not.
pub(super) fn find(state: &DriverState, context: CUcontext) -> DriverResult<Id> {
    valid(!context.is_null())?;
    state.live_id(Kind::Context, context.0, CUresult::INVALID_CONTEXT, |_| {
        true
    })
}

/// The id of a live context.
pub(super) fn find_live(state: &DriverState, context: CUcontext) -> DriverResult<Id> {
    check(!context.is_null(), CUresult::INVALID_CONTEXT)?;
    let id = find(state, context)?;
    state.check_alive(id).map(|()| id)
}

pub(super) fn as_handle(id: Id) -> CUcontext {
    CUcontext(handle::encode(Kind::Context, id))
}

/// Creates a context and makes it current.
///
/// # Safety
///
/// `out` is null or valid for a write.
pub(super) unsafe fn create(out: *mut CUcontext, flags: u32, dev: CUdevice) -> DriverResult {
    valid(!out.is_null() && are_context_flags(flags))?;
    let mut state = lock();
    let device = state.check_device(dev)?;
    let id = state.ids.next_context(device);
    state.open_context(id, device, flags)?;
    if !thread_state::push(id) {
        end_context(state, id, Closing::Destroyed);
        return Err(CUresult::OUT_OF_MEMORY);
    }
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, as_handle(id)) }
}

pub unsafe fn cuCtxCreate_v2(out: *mut CUcontext, flags: u32, dev: CUdevice) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { create(out, flags, dev) }
}

pub unsafe fn cuCtxDestroy_v2(context: CUcontext) -> DriverResult {
    let state = lock();
    let id = find(&state, context)?;
    check(!state.is_primary(id), CUresult::INVALID_CONTEXT)?;
    state.check_alive(id)?;
    drop(end_context(state, id, Closing::Destroyed));
    // It is popped only from the top of this thread's stack. Elsewhere it stays, and calls fail with
    // `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
    if thread_state::current() == Some(id) {
        thread_state::pop();
    }
    Ok(())
}

pub unsafe fn cuCtxPushCurrent_v2(context: CUcontext) -> DriverResult {
    let id = find(&lock(), context)?;
    check(thread_state::push(id), CUresult::OUT_OF_MEMORY)
}

pub unsafe fn cuCtxPopCurrent_v2(out: *mut CUcontext) -> DriverResult {
    let id = thread_state::pop().ok_or(CUresult::INVALID_CONTEXT)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_optional(out, as_handle(id)) };
    Ok(())
}

pub unsafe fn cuCtxSetCurrent(context: CUcontext) -> DriverResult {
    let id = match context {
        CUcontext::NULL => None,
        _ => Some(find(&lock(), context)?),
    };
    thread_state::set_current(id);
    Ok(())
}

pub unsafe fn cuCtxGetCurrent(out: *mut CUcontext) -> DriverResult {
    let handle = thread_state::current().map_or(CUcontext::NULL, as_handle);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, handle) }
}

/// Works for a destroyed context too.
pub unsafe fn cuCtxGetDevice(out: *mut CUdevice) -> DriverResult {
    let id = thread_state::current().ok_or(CUresult::INVALID_CONTEXT)?;
    let device = lock().device_of(id);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, device as i32) }
}

pub unsafe fn cuCtxGetFlags(out: *mut u32) -> DriverResult {
    /// Always set with unified addressing.
    const MAP_HOST: u32 = 8;
    let flags = lock().current_context()?.flags | MAP_HOST;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, flags) }
}

pub unsafe fn cuCtxSetFlags(flags: u32) -> DriverResult {
    let mut state = lock();
    let context = state.current_context()?;
    valid(are_context_flags(flags))?;
    context.flags = flags;
    Ok(())
}

pub unsafe fn cuCtxSynchronize() -> DriverResult {
    let mut state = lock();
    let id = state.current()?;
    state.check_context_not_capturing(id)?;
    drop(synchronize_context(state, id));
    Ok(())
}

/// The default of a limit, its range, and the step to which values are rounded up, as measured on an
/// H200. Fails for what is not a limit, and for limits that the device does not have.
fn limit_of(which: u32) -> DriverResult<(usize, RangeInclusive<usize>, usize)> {
    Ok(match which {
        // The maximum of a thread's local memory.
        limit::STACK_SIZE => (1024, 0..=512 << 10, 1),
        limit::PRINTF_FIFO_SIZE => (8_650_752, 512 << 10..=usize::MAX, 256),
        limit::MALLOC_HEAP_SIZE => (8 << 20, 4 << 20..=usize::MAX, 64 << 10),
        // The depth of device-side synchronization was removed from the API.
        3 | 9 => return Err(CUresult::UNSUPPORTED_LIMIT),
        4 => (2048, 0..=usize::MAX, 1),
        5 => (64, 0..=usize::MAX, 1),
        6 => (11_796_480, 0..=usize::MAX, 1),
        7 => (232_448, 0..=usize::MAX, 1),
        8 => (0, 0..=usize::MAX, 1),
        _ => return Err(CUresult::INVALID_VALUE),
    })
}

pub unsafe fn cuCtxSetLimit(which: u32, value: usize) -> DriverResult {
    let mut state = lock();
    let context = state.current_context()?;
    let (_, range, step) = limit_of(which)?;
    valid(value <= *range.end())?;
    // Measured: the size is fixed once a kernel has allocated.
    valid(which != limit::MALLOC_HEAP_SIZE || context.heap.is_none())?;
    let value = value.max(*range.start());
    let value = value.checked_next_multiple_of(step).unwrap_or(value);
    context.limits.insert(which, value);
    Ok(())
}

pub unsafe fn cuCtxGetLimit(out: *mut usize, which: u32) -> DriverResult {
    let mut state = lock();
    let context = state.current_context()?;
    let (default, ..) = limit_of(which)?;
    let limit = context.limits.get(&which).copied().unwrap_or(default);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, limit) }
}

pub unsafe fn cuCtxGetCacheConfig(out: *mut u32) -> DriverResult {
    let config = lock().current_context()?.cache_config;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, config) }
}

pub unsafe fn cuCtxSetCacheConfig(config: u32) -> DriverResult {
    let mut state = lock();
    let context = state.current_context()?;
    valid(config <= 3)?;
    context.cache_config = config;
    Ok(())
}

/// Always banks of four bytes: the setting is accepted and ignored.
pub unsafe fn cuCtxGetSharedMemConfig(out: *mut u32) -> DriverResult {
    lock().current()?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, 1) }
}

pub unsafe fn cuCtxSetSharedMemConfig(config: u32) -> DriverResult {
    lock().current()?;
    valid(config <= 2)
}

pub unsafe fn cuCtxGetApiVersion(context: CUcontext, out: *mut u32) -> DriverResult {
    /// The version of the API that creates contexts; unchanged for long.
    const API_VERSION: u32 = 3020;
    let state = lock();
    if context.is_null() {
        state.current()?;
    } else {
        check_context(&state, context)?;
    }
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, API_VERSION) }
}

pub unsafe fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> DriverResult {
    lock().current()?;
    // SAFETY: as the caller guarantees.
    unsafe {
        write_optional(least, 0);
        write_optional(greatest, GREATEST_PRIORITY);
    }
    Ok(())
}

pub unsafe fn cuCtxResetPersistingL2Cache() -> DriverResult {
    lock().current().map(drop)
}

/// As with a real driver when no profiler is attached.
pub unsafe fn cuProfilerStart() -> DriverResult {
    lock().current().map(drop)
}

pub unsafe fn cuProfilerStop() -> DriverResult {
    lock().current().map(drop)
}
