//! What a device reports of itself: attributes, properties, access to others.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"device_values":
    attributes_that_are_promises,
    numbers_without_attribute,
    properties,
    texture_width,
    total_memory_of_the_first_version,
    peer_of_itself,
    names,
}

/// Whether a device has a feature is 0 or 1.
fn attributes_that_are_promises(c: &Case) {
    let device = start(c);
    for (what, which, kept) in [
        ("unified addresses", device_attribute::UNIFIED_ADDRESSING, 1),
        ("managed memory", device_attribute::MANAGED_MEMORY, 1),
        (
            "concurrent managed access",
            device_attribute::CONCURRENT_MANAGED_ACCESS,
            1,
        ),
        ("pools", device_attribute::MEMORY_POOLS_SUPPORTED, 1),
        (
            "registered memory",
            device_attribute::HOST_REGISTER_SUPPORTED,
            1,
        ),
        (
            "virtual memory",
            device_attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            1,
        ),
        (
            "pageable access",
            device_attribute::PAGEABLE_MEMORY_ACCESS,
            0,
        ),
    ] {
        let mut value = 77;
        let result = cuDeviceGetAttribute(&mut value, which, device);
        c.ok(what, result);
        c.same(what, value, kept);
    }
}

/// Attributes begin at 1.
fn numbers_without_attribute(c: &Case) {
    let device = start(c);
    let mut value = 0;
    for which in [0, 5000, u32::MAX] {
        let result = cuDeviceGetAttribute(&mut value, which, device);
        c.invalid(format_args!("attribute {which}"), result);
    }
    let none = std::ptr::null_mut();
    c.invalid("null", cuDeviceGetAttribute(none, 1, device));
    let result = cuDeviceGetAttribute(&mut value, 1, 99);
    c.expect("device 99", result, Code::INVALID_DEVICE);
}

/// The properties are the attributes of the same meaning.
fn properties(c: &Case) {
    let device = start(c);
    let mut all = CUdevprop::default();
    c.ok(
        "cuDeviceGetProperties",
        cuDeviceGetProperties(&mut all, device),
    );
    for (what, which, value) in [
        (
            "threads in a block",
            device_attribute::MAX_THREADS_PER_BLOCK,
            all.maxThreadsPerBlock,
        ),
        (
            "block z",
            device_attribute::MAX_BLOCK_DIM_Z,
            all.maxThreadsDim[2],
        ),
        (
            "grid x",
            device_attribute::MAX_GRID_DIM_X,
            all.maxGridSize[0],
        ),
        ("warp", device_attribute::WARP_SIZE, all.SIMDWidth),
        ("pitch", device_attribute::MAX_PITCH, all.memPitch),
        ("clock", device_attribute::CLOCK_RATE, all.clockRate),
    ] {
        let mut attribute = 0;
        c.ok(what, cuDeviceGetAttribute(&mut attribute, which, device));
        c.same(what, value, attribute);
    }
    c.invalid("null", cuDeviceGetProperties(std::ptr::null_mut(), device));
}

/// How many elements a linear texture may have.
fn texture_width(c: &Case) {
    let device = start(c);
    let width = |format, channels| {
        let mut width = 0;
        let result = cuDeviceGetTexture1DLinearMaxWidth(&mut width, format, channels, device);
        (result, width)
    };
    let ok = Code::SUCCESS;
    c.same(
        "bytes",
        width(array_format::UNSIGNED_INT8, 1),
        (ok, 1 << 30),
    );
    c.same("four floats", width(array_format::FLOAT, 4), (ok, 1 << 28));
    c.same(
        "three floats",
        width(array_format::FLOAT, 3).0,
        Code::INVALID_VALUE,
    );
    c.same("format 99", width(99, 1).0, Code::INVALID_VALUE);
}

/// A size of 32 bits is cut off at the largest number.
fn total_memory_of_the_first_version(c: &Case) {
    let device = start(c);
    let mut bytes = 0;
    c.ok("cuDeviceTotalMem", cuDeviceTotalMem(&mut bytes, device));
    c.same("the size", bytes, u32::MAX);
}

/// A device is not a peer of itself.
fn peer_of_itself(c: &Case) {
    let device = start(c);
    let mut can = 7;
    let result = cuDeviceCanAccessPeer(&mut can, device, device);
    c.ok("cuDeviceCanAccessPeer", result);
    c.same("whether it can", can, 0);
    let result = cuDeviceCanAccessPeer(&mut can, device, 99);
    c.expect("device 99", result, Code::INVALID_DEVICE);
    let result = cuDeviceGetP2PAttribute(&mut can, 1, device, device);
    c.expect("cuDeviceGetP2PAttribute", result, Code::INVALID_DEVICE);
    let context = create(c);
    let result = cuCtxEnablePeerAccess(context, 0);
    c.expect(
        "cuCtxEnablePeerAccess",
        result,
        Code::PEER_ACCESS_UNSUPPORTED,
    );
    let result = cuCtxDisablePeerAccess(context);
    c.expect(
        "cuCtxDisablePeerAccess",
        result,
        Code::PEER_ACCESS_NOT_ENABLED,
    );
}

/// A device is found by its address on the bus, and has a UUID that does not change.
fn names(c: &Case) {
    let device = start(c);
    let mut text = [0; 32];
    let result = cuDeviceGetPCIBusId(text.as_mut_ptr(), 32, device);
    c.ok("cuDeviceGetPCIBusId", result);
    let mut found = -1;
    let result = cuDeviceGetByPCIBusId(&mut found, text.as_ptr());
    c.ok("cuDeviceGetByPCIBusId", result);
    c.same("the device", found, device);
    let uuid = |get: fn(*mut CUuuid, CUdevice) -> CUresult| {
        let mut uuid = CUuuid { bytes: [0; 16] };
        c.ok("its UUID", get(&mut uuid, device));
        uuid.bytes
    };
    let same = uuid(cuDeviceGetUuid) == uuid(cuDeviceGetUuid_v2);
    c.yes("both versions are equal", same);
}
