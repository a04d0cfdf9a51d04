//! Later ways to create a context, the usage count, and queries that name a context.

use cuguard_sys::{
    CUcontext, CUctxCigParam, CUctxCreateParams, CUdevice, CUexecAffinityParam,
    CUexecAffinityParam_param, CUexecAffinitySmCount, CUresult, device_attribute,
};

use super::context::{as_handle, create, find};
use super::device::attribute;
use super::{read, write_out};
use crate::handle::Id;
use crate::result::{DriverResult, check, valid};
use crate::state::{Closing, DriverState, end_context, lock, synchronize_context};
use crate::thread_state;

/// The only kind of execution affinity: a number of multiprocessors.
const SM_COUNT: u32 = 0;
/// Kinds of graphics clients: a command queue of Direct3D 12, and an opaque blob.
const D3D12_COMMAND_QUEUE: u32 = 1;
const NV_BLOB: u32 = 2;

/// Fails for any execution affinity, which needs the Multi-Process Service.
fn check_affinity(params: *const CUexecAffinityParam, count: i32) -> DriverResult {
    if count <= 0 {
        return Ok(());
    }
    valid(!params.is_null())?;
    Err(CUresult::UNSUPPORTED_EXEC_AFFINITY)
}

/// Fails for any graphics client: there are none.
fn check_graphics(params: CUctxCigParam) -> DriverResult {
    let known = match params.sharedDataType {
        D3D12_COMMAND_QUEUE => true,
        NV_BLOB => !params.sharedData.is_null(),
        _ => false,
    };
    valid(known)?;
    Err(CUresult::NOT_SUPPORTED)
}

pub unsafe fn cuCtxCreate_v3(
    out: *mut CUcontext,
    params: *mut CUexecAffinityParam,
    count: i32,
    flags: u32,
    dev: CUdevice,
) -> DriverResult {
    valid(!out.is_null())?;
    lock().check_device(dev)?;
    check_affinity(params, count)?;
    // SAFETY: as the caller guarantees.
    unsafe { create(out, flags, dev) }
}

pub unsafe fn cuCtxCreate_v4(
    out: *mut CUcontext,
    params: *mut CUctxCreateParams,
    flags: u32,
    dev: CUdevice,
) -> DriverResult {
    valid(!out.is_null())?;
    lock().check_device(dev)?;
    if !params.is_null() {
        // SAFETY: as the caller guarantees.
        let params = unsafe { read(params) }?;
        if !params.cigParams.is_null() {
            // SAFETY: as the caller guarantees.
            check_graphics(unsafe { read(params.cigParams) }?)?;
        }
        check_affinity(params.execAffinityParams, params.numExecAffinityParams)?;
    }
    // SAFETY: as the caller guarantees.
    unsafe { create(out, flags, dev) }
}

pub unsafe fn cuCtxAttach(out: *mut CUcontext, flags: u32) -> DriverResult {
    valid(!out.is_null() && flags == 0)?;
    let mut state = lock();
    let id = state.current()?;
    state.current_context()?.attached += 1;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, as_handle(id)) }
}

/// Destroys the context, which must be current, when it was detached as often as it was created and
/// attached. Does nothing to a primary context, which is released.
pub unsafe fn cuCtxDetach(context: CUcontext) -> DriverResult {
    let mut state = lock();
    let id = state.current()?;
    check(as_handle(id) == context, CUresult::INVALID_CONTEXT)?;
    let own = state.current_context()?;
    if own.attached > 0 {
        own.attached -= 1;
        return Ok(());
    }
    if state.is_primary(id) {
        return Ok(());
    }
    drop(end_context(state, id, Closing::Destroyed));
    thread_state::pop();
    Ok(())
}

/// The id of a context, live or not; null is the current one.
fn find_or_current(state: &DriverState, context: CUcontext) -> DriverResult<Id> {
    match context {
        CUcontext::NULL => thread_state::current().ok_or(CUresult::INVALID_CONTEXT),
        _ => find(state, context),
    }
}

pub unsafe fn cuCtxGetId(context: CUcontext, out: *mut u64) -> DriverResult {
    valid(!out.is_null())?;
    let state = lock();
    let id = find_or_current(&state, context)?;
    state.check_alive(id)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, state.contexts[&id].number) }
}

/// Works for a destroyed context too.
pub unsafe fn cuCtxGetDevice_v2(out: *mut CUdevice, context: CUcontext) -> DriverResult {
    valid(!out.is_null())?;
    let state = lock();
    let device = state.device_of(find_or_current(&state, context)?);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, device as i32) }
}

pub unsafe fn cuCtxSynchronize_v2(context: CUcontext) -> DriverResult {
    let mut state = lock();
    let id = find_or_current(&state, context)?;
    state.check_alive(id)?;
    state.check_context_not_capturing(id)?;
    drop(synchronize_context(state, id));
    Ok(())
}

pub unsafe fn cuCtxGetExecAffinity(out: *mut CUexecAffinityParam, kind: u32) -> DriverResult {
    valid(!out.is_null())?;
    let state = lock();
    let device = state.device_of(state.current()?);
    check(kind == SM_COUNT, CUresult::UNSUPPORTED_EXEC_AFFINITY)?;
    let count = attribute(&state, device_attribute::MULTIPROCESSOR_COUNT, device);
    let sm_count = CUexecAffinitySmCount {
        val: count.unwrap_or(0).unsigned_abs(),
    };
    let affinity = CUexecAffinityParam {
        type_: kind,
        param: CUexecAffinityParam_param { smCount: sm_count },
    };
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, affinity) }
}
