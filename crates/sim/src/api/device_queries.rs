//! Further queries about a device, and which of a real device's features are not simulated.

use std::ffi::c_char;

use cuguard_sys::{CUdevice, CUdevprop, CUresult, device_attribute};

use super::array::channel_bytes;
use super::device::attribute;
use super::write_out;
use crate::result::{DriverResult, check, valid};
use crate::state::lock;

/// The most elements of a linear one-dimensional texture, and its most bytes.
const TEXTURE_ELEMENTS: usize = 1 << 30;
const TEXTURE_BYTES: usize = 1 << 32;

/// Contexts cannot be limited to some of the multiprocessors: for any kind of affinity it is 0.
pub unsafe fn cuDeviceGetExecAffinitySupport(
    out: *mut i32,
    _kind: u32,
    dev: CUdevice,
) -> DriverResult {
    valid(!out.is_null())?;
    lock().check_device(dev)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, 0) }
}

/// Exists on Windows only.
pub unsafe fn cuDeviceGetLuid(luid: *mut c_char, mask: *mut u32, dev: CUdevice) -> DriverResult {
    valid(!luid.is_null() && !mask.is_null())?;
    lock().check_device(dev)?;
    Err(CUresult::NOT_SUPPORTED)
}

pub unsafe fn cuDeviceGetTexture1DLinearMaxWidth(
    out: *mut usize,
    format: u32,
    channels: u32,
    dev: CUdevice,
) -> DriverResult {
    valid(!out.is_null())?;
    lock().check_device(dev)?;
    // Formats of video and of compressed images.
    let of_images = (0x80..=0xff).contains(&format);
    check(!of_images, CUresult::NOT_SUPPORTED)?;
    let channel = channel_bytes(format)?;
    valid(matches!(channels, 1 | 2 | 4))?;
    let width = TEXTURE_BYTES / (channel * channels as usize);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, width.min(TEXTURE_ELEMENTS)) }
}

pub unsafe fn cuDeviceGetProperties(out: *mut CUdevprop, dev: CUdevice) -> DriverResult {
    valid(!out.is_null())?;
    let state = lock();
    let device = state.check_device(dev)?;
    let get = |which| attribute(&state, which, device).unwrap_or(0);
    let properties = CUdevprop {
        maxThreadsPerBlock: get(device_attribute::MAX_THREADS_PER_BLOCK),
        maxThreadsDim: [
            get(device_attribute::MAX_BLOCK_DIM_X),
            get(device_attribute::MAX_BLOCK_DIM_Y),
            get(device_attribute::MAX_BLOCK_DIM_Z),
        ],
        maxGridSize: [
            get(device_attribute::MAX_GRID_DIM_X),
            get(device_attribute::MAX_GRID_DIM_Y),
            get(device_attribute::MAX_GRID_DIM_Z),
        ],
        sharedMemPerBlock: get(device_attribute::MAX_SHARED_MEMORY_PER_BLOCK),
        totalConstantMemory: get(device_attribute::TOTAL_CONSTANT_MEMORY),
        SIMDWidth: get(device_attribute::WARP_SIZE),
        memPitch: get(device_attribute::MAX_PITCH),
        regsPerBlock: get(device_attribute::MAX_REGISTERS_PER_BLOCK),
        clockRate: get(device_attribute::CLOCK_RATE),
        textureAlign: get(device_attribute::TEXTURE_ALIGNMENT),
    };
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, properties) }
}

/// The version for 32-bit sizes: more memory is the largest number.
pub unsafe fn cuDeviceTotalMem(bytes: *mut u32, dev: CUdevice) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { write_out(bytes, 0) }?;
    let state = lock();
    let total = state.device(state.check_device(dev)?).memory.total;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(bytes, u32::try_from(total).unwrap_or(u32::MAX)) }
}
