//! Primary contexts: one per device, with a retain count.

use cuguard_sys::{CUcontext, CUdevice, CUresult, ctx_flags};

use super::{write_optional, write_out};
use crate::handle::{self, Kind};
use crate::result::{DriverResult, valid};
use crate::state::{Closing, end_context, lock};

/// The flags of contexts: scheduling, mapped host memory, local memory, core dumps,
/// synchronous memory operations.
const CONTEXT_FLAGS: u32 = 0xff;
/// Of these, how a thread that waits is scheduled: one of 0, 1, 2 and 4.
const SCHEDULING: u32 = 7;

/// Whether a context accepts these flags.
pub(super) fn are_context_flags(flags: u32) -> bool {
    flags & !CONTEXT_FLAGS == 0 && (flags & SCHEDULING).count_ones() <= 1
}

pub unsafe fn cuDevicePrimaryCtxRetain(out: *mut CUcontext, dev: CUdevice) -> DriverResult {
    valid(!out.is_null())?;
    let mut state = lock();
    let device = state.check_device(dev)?;
    let id = state.device(device).primary;
    match state.contexts.get_mut(&id) {
        // Cancels a release that still waits. A reset is not cancelled.
        Some(context) if context.closing == Some(Closing::Released) => context.closing = None,
        Some(_) => {}
        None => {
            let flags = state.device(device).primary_flags;
            state.open_context(id, device, flags)?;
        }
    }
    state.device_mut(device).primary_retains += 1;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUcontext(handle::encode(Kind::Context, id))) }
}

pub unsafe fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) -> DriverResult {
    let mut state = lock();
    let device = state.check_device(dev)?;
    let own = state.device_mut(device);
    let retains = own.primary_retains.checked_sub(1);
    own.primary_retains = retains.ok_or(CUresult::INVALID_CONTEXT)?;
    if own.primary_retains > 0 {
        return Ok(());
    }
    let id = own.primary;
    (state, _) = end_context(state, id, Closing::Released);
    let own = state.device_mut(device);
    if own.primary_retains == 0 {
        own.primary_flags = 0;
    }
    Ok(())
}

/// Destroys the primary context for all its users. The retain count stays, and the next retain
/// activates the same handle again.
pub unsafe fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) -> DriverResult {
    let state = lock();
    let id = state.device(state.check_device(dev)?).primary;
    end_context(state, id, Closing::Destroyed);
    Ok(())
}

pub unsafe fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: u32) -> DriverResult {
    let mut state = lock();
    let device = state.check_device(dev)?;
    // Of an H200: the driver maps host memory in any case, and does not accept the flag here.
    valid(are_context_flags(flags) && flags & ctx_flags::MAP_HOST == 0)?;
    let own = state.device_mut(device);
    own.primary_flags = flags;
    let id = own.primary;
    if let Some(context) = state.contexts.get_mut(&id) {
        context.flags = flags;
    }
    Ok(())
}

pub unsafe fn cuDevicePrimaryCtxGetState(
    dev: CUdevice,
    flags: *mut u32,
    active: *mut i32,
) -> DriverResult {
    let state = lock();
    let own = state.device(state.check_device(dev)?);
    let live = state.check_alive(own.primary).is_ok();
    // SAFETY: as the caller guarantees.
    unsafe {
        write_optional(flags, own.primary_flags);
        write_optional(active, i32::from(live));
    }
    Ok(())
}
