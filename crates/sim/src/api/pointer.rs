//! Queries about addresses.

use std::ffi::c_void;

use cuguard_sys::{CUdeviceptr, CUresult, mem_access_flags, memory_type, pointer_attribute};

use super::write_out;
use crate::config::PAGE;
use crate::handle::{self, Kind};
use crate::memory::{CHUNK, MAX_PACKED, MemoryKind, MemoryRange, to_pages};
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, lock};
use crate::thread_state;

/// The value of an attribute, in the width that the caller must provide.
#[derive(Clone, Copy)]
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

/// The reservation that contains an address: base and size.
fn reservation(state: &DriverState, ptr: u64) -> Option<(u64, u64)> {
    let (base, size) = state.reservations.range(..=ptr).next_back()?;
    (ptr - base < *size).then_some((*base, *size))
}

/// The base and size of a range; for a mapping, of the reservation that contains it.
fn enclosing_range(state: &DriverState, range: &MemoryRange) -> (u64, u64) {
    match (range.kind, reservation(state, range.base)) {
        (MemoryKind::Mapping { .. }, Some(reserved)) => reserved,
        _ => (range.base, range.size),
    }
}

/// The base and size of the mapping behind an address: the pages that a block shares or has for
/// itself, or the chunk of a pool.
fn mapping(state: &DriverState, range: &MemoryRange, ptr: u64) -> (u64, u64) {
    match range.kind {
        MemoryKind::Device | MemoryKind::Variable if range.size <= MAX_PACKED => {
            (range.base - range.base % PAGE, PAGE)
        }
        MemoryKind::Pool(id) => {
            let first = state.pools.get(&id).map_or(range.base, |pool| pool.base);
            (ptr - (ptr - first) % CHUNK, CHUNK)
        }
        MemoryKind::Registered | MemoryKind::Mapping { .. } => (range.base, range.size),
        _ => (range.base, to_pages(range.size).unwrap_or(range.size)),
    }
}

/// The number of the physical memory behind an address. Mappings of the same memory have the same;
/// other memory is told apart by its host page, a larger number than that of any mapped memory.
fn block_id(state: &DriverState, range: &MemoryRange, ptr: u64) -> u64 {
    match range.kind {
        MemoryKind::Mapping { physical, .. } => physical,
        _ => mapping(state, range, ptr).0 >> 12,
    }
}

/// What `cuPointerGetAttributes` returns for an address that the driver does not know; `None` if it
/// leaves the value as it is.
fn value_of_unknown(state: &DriverState, ptr: u64, which: u32) -> Option<Value> {
    let reserved = reservation(state, ptr);
    match which {
        pointer_attribute::HOST_POINTER => Some(Value::Long(ptr)),
        pointer_attribute::DEVICE_ORDINAL => Some(Value::Word(-2i32 as u32)),
        pointer_attribute::RANGE_START_ADDR => reserved.map(|(base, _)| Value::Long(base)),
        pointer_attribute::RANGE_SIZE => reserved.map(|(_, size)| Value::Long(size)),
        _ if is_word(which) => Some(Value::Word(0)),
        _ => Some(Value::Long(0)),
    }
}

/// Whether an attribute is 32 bits wide.
fn is_word(which: u32) -> bool {
    matches!(
        which,
        pointer_attribute::MEMORY_TYPE
            | pointer_attribute::SYNC_MEMOPS
            | pointer_attribute::IS_MANAGED
            | pointer_attribute::DEVICE_ORDINAL
            | pointer_attribute::IS_LEGACY_CUDA_IPC_CAPABLE
            | pointer_attribute::MAPPED
            | pointer_attribute::IS_GPU_DIRECT_RDMA_CAPABLE
            | pointer_attribute::ACCESS_FLAGS
            | pointer_attribute::IS_HW_DECOMPRESS_CAPABLE
    )
}

/// Fails unless an attribute exists and can be queried. The tokens for other kernel drivers are not
/// simulated.
fn check_attribute(which: u32) -> DriverResult {
    let known = pointer_attribute::CONTEXT..=pointer_attribute::IS_HW_DECOMPRESS_CAPABLE;
    valid(known.contains(&which) && which != pointer_attribute::P2P_TOKENS)
}

