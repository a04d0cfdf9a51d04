//! Contexts, the stack of current ones, and what is set per context.

use cuguard_sys::{CUcontext, CUdevice, CUresult, limit};

use super::primary::CONTEXT_FLAGS;
use super::{check, put, put_if_asked, valid};
use crate::context::{Closing, end_context};
use crate::current;
use crate::handle::{self, Id, Kind};
use crate::lock::lock;
use crate::machine::{Answer, Machine};
use crate::wait::synchronize_context;

const GREATEST_PRIORITY: i32 = -5;

/// Pulls a wished priority into what there is.
pub(super) fn clamp_priority(priority: i32) -> i32 {
    priority.clamp(GREATEST_PRIORITY, 0)
}

/// The context behind a handle, alive or not.
fn known(machine: &Machine, ctx: CUcontext) -> Option<Id> {
    handle::decode(Kind::Context, ctx.0).filter(|id| machine.numbers.was_given(Kind::Context, *id))
}

fn as_handle(id: Id) -> CUcontext {
    CUcontext(handle::encode(Kind::Context, id))
}

/// The version of the interface by which a context was made; it has been this one for long.
const API_VERSION: u32 = 3020;

pub(crate) unsafe fn cuCtxCreate_v2(out: *mut CUcontext, flags: u32, dev: CUdevice) -> Answer {
    valid(!out.is_null() && flags & !CONTEXT_FLAGS == 0)?;
    let mut machine = lock();
    let device = machine.device(dev)?;
    let id = machine.numbers.next_context(device);
    machine.open_context(id, device, flags)?;
    if !current::push(id) {
        end_context(machine, id, Closing::Ended);
        return Err(CUresult::OUT_OF_MEMORY);
    }
    // SAFETY: as the caller promises.
    unsafe { put(out, as_handle(id)) }
}

pub(crate) unsafe fn cuCtxDestroy_v2(ctx: CUcontext) -> Answer {
    valid(!ctx.is_null())?;
    let machine = lock();
    let Some(id) = known(&machine, ctx) else {
        return Err(machine.dead_handle(Kind::Context, ctx.0, CUresult::INVALID_CONTEXT));
    };
    check(!machine.is_primary(id), CUresult::INVALID_CONTEXT)?;
    machine.check_alive(id)?;
    drop(end_context(machine, id, Closing::Ended));
    // It leaves the top of this thread's stack; where it lies deeper, or on another thread's
    // stack, it stays and answers that it is destroyed.
    if current::top() == Some(id) {
        current::pop();
    }
    Ok(())
}

pub(crate) unsafe fn cuCtxPushCurrent_v2(ctx: CUcontext) -> Answer {
    valid(!ctx.is_null())?;
    let machine = lock();
    let Some(id) = known(&machine, ctx) else {
        return Err(machine.dead_handle(Kind::Context, ctx.0, CUresult::INVALID_CONTEXT));
    };
    check(current::push(id), CUresult::OUT_OF_MEMORY)
}

pub(crate) unsafe fn cuCtxPopCurrent_v2(out: *mut CUcontext) -> Answer {
    let id = current::pop().ok_or(CUresult::INVALID_CONTEXT)?;
    // SAFETY: as the caller promises.
    unsafe { put_if_asked(out, as_handle(id)) };
    Ok(())
}

pub(crate) unsafe fn cuCtxSetCurrent(ctx: CUcontext) -> Answer {
    if ctx.is_null() {
        current::replace(None);
        return Ok(());
    }
    let machine = lock();
    let Some(id) = known(&machine, ctx) else {
        return Err(machine.dead_handle(Kind::Context, ctx.0, CUresult::INVALID_CONTEXT));
    };
    current::replace(Some(id));
    Ok(())
}

pub(crate) unsafe fn cuCtxGetCurrent(out: *mut CUcontext) -> Answer {
    let handle = current::top().map_or(CUcontext::NULL, as_handle);
    // SAFETY: as the caller promises.
    unsafe { put(out, handle) }
}

/// Answers for a destroyed context too.
pub(crate) unsafe fn cuCtxGetDevice(device: *mut CUdevice) -> Answer {
    let id = current::top().ok_or(CUresult::INVALID_CONTEXT)?;
    let of = lock().device_of(id);
    // SAFETY: as the caller promises.
    unsafe { put(device, of as i32) }
}

pub(crate) unsafe fn cuCtxGetFlags(flags: *mut u32) -> Answer {
    /// Always set on a system with unified addressing.
    const MAP_HOST: u32 = 8;
    let machine = lock();
    let of = machine.contexts[&machine.current()?].flags | MAP_HOST;
    // SAFETY: as the caller promises.
    unsafe { put(flags, of) }
}

