//! Devices and their properties.

use std::ffi::{CStr, c_char};

use cuguard_sys::{CUdevice, CUresult, CUuuid, device_attribute};

use super::write_out;
use crate::result::{DriverResult, valid};
use crate::state::{DriverState, lock};
use crate::visible_devices;

const NAME: &str = "cuguard simulated GPU";

/// The attributes 1 to 147 of an H200 with CUDA 13.0.
#[rustfmt::skip]
const ATTRIBUTES: [i32; 147] = [
    1024, 1024, 1024, 64, 2147483647, 65535, 65535, 49152, 65536, 32, 2147483647, 65536, 1980000,
    512, 1, 132, 0, 0, 1, 0, 131072, 131072, 65536, 16384, 16384, 16384, 32768, 32768, 2048, 512,
    1, 1, 0, 6, 0, 3201000, 6016, 62914560, 2048, 3, 1, 32768, 2048, 1, 32768, 32768, 8192, 8192,
    32768, 0, 32, 32768, 32768, 2046, 32768, 131072, 65536, 16384, 16384, 16384, 32768, 2048,
    32768, 32768, 2048, 32768, 32768, 2046, 268435456, 131072, 65000, 2097120, 32768, 32768, 9, 0,
    32768, 1, 1, 1, 233472, 65536, 1, 0, 0, 0, 2, 0, 1, 1, 1, 0, 0, 0, 1, 1, 232448, 0, 1, 0, 0, 1,
    1, 0, 0, 32, 1, 39321600, 134217728, 1, 1024, 1, 1, 1, 1, 1, 1, 100, 9, 1, 1, 1, 1, 1, 1, 4, 1,
    1, 1, 0, -1, 0, 0, 0, 0, 0, 0, 0, 590680286, 415174878, 1, 1, 0, 1, 1, 0, 0,
];
const PCI_BUS_ID: u32 = 33;

/// An attribute of a device; `None` if there is none with this number.
pub(super) fn attribute(state: &DriverState, attribute: u32, device: u32) -> Option<i32> {
    match attribute {
        PCI_BUS_ID => Some(bus_number(state, device) as i32),
        _ if is_missing(attribute) => Some(0),
        _ => ATTRIBUTES
            .get((attribute as usize).checked_sub(1)?)
            .copied(),
    }
}

/// Writes a C string, truncated to `len` bytes.
///
/// # Safety
///
/// `out` is null or valid for `len` bytes.
unsafe fn write_text(out: *mut c_char, len: i32, text: &str) -> DriverResult {
    valid(!out.is_null() && len > 0)?;
    let kept = text.len().min(len as usize - 1);
    let out = out.cast::<u8>();
    // SAFETY: `kept` bytes and the NUL after them fit into `len` bytes.
    unsafe {
        out.copy_from_nonoverlapping(text.as_ptr(), kept);
        out.add(kept).write(0);
    }
    Ok(())
}

fn bus_number(state: &DriverState, device: u32) -> u32 {
    state.device(device).number + 1
}

fn bus_id(state: &DriverState, device: u32) -> String {
    format!("0000:{:02x}:00.0", bus_number(state, device))
}

pub unsafe fn cuDeviceGetCount(count: *mut i32) -> DriverResult {
    let devices = lock().devices.len();
    // SAFETY: as the caller guarantees.
    unsafe { write_out(count, devices as i32) }
}

pub unsafe fn cuDeviceGet(device: *mut CUdevice, ordinal: i32) -> DriverResult {
    lock().check_device(ordinal)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(device, ordinal) }
}

pub unsafe fn cuDeviceGetName(name: *mut c_char, len: i32, dev: CUdevice) -> DriverResult {
    lock().check_device(dev)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_text(name, len, NAME) }
}

pub unsafe fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice) -> DriverResult {
    let state = lock();
    let bytes = visible_devices::uuid(state.device(state.check_device(dev)?).number);
    let bytes = bytes.map(|byte| byte as c_char);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(uuid, CUuuid { bytes }) }
}

