//! Devices: how many, what they are, what they can do.

use std::ffi::{CStr, c_char};

use cuguard_sys::{CUdevice, CUresult, CUuuid, device_attribute};

use super::{put, valid};
use crate::lock::lock;
use crate::machine::Answer;

const NAME: &str = "cuguard simulated GPU";

/// The attributes 1 to 147, as an H200 with CUDA 13.0 has them: what a program asks about its
/// device leads it the same way as there.
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

fn attribute(attribute: u32, device: u32) -> Option<i32> {
    match attribute {
        PCI_BUS_ID => Some(device as i32 + 1),
        0 => None,
        _ => ATTRIBUTES.get(attribute as usize - 1).copied(),
    }
}

/// Writes a C string, cut to what there is room for.
///
/// # Safety
///
/// `out` is null or valid for `len` bytes.
unsafe fn put_text(out: *mut c_char, len: i32, text: &str) -> Answer {
    valid(!out.is_null() && len > 0)?;
    let kept = text.len().min(len as usize - 1);
    // SAFETY: `kept` and the NUL behind it fit into `len` bytes.
    unsafe {
        out.cast::<u8>()
            .copy_from_nonoverlapping(text.as_ptr(), kept);
        out.add(kept).write(0);
    }
    Ok(())
}

fn bus_id(device: u32) -> String {
    format!("0000:{:02x}:00.0", device + 1)
}

pub(crate) unsafe fn cuDeviceGetCount(count: *mut i32) -> Answer {
    let devices = lock().devices.len();
    // SAFETY: as the caller promises.
    unsafe { put(count, devices as i32) }
}

pub(crate) unsafe fn cuDeviceGet(device: *mut CUdevice, ordinal: i32) -> Answer {
    lock().device(ordinal)?;
    // SAFETY: as the caller promises.
    unsafe { put(device, ordinal) }
}

pub(crate) unsafe fn cuDeviceGetName(name: *mut c_char, len: i32, dev: CUdevice) -> Answer {
    lock().device(dev)?;
    // SAFETY: as the caller promises.
    unsafe { put_text(name, len, NAME) }
}

pub(crate) unsafe fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice) -> Answer {
    let device = lock().device(dev)?;
    let mut bytes = *b"cuguard-sim-\0\0\0\0";
    bytes[12..].copy_from_slice(&device.to_be_bytes());
    // SAFETY: as the caller promises.
    unsafe { put(uuid, CUuuid { bytes }) }
}

pub(crate) unsafe fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice) -> Answer {
    // SAFETY: as the caller promises.
    unsafe { cuDeviceGetUuid(uuid, dev) }
}

pub(crate) unsafe fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) -> Answer {
    let machine = lock();
    let total = machine.on(machine.device(dev)?).memory.total;
    // SAFETY: as the caller promises.
    unsafe { put(bytes, total as usize) }
}

pub(crate) unsafe fn cuDeviceGetAttribute(value: *mut i32, attrib: u32, dev: CUdevice) -> Answer {
    let device = lock().device(dev)?;
    let found = attribute(attrib, device).ok_or(CUresult::INVALID_VALUE)?;
    // SAFETY: as the caller promises.
    unsafe { put(value, found) }
}

pub(crate) unsafe fn cuDeviceComputeCapability(
    major: *mut i32,
    minor: *mut i32,
    dev: CUdevice,
) -> Answer {
    // SAFETY: as the caller promises.
    unsafe {
        cuDeviceGetAttribute(major, device_attribute::COMPUTE_CAPABILITY_MAJOR, dev)?;
        cuDeviceGetAttribute(minor, device_attribute::COMPUTE_CAPABILITY_MINOR, dev)
    }
}

pub(crate) unsafe fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, id: *const c_char) -> Answer {
    valid(!id.is_null())?;
    // SAFETY: not null, so a C string by the caller's promise.
    let asked = unsafe { CStr::from_ptr(id) }
        .to_string_lossy()
        .to_ascii_lowercase();
    let count = lock().devices.len() as u32;
    let found = (0..count).find(|device| bus_id(*device) == asked || bus_id(*device)[5..] == asked);
    let found = found.ok_or(CUresult::INVALID_VALUE)?;
    // SAFETY: as the caller promises.
    unsafe { put(dev, found as i32) }
}

pub(crate) unsafe fn cuDeviceGetPCIBusId(id: *mut c_char, len: i32, dev: CUdevice) -> Answer {
    let device = lock().device(dev)?;
    // SAFETY: as the caller promises.
    unsafe { put_text(id, len, &bus_id(device)) }
}

/// No simulated device reaches into another's memory; copies between them work all the same.
pub(crate) unsafe fn cuDeviceCanAccessPeer(can: *mut i32, dev: CUdevice, peer: CUdevice) -> Answer {
    let machine = lock();
    machine.device(dev)?;
    machine.device(peer)?;
    // SAFETY: as the caller promises.
    unsafe { put(can, 0) }
}
