//! Identity and attributes of streams.

use cuguard_sys::{
    CUcontext, CUdevice, CUgreenCtx, CUresult, CUstream, CUstreamAttrValue, launch_attribute_id,
};

use super::context::{as_handle, clamp_priority};
use super::{read, write_optional, write_out};
use crate::result::{DriverResult, valid};
use crate::state::lock;

/// Unique over the life of the process.
pub unsafe fn cuStreamGetId(stream: CUstream, out: *mut u64) -> DriverResult {
    valid(!out.is_null())?;
    let id = lock().stream(stream)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, id) }
}

pub unsafe fn cuStreamGetDevice(stream: CUstream, out: *mut CUdevice) -> DriverResult {
    valid(!out.is_null())?;
    let mut state = lock();
    let id = state.stream(stream)?;
    let device = state.device_of(state.streams[&id].context);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, device as i32) }
}

/// No stream belongs to a green context: there are none.
pub unsafe fn cuStreamGetCtx_v2(
    stream: CUstream,
    out: *mut CUcontext,
    green: *mut CUgreenCtx,
) -> DriverResult {
    valid(!out.is_null())?;
    let mut state = lock();
    let id = state.stream(stream)?;
    // SAFETY: as the caller guarantees.
    unsafe {
        write_optional(green, CUgreenCtx::NULL);
        write_out(out, as_handle(state.streams[&id].context))
    }
}

pub unsafe fn cuStreamGetAttribute(
    stream: CUstream,
    which: u32,
    out: *mut CUstreamAttrValue,
) -> DriverResult {
    valid(!out.is_null())?;
    let mut state = lock();
    let id = state.stream(stream)?;
    let own = &state.streams[&id];
    let value = match which {
        launch_attribute_id::PRIORITY => {
            let mut value = CUstreamAttrValue { pad: [0; 64] };
            value.priority = own.priority;
            Some(value)
        }
        _ => own.attributes.get(which),
    };
    let value = value.ok_or(CUresult::INVALID_VALUE)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, value) }
}

/// Attributes are hints for kernels, which are not simulated, and for how host threads wait: they
/// are only stored.
pub unsafe fn cuStreamSetAttribute(
    stream: CUstream,
    which: u32,
    value: *const CUstreamAttrValue,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let value = unsafe { read(value) }?;
    let mut state = lock();
    let id = state.stream(stream)?;
    let Some(own) = state.streams.get_mut(&id) else {
        return Ok(());
    };
    if which == launch_attribute_id::PRIORITY {
        // SAFETY: the caller guarantees a value for this attribute.
        own.priority = clamp_priority(unsafe { value.priority });
        return Ok(());
    }
    // SAFETY: the caller guarantees a value for this attribute.
    valid(unsafe { own.attributes.set(which, &value) })
}

pub unsafe fn cuStreamCopyAttributes(to: CUstream, from: CUstream) -> DriverResult {
    let mut state = lock();
    let (to, from) = (state.stream(to)?, state.stream(from)?);
    let (attributes, priority) = {
        let from = &state.streams[&from];
        (from.attributes, from.priority)
    };
    if let Some(to) = state.streams.get_mut(&to) {
        (to.attributes, to.priority) = (attributes, priority);
    }
    Ok(())
}