/// The value of an attribute of memory that the driver knows. `Err` where an address of the other
/// side does not exist.
fn value(state: &DriverState, range: &MemoryRange, ptr: u64, which: u32) -> DriverResult<Value> {
    let pool = match range.kind {
        MemoryKind::Pool(id) => Some(id),
        _ => None,
    };
    let host_memory = range.on_host() && !range.is_managed();
    let is_mapping = matches!(range.kind, MemoryKind::Mapping { .. });
    let current = thread_state::current();
    let device = current.map_or(range.device, |context| state.device_of(context));
    let accessible = state.is_accessible(range, device);
    let access = match is_mapping && !accessible {
        true => mem_access_flags::NONE,
        false => mem_access_flags::READWRITE,
    };
    Ok(match which {
        pointer_attribute::CONTEXT => {
            let context = range.context.map(|id| handle::encode(Kind::Context, id));
            Value::Long(context.unwrap_or(0) as u64)
        }
        pointer_attribute::MEMORY_TYPE if host_memory => Value::Word(memory_type::HOST),
        pointer_attribute::MEMORY_TYPE => Value::Word(memory_type::DEVICE),
        pointer_attribute::DEVICE_POINTER if !accessible => {
            return Err(CUresult::INVALID_VALUE);
        }
        pointer_attribute::DEVICE_POINTER => {
            state.current()?;
            Value::Long(ptr)
        }
        pointer_attribute::HOST_POINTER if range.on_host() => Value::Long(ptr),
        pointer_attribute::HOST_POINTER => return Err(CUresult::INVALID_VALUE),
        pointer_attribute::SYNC_MEMOPS => Value::Word(range.sync_memops.into()),
        pointer_attribute::BUFFER_ID => Value::Long(range.id),
        pointer_attribute::IS_MANAGED => Value::Word(range.is_managed().into()),
        pointer_attribute::DEVICE_ORDINAL => Value::Word(range.device),
        pointer_attribute::RANGE_START_ADDR => Value::Long(enclosing_range(state, range).0),
        pointer_attribute::RANGE_SIZE => Value::Long(enclosing_range(state, range).1),
        pointer_attribute::MAPPED => Value::Word(1),
        pointer_attribute::ACCESS_FLAGS => Value::Word(access),
        pointer_attribute::MEMPOOL_HANDLE => {
            let handle = pool.map_or(0, |id| handle::encode(Kind::Pool, id));
            Value::Long(handle as u64)
        }
        pointer_attribute::MAPPING_SIZE => Value::Long(mapping(state, range, ptr).1),
        pointer_attribute::MAPPING_BASE_ADDR => Value::Long(mapping(state, range, ptr).0),
        pointer_attribute::MEMORY_BLOCK_ID => Value::Long(block_id(state, range, ptr)),
        pointer_attribute::IS_HW_DECOMPRESS_CAPABLE => {
            Value::Word((range.kind == MemoryKind::Device).into())
        }
        // Sharing with other processes and devices is not simulated.
        _ if is_word(which) => Value::Word(0),
        _ => Value::Long(0),
    })
}

pub unsafe fn cuPointerGetAttribute(
    data: *mut c_void,
    which: u32,
    ptr: CUdeviceptr,
) -> DriverResult {
    valid(!data.is_null())?;
    check(
        which != pointer_attribute::P2P_TOKENS,
        CUresult::NOT_SUPPORTED,
    )?;
    check_attribute(which)?;
    let state = lock();
    let range = state.map.find(ptr).ok_or(CUresult::INVALID_VALUE)?;
    match value(&state, range, ptr, which) {
        // SAFETY: as the caller guarantees.
        Ok(value) => unsafe { value.write(data) },
        Err(code) => {
            // Like a real driver, writes null. SAFETY: as above; these attributes are addresses.
            unsafe { Value::Long(0).write(data) }?;
            Err(code)
        }
    }
}

/// Unlike `cuPointerGetAttribute`, succeeds for an address that the driver does not know.
pub unsafe fn cuPointerGetAttributes(
    count: u32,
    attributes: *mut u32,
    data: *mut *mut c_void,
    ptr: CUdeviceptr,
) -> DriverResult {
    valid(count > 0 && !attributes.is_null() && !data.is_null())?;
    let state = lock();
    let range = state.map.find(ptr);
    for index in 0..count as usize {
        // SAFETY: the caller guarantees `count` elements. C callers need not align them.
        let (which, out) = unsafe {
            (
                attributes.add(index).read_unaligned(),
                data.add(index).read_unaligned(),
            )
        };
        check_attribute(which)?;
        valid(!out.is_null())?;
        let value = match range {
            Some(range) => Some(value(&state, range, ptr, which).unwrap_or(Value::Long(0))),
            None => value_of_unknown(&state, ptr, which),
        };
        if let Some(value) = value {
            // SAFETY: the caller guarantees that the element has room for its attribute.
            unsafe { value.write(out) }?;
        }
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
    valid(!value.is_null())?;
    let mut state = lock();
    let range = state.map.find(ptr).ok_or(CUresult::INVALID_VALUE)?;
    if matches!(range.kind, MemoryKind::Mapping { .. }) {
        return Err(CUresult::NOT_SUPPORTED);
    }
    valid(which == pointer_attribute::SYNC_MEMOPS)?;
    let base = range.base;
    // SAFETY: this attribute is a C int.
    let on = unsafe { super::read(value.cast::<i32>()) }? != 0;
    if let Some(range) = state.map.at_mut(base) {
        range.sync_memops = on;
    }
    Ok(())
}