pub unsafe fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { cuDeviceGetUuid(uuid, dev) }
}

/// Writes 0 where it fails.
pub unsafe fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { write_out(bytes, 0) }?;
    let state = lock();
    let total = state.device(state.check_device(dev)?).memory.total;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(bytes, total as usize) }
}

pub unsafe fn cuDeviceGetAttribute(value: *mut i32, attrib: u32, dev: CUdevice) -> DriverResult {
    let state = lock();
    let device = state.check_device(dev)?;
    let found = attribute(&state, attrib, device).ok_or(CUresult::INVALID_VALUE)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(value, found) }
}

pub unsafe fn cuDeviceComputeCapability(
    major: *mut i32,
    minor: *mut i32,
    dev: CUdevice,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        cuDeviceGetAttribute(major, device_attribute::COMPUTE_CAPABILITY_MAJOR, dev)?;
        cuDeviceGetAttribute(minor, device_attribute::COMPUTE_CAPABILITY_MINOR, dev)
    }
}

/// Whether a text has the form of a PCI address: `domain:bus:device.function` or without the domain.
fn is_bus_id(text: &str) -> bool {
    let Some((rest, function)) = text.rsplit_once('.') else {
        return false;
    };
    let parts = rest.split(':').chain([function]);
    let is_number = |part: &str| u32::from_str_radix(part, 16).is_ok();
    (2..=3).contains(&rest.split(':').count()) && parts.clone().all(is_number)
}

pub unsafe fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, id: *const c_char) -> DriverResult {
    valid(!id.is_null())?;
    // SAFETY: not null, so a C string by the caller's guarantee.
    let id = unsafe { CStr::from_ptr(id) }.to_string_lossy();
    let id = id.to_ascii_lowercase();
    let state = lock();
    let mut devices = 0..state.devices.len() as u32;
    let found = devices.find(|device| {
        let own = bus_id(&state, *device);
        own == id || own[5..] == id
    });
    let none = match is_bus_id(&id) {
        true => CUresult::INVALID_DEVICE,
        false => CUresult::INVALID_VALUE,
    };
    let found = found.ok_or(none)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(dev, found as i32) }
}

pub unsafe fn cuDeviceGetPCIBusId(id: *mut c_char, len: i32, dev: CUdevice) -> DriverResult {
    let state = lock();
    let bus_id = bus_id(&state, state.check_device(dev)?);
    // SAFETY: as the caller guarantees.
    unsafe { write_text(id, len, &bus_id) }
}

/// Whether an attribute promises a feature of a real device whose functions are not simulated: it is
/// 0 then. Limits of the hardware keep their values.
fn is_missing(attribute: u32) -> bool {
    matches!(
        attribute,
        device_attribute::COOPERATIVE_MULTI_DEVICE_LAUNCH
            | device_attribute::SPARSE_CUDA_ARRAY_SUPPORTED
            | device_attribute::TIMELINE_SEMAPHORE_INTEROP_SUPPORTED
            | device_attribute::GPU_DIRECT_RDMA_SUPPORTED
            | device_attribute::GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS
            | device_attribute::GPU_DIRECT_RDMA_WRITES_ORDERING
            | device_attribute::DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED
            | device_attribute::CAN_USE_64_BIT_STREAM_MEM_OPS
            | device_attribute::CAN_USE_STREAM_WAIT_VALUE_NOR
            | device_attribute::IPC_EVENT_SUPPORTED
            | device_attribute::TENSOR_MAP_ACCESS_SUPPORTED
            | device_attribute::UNIFIED_FUNCTION_POINTERS
            | device_attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
            | device_attribute::GENERIC_COMPRESSION_SUPPORTED
            | device_attribute::GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
            | device_attribute::MEMPOOL_SUPPORTED_HANDLE_TYPES
            | device_attribute::DMA_BUF_SUPPORTED
            | device_attribute::HANDLE_TYPE_FABRIC_SUPPORTED
            | device_attribute::HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
            | device_attribute::HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    )
}
