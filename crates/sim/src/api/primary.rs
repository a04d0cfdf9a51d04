//! Primary contexts: one a device, shared by all who retain it.

use cuguard_sys::{CUcontext, CUdevice, CUresult};

use super::{put, put_if_asked, valid};
use crate::context::{Closing, end_context};
use crate::handle::{self, Kind};
use crate::lock::lock;
use crate::machine::Answer;

/// The flags that a context takes: scheduling, mapped host memory, local memory, core dumps,
/// synchronous memory operations.
pub(super) const CONTEXT_FLAGS: u32 = 0xff;

pub(crate) unsafe fn cuDevicePrimaryCtxRetain(out: *mut CUcontext, dev: CUdevice) -> Answer {
    valid(!out.is_null())?;
    let mut machine = lock();
    let device = machine.device(dev)?;
    let id = machine.on(device).primary;
    match machine.contexts.get_mut(&id) {
        // Overtakes a release that still waits. A reset ends the context for everybody, also for
        // who comes while it waits.
        Some(context) if context.closing == Some(Closing::Released) => context.closing = None,
        Some(_) => {}
        None => {
            let flags = machine.on(device).primary_flags;
            machine.open_context(id, device, flags)?;
        }
    }
    machine.on_mut(device).primary_retains += 1;
    // SAFETY: as the caller promises.
    unsafe { put(out, CUcontext(handle::encode(Kind::Context, id))) }
}

pub(crate) unsafe fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) -> Answer {
    let mut machine = lock();
    let device = machine.device(dev)?;
    let own = machine.on_mut(device);
    if own.primary_retains == 0 {
        return Err(CUresult::INVALID_CONTEXT);
    }
    own.primary_retains -= 1;
    if own.primary_retains > 0 {
        return Ok(());
    }
    let id = own.primary;
    (machine, _) = end_context(machine, id, Closing::Released);
    let own = machine.on_mut(device);
    if own.primary_retains == 0 {
        own.primary_flags = 0;
    }
    Ok(())
}

/// Ends the primary context for all who hold it. Their retains stay counted, and its handle comes
/// back to life with the next one.
pub(crate) unsafe fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) -> Answer {
    let machine = lock();
    let device = machine.device(dev)?;
    let id = machine.on(device).primary;
    end_context(machine, id, Closing::Ended);
    Ok(())
}

pub(crate) unsafe fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: u32) -> Answer {
    let mut machine = lock();
    let device = machine.device(dev)?;
    valid(flags & !CONTEXT_FLAGS == 0)?;
    let id = machine.on(device).primary;
    machine.on_mut(device).primary_flags = flags;
    if let Some(context) = machine.contexts.get_mut(&id) {
        context.flags = flags;
    }
    Ok(())
}

pub(crate) unsafe fn cuDevicePrimaryCtxGetState(
    dev: CUdevice,
    flags: *mut u32,
    active: *mut i32,
) -> Answer {
    let machine = lock();
    let own = machine.on(machine.device(dev)?);
    let alive = machine.check_alive(own.primary).is_ok();
    // SAFETY: as the caller promises.
    unsafe {
        put_if_asked(flags, own.primary_flags);
        put_if_asked(active, i32::from(alive));
    }
    Ok(())
}
