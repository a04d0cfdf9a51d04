//! Arrays: memory in a layout of its own, made for textures. The simulation has no textures, but
//! copies into arrays and out of them.

use std::ffi::c_void;

use cuguard_sys::{CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUresult};

use super::copy::copy_now;
use super::copy_2d::array_run;
use super::{get, put, valid};
use crate::fault;
use crate::handle::{self, Id, Kind};
use crate::lock::lock;
use crate::machine::{Answer, Array, Machine};
use crate::memory_block::MemoryBlock;
use crate::physical::to_pages;
use crate::wait::synchronize_context;

/// The array behind a handle.
pub(super) fn known(machine: &Machine, array: CUarray) -> Result<Id, CUresult> {
    match handle::decode(Kind::Array, array.0).filter(|id| machine.arrays.contains_key(id)) {
        Some(id) => Ok(id),
        None if array.is_null() => Err(CUresult::INVALID_HANDLE),
        None => Err(machine.dead_handle(Kind::Array, array.0, CUresult::INVALID_HANDLE)),
    }
}

/// The bytes of one channel, by `CUarray_format`.
fn channel_bytes(format: u32) -> Option<usize> {
    match format {
        0x01 | 0x08 => Some(1),
        0x02 | 0x09 | 0x10 => Some(2),
        0x03 | 0x0a | 0x20 => Some(4),
        _ => None,
    }
}

pub(crate) unsafe fn cuArray3DCreate_v2(
    out: *mut CUarray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> Answer {
    // SAFETY: as the caller promises.
    let descriptor = unsafe { get(descriptor) }?;
    valid(!out.is_null() && descriptor.Width > 0)?;
    valid(matches!(descriptor.NumChannels, 1 | 2 | 4))?;
    let channel = channel_bytes(descriptor.Format).ok_or(CUresult::INVALID_VALUE)?;
    let sizes = [
        channel * descriptor.NumChannels as usize,
        descriptor.Height.max(1),
        descriptor.Depth.max(1),
    ];
    let bytes = sizes
        .iter()
        .try_fold(descriptor.Width, |bytes, size| bytes.checked_mul(*size));
    let bytes = bytes.ok_or(CUresult::INVALID_VALUE)?;
    let mut machine = lock();
    let context = machine.current()?;
    fault::on_allocation(bytes as u64)?;
    let device = machine.device_of(context);
    let pages = to_pages(bytes as u64).ok_or(CUresult::OUT_OF_MEMORY)?;
    // First what the host may not have, so that nothing needs to be taken back.
    let block = MemoryBlock::fresh(bytes).ok_or(CUresult::OUT_OF_MEMORY)?;
    if !machine.take_pages(device, pages) {
        return Err(CUresult::OUT_OF_MEMORY);
    }
    let id = machine.numbers.next(Kind::Array);
    if let Some(context) = machine.contexts.get_mut(&context) {
        context.arrays.insert(id);
    }
    machine.arrays.insert(
        id,
        Array {
            context,
            descriptor,
            row_bytes: descriptor.Width * sizes[0],
            bytes: bytes as u64,
            block,
        },
    );
    // SAFETY: as the caller promises.
    unsafe { put(out, CUarray(handle::encode(Kind::Array, id))) }
}

pub(crate) unsafe fn cuArray3DGetDescriptor_v2(
    descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR,
    array: CUarray,
) -> Answer {
    let machine = lock();
    machine.current()?;
    let found = machine.arrays[&known(&machine, array)?].descriptor;
    // SAFETY: as the caller promises.
    unsafe { put(descriptor, found) }
}

pub(crate) unsafe fn cuArrayDestroy(array: CUarray) -> Answer {
    let machine = lock();
    machine.check_current_if_any()?;
    let id = known(&machine, array)?;
    let context = machine.arrays[&id].context;
    let mut machine = synchronize_context(machine, context);
    known(&machine, array)?;
    machine.remove_array(id);
    Ok(())
}

pub(crate) unsafe fn cuMemcpyHtoA_v2(
    dst: CUarray,
    offset: usize,
    src: *const c_void,
    bytes: usize,
) -> Answer {
    copy_now(array_run(dst, offset, src as u64, bytes, true))
}

pub(crate) unsafe fn cuMemcpyAtoH_v2(
    dst: *mut c_void,
    src: CUarray,
    offset: usize,
    bytes: usize,
) -> Answer {
    copy_now(array_run(src, offset, dst as u64, bytes, false))
}
