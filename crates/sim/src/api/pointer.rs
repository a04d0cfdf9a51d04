//! What the driver knows of an address.

use std::ffi::c_void;

use cuguard_sys::{CUcontext, CUdeviceptr, CUresult, memory_type, pointer_attribute};

use super::{put, valid};
use crate::address_map::{Origin, Range};
use crate::handle::{self, Kind};
use crate::lock::lock;
use crate::machine::{Answer, Machine};

/// What an attribute is, with the width that the caller must have room for.
enum Value {
    Word(u32),
    Long(u64),
}

impl Value {
    /// # Safety
    ///
    /// `data` is null or valid for a value of this width.
    unsafe fn put(self, data: *mut c_void) -> Answer {
        // SAFETY: as the caller promises.
        unsafe {
            match self {
                Value::Word(word) => put(data.cast(), word),
                Value::Long(long) => put(data.cast(), long),
            }
        }
    }
}

/// The whole of what a range belongs to: for a mapping, the reservation that it lies in.
fn extent(machine: &Machine, range: &Range) -> (u64, u64) {
    match range.origin {
        Origin::Mapping { .. } => machine
            .reservations
            .range(..=range.base)
            .next_back()
            .map_or((range.base, range.size), |(base, size)| (*base, *size)),
        _ => (range.base, range.size),
    }
}

fn attribute(machine: &Machine, ptr: u64, which: u32) -> Result<Value, CUresult> {
    let known = matches!(
        which,
        pointer_attribute::CONTEXT
            | pointer_attribute::MEMORY_TYPE
            | pointer_attribute::DEVICE_POINTER
            | pointer_attribute::HOST_POINTER
            | pointer_attribute::BUFFER_ID
            | pointer_attribute::IS_MANAGED
            | pointer_attribute::DEVICE_ORDINAL
            | pointer_attribute::RANGE_START_ADDR
            | pointer_attribute::RANGE_SIZE
            | pointer_attribute::MAPPED
    );
    if !known {
        // The driver has attributes up to 20; those that are not above are not simulated.
        let real = (1..=20).contains(&which);
        return Err(if real {
            CUresult::NOT_SUPPORTED
        } else {
            CUresult::INVALID_VALUE
        });
    }
    let range = machine.map.find(ptr).ok_or(CUresult::INVALID_VALUE)?;
    let pageless = matches!(range.origin, Origin::Pinned | Origin::Registered);
    Ok(match which {
        pointer_attribute::CONTEXT => {
            let handle = range
                .context
                .map_or(0, |id| handle::encode(Kind::Context, id));
            Value::Long(CUcontext(handle).0 as u64)
        }
        pointer_attribute::MEMORY_TYPE if pageless => Value::Word(memory_type::HOST),
        pointer_attribute::MEMORY_TYPE => Value::Word(memory_type::DEVICE),
        pointer_attribute::DEVICE_POINTER => match range.origin {
            Origin::Mapping {
                accessible: false, ..
            } => return Err(CUresult::INVALID_VALUE),
            _ => Value::Long(ptr),
        },
        pointer_attribute::HOST_POINTER if range.on_host() => Value::Long(ptr),
        pointer_attribute::HOST_POINTER => return Err(CUresult::INVALID_VALUE),
        pointer_attribute::BUFFER_ID => Value::Long(range.id),
        pointer_attribute::IS_MANAGED => Value::Word(u32::from(range.origin == Origin::Managed)),
        pointer_attribute::DEVICE_ORDINAL => Value::Word(range.device),
        pointer_attribute::RANGE_START_ADDR => Value::Long(extent(machine, range).0),
        pointer_attribute::RANGE_SIZE => Value::Long(extent(machine, range).1),
        _ => Value::Word(1),
    })
}

pub(crate) unsafe fn cuPointerGetAttribute(
    data: *mut c_void,
    which: u32,
    ptr: CUdeviceptr,
) -> Answer {
    valid(!data.is_null())?;
    let value = attribute(&lock(), ptr, which)?;
    // SAFETY: as the caller promises.
    unsafe { value.put(data) }
}

/// Unlike the single question, this one answers zeros for an address that the driver does not
/// know.
pub(crate) unsafe fn cuPointerGetAttributes(
    count: u32,
    attributes: *mut u32,
    data: *mut *mut c_void,
    ptr: CUdeviceptr,
) -> Answer {
    valid(count > 0 && !attributes.is_null() && !data.is_null())?;
    let machine = lock();
    machine.current()?;
    for index in 0..count as usize {
        // SAFETY: both arrays have `count` elements, by the caller's promise. C callers need not
        // align them.
        let (which, out) = unsafe {
            (
                attributes.add(index).read_unaligned(),
                data.add(index).read_unaligned(),
            )
        };
        let value = match attribute(&machine, ptr, which) {
            Ok(value) => value,
            Err(CUresult::NOT_SUPPORTED) => return Err(CUresult::NOT_SUPPORTED),
            Err(code) if machine.map.find(ptr).is_some() && which > 20 => return Err(code),
            Err(_) => match which {
                pointer_attribute::MEMORY_TYPE
                | pointer_attribute::IS_MANAGED
                | pointer_attribute::MAPPED => Value::Word(0),
                pointer_attribute::DEVICE_ORDINAL => Value::Word(-2i32 as u32),
                _ => Value::Long(0),
            },
        };
        // SAFETY: the element has room for its attribute, by the caller's promise.
        unsafe { value.put(out) }?;
    }
    Ok(())
}

/// The one attribute that can be set makes synchronous copies of the memory wait until they are
/// done also where a real driver returns a little earlier. Here they always wait, so it is taken
/// and has no effect.
pub(crate) unsafe fn cuPointerSetAttribute(
    value: *const c_void,
    which: u32,
    ptr: CUdeviceptr,
) -> Answer {
    valid(!value.is_null() && which == pointer_attribute::SYNC_MEMOPS)?;
    let machine = lock();
    let origin = machine.map.find(ptr).map(|range| range.origin);
    valid(matches!(origin, Some(Origin::Device | Origin::Pool(_))))
}
