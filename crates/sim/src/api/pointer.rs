//! Queries about addresses.

use std::ffi::c_void;

use cuguard_sys::{CUdeviceptr, CUresult, memory_type, pointer_attribute};

use super::write_out;
use crate::handle::{self, Kind};
use crate::memory::{MemoryKind, MemoryRange};
use crate::result::{DriverResult, valid};
use crate::state::{DriverState, lock};

/// The value of an attribute, in the width that the caller must provide.
enum Value {
    Word(u32),
    Long(u64),
}

impl Value {
    /// # Safety
    ///
    /// `out` is null or valid for a value of this width.
    unsafe fn write(self, out: *mut c_void) -> DriverResult {
        // SAFETY: as the caller guarantees.
        unsafe {
            match self {
                Value::Word(word) => write_out(out.cast(), word),
                Value::Long(long) => write_out(out.cast(), long),
            }
        }
    }
}

/// The base and size of a range; for a mapping, of the reservation that contains it.
fn enclosing_range(state: &DriverState, range: &MemoryRange) -> (u64, u64) {
    let reserved = state.reservations.range(..=range.base).next_back();
    match (range.kind, reserved) {
        (MemoryKind::Mapping { .. }, Some((base, size))) => (*base, *size),
        _ => (range.base, range.size),
    }
}

/// What `cuPointerGetAttributes` returns for an address that the driver does not know.
fn value_of_unknown(which: u32) -> DriverResult<Value> {
    match which {
        pointer_attribute::MEMORY_TYPE
        | pointer_attribute::IS_MANAGED
        | pointer_attribute::MAPPED => Ok(Value::Word(0)),
        pointer_attribute::DEVICE_ORDINAL => Ok(Value::Word(-2i32 as u32)),
        pointer_attribute::CONTEXT
        | pointer_attribute::DEVICE_POINTER
        | pointer_attribute::HOST_POINTER
        | pointer_attribute::BUFFER_ID
        | pointer_attribute::RANGE_START_ADDR
        | pointer_attribute::RANGE_SIZE => Ok(Value::Long(0)),
        // The driver has attributes up to 20.
        1..=20 => Err(CUresult::NOT_SUPPORTED),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn attribute(state: &DriverState, ptr: u64, which: u32) -> DriverResult<Value> {
    value_of_unknown(which)?;
    let range = state.map.find(ptr).ok_or(CUresult::INVALID_VALUE)?;
    Ok(match which {
        pointer_attribute::CONTEXT => {
            let handle = |id| handle::encode(Kind::Context, id);
            Value::Long(range.context.map_or(0, handle) as u64)
        }
        pointer_attribute::MEMORY_TYPE if range.is_pinned() => Value::Word(memory_type::HOST),
        pointer_attribute::MEMORY_TYPE => Value::Word(memory_type::DEVICE),
        pointer_attribute::DEVICE_POINTER if !range.is_inaccessible() => Value::Long(ptr),
        pointer_attribute::HOST_POINTER if range.on_host() => Value::Long(ptr),
        pointer_attribute::DEVICE_POINTER | pointer_attribute::HOST_POINTER => {
            return Err(CUresult::INVALID_VALUE);
        }
        pointer_attribute::BUFFER_ID => Value::Long(range.id),
        pointer_attribute::IS_MANAGED => Value::Word((range.kind == MemoryKind::Managed).into()),
        pointer_attribute::DEVICE_ORDINAL => Value::Word(range.device),
        pointer_attribute::RANGE_START_ADDR => Value::Long(enclosing_range(state, range).0),
        pointer_attribute::RANGE_SIZE => Value::Long(enclosing_range(state, range).1),
        _ => Value::Word(1),
    })
}

pub unsafe fn cuPointerGetAttribute(
    data: *mut c_void,
    which: u32,
    ptr: CUdeviceptr,
) -> DriverResult {
    valid(!data.is_null())?;
    let value = attribute(&lock(), ptr, which)?;
    // SAFETY: as the caller guarantees.
    unsafe { value.write(data) }
}

/// Unlike `cuPointerGetAttribute`, returns zeros for an address that the driver does not know.
pub unsafe fn cuPointerGetAttributes(
    count: u32,
    attributes: *mut u32,
    data: *mut *mut c_void,
    ptr: CUdeviceptr,
) -> DriverResult {
    valid(count > 0 && !attributes.is_null() && !data.is_null())?;
    let state = lock();
    state.current()?;
    for index in 0..count as usize {
        // SAFETY: the caller guarantees `count` elements. C callers need not align them.
        let which = unsafe { attributes.add(index).read_unaligned() };
        // SAFETY: as above.
        let out = unsafe { data.add(index).read_unaligned() };
        let value = match attribute(&state, ptr, which) {
            Err(CUresult::NOT_SUPPORTED) => return Err(CUresult::NOT_SUPPORTED),
            Err(code) if state.map.find(ptr).is_some() && which > 20 => return Err(code),
            Err(_) => value_of_unknown(which).unwrap_or(Value::Long(0)),
            Ok(value) => value,
        };
        // SAFETY: the caller guarantees that the element has room for its attribute.
        unsafe { value.write(out) }?;
    }
    Ok(())
}

/// The only settable attribute, `SYNC_MEMOPS`, makes synchronous copies wait where a real driver may
/// return early. Here they always wait, so it has no effect.
pub unsafe fn cuPointerSetAttribute(
    value: *const c_void,
    which: u32,
    ptr: CUdeviceptr,
) -> DriverResult {
    valid(!value.is_null() && which == pointer_attribute::SYNC_MEMOPS)?;
    let kind = lock().map.find(ptr).map(|range| range.kind);
    valid(matches!(
        kind,
        Some(MemoryKind::Device | MemoryKind::Pool(_))
    ))
}