pub(crate) unsafe fn cuCtxSynchronize() -> Answer {
    let machine = lock();
    let id = machine.current()?;
    drop(synchronize_context(machine, id));
    Ok(())
}

/// A limit, as measured on an H200.
struct Limit {
    /// What it is where it was not set.
    default: usize,
    /// The least and the most it can be, and what it is rounded up to.
    least: usize,
    most: usize,
    step: usize,
}

/// `Err` for what is no limit, or none that the device has.
fn limit_of(which: u32) -> Result<Limit, CUresult> {
    let limit = |default, least, step| Limit {
        default,
        least,
        most: usize::MAX,
        step,
    };
    match which {
        // Local memory of a thread has an end.
        limit::STACK_SIZE => Ok(Limit {
            most: 512 << 10,
            ..limit(1024, 0, 1)
        }),
        limit::PRINTF_FIFO_SIZE => Ok(limit(8_650_752, 512 << 10, 256)),
        limit::MALLOC_HEAP_SIZE => Ok(limit(8 << 20, 4 << 20, 64 << 10)),
        // The depth of device-side synchronisation left the interface.
        3 => Err(CUresult::UNSUPPORTED_LIMIT),
        4 => Ok(limit(2048, 0, 1)),
        5 => Ok(limit(64, 0, 1)),
        6 => Ok(limit(11_796_480, 0, 1)),
        7 => Ok(limit(232_448, 0, 1)),
        8 => Ok(limit(0, 0, 1)),
        9 => Err(CUresult::UNSUPPORTED_LIMIT),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuCtxSetLimit(which: u32, value: usize) -> Answer {
    let mut machine = lock();
    let id = machine.current()?;
    let limit = limit_of(which)?;
    valid(value <= limit.most)?;
    let value = value.max(limit.least);
    let value = value.checked_next_multiple_of(limit.step).unwrap_or(value);
    if let Some(context) = machine.contexts.get_mut(&id) {
        context.limits.insert(which, value);
    }
    Ok(())
}

pub(crate) unsafe fn cuCtxGetLimit(value: *mut usize, which: u32) -> Answer {
    let machine = lock();
    let context = &machine.contexts[&machine.current()?];
    let default = limit_of(which)?.default;
    let limit = context.limits.get(&which).copied().unwrap_or(default);
    // SAFETY: as the caller promises.
    unsafe { put(value, limit) }
}

pub(crate) unsafe fn cuCtxGetCacheConfig(config: *mut u32) -> Answer {
    let machine = lock();
    let set = machine.contexts[&machine.current()?].cache_config;
    // SAFETY: as the caller promises.
    unsafe { put(config, set) }
}

pub(crate) unsafe fn cuCtxSetCacheConfig(config: u32) -> Answer {
    let mut machine = lock();
    let id = machine.current()?;
    valid(config <= 3)?;
    if let Some(context) = machine.contexts.get_mut(&id) {
        context.cache_config = config;
    }
    Ok(())
}

/// Banks of four bytes, always: a wish for others is taken and has no effect.
pub(crate) unsafe fn cuCtxGetSharedMemConfig(config: *mut u32) -> Answer {
    lock().current()?;
    // SAFETY: as the caller promises.
    unsafe { put(config, 1) }
}

pub(crate) unsafe fn cuCtxSetSharedMemConfig(config: u32) -> Answer {
    lock().current()?;
    valid(config <= 2)
}

pub(crate) unsafe fn cuCtxGetApiVersion(ctx: CUcontext, version: *mut u32) -> Answer {
    let machine = lock();
    if ctx.is_null() {
        machine.current()?;
    } else {
        let alive = known(&machine, ctx).filter(|id| machine.check_alive(*id).is_ok());
        check(alive.is_some(), CUresult::INVALID_CONTEXT)?;
    }
    // SAFETY: as the caller promises.
    unsafe { put(version, API_VERSION) }
}

pub(crate) unsafe fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> Answer {
    lock().current()?;
    // SAFETY: as the caller promises.
    unsafe {
        put_if_asked(least, 0);
        put_if_asked(greatest, GREATEST_PRIORITY);
    }
    Ok(())
}

pub(crate) unsafe fn cuCtxResetPersistingL2Cache() -> Answer {
    lock().current()?;
    Ok(())
}

/// Profilers see nothing here, as with a real driver when none is attached.
pub(crate) unsafe fn cuProfilerStart() -> Answer {
    lock().current()?;
    Ok(())
}

pub(crate) unsafe fn cuProfilerStop() -> Answer {
    lock().current()?;
    Ok(())
}
