//! Starting the driver, and what it reports about its devices.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"start":
    every_function_is_there,
    before_init,
    init_flags,
    init_twice,
    device_numbers,
    device_name,
    device_memory,
    device_attributes,
    device_attribute_errors,
    compute_capability,
    device_identity,
    proc_address,
    profiler,
}

/// The driver has every function of the header up to its own version of CUDA, except one that only drivers of
/// integrated GPUs have.
fn every_function_is_there(c: &Case) {
    let driver = match cuguard::driver::load() {
        Ok(driver) => driver,
        Err(error) => c.stop(error),
    };
    let mut version = 0;
    c.require("cuDriverGetVersion", cuDriverGetVersion(&mut version));
    let known = FUNCTIONS.iter().filter(|f| f.since <= version);
    let lacks = known.filter(|f| driver.symbol(f.name).is_none());
    let lacks: Vec<_> = lacks.map(|f| f.name).collect();
    let integrated = vec!["cuEventCreateFromEGLSync"];
    c.same("functions that the driver lacks", lacks, integrated);
    let older = FUNCTIONS.iter().filter(|f| f.since <= 13_000);
    c.same(
        "functions of the header up to CUDA 13.0",
        older.count(),
        672,
    );
}

/// Before `cuInit` every function returns NOT_INITIALIZED, except those about version and errors.
fn before_init(c: &Case) {
    // Without this the driver loader would return an error, as no driver is loaded.
    match cuguard::driver::load() {
        Ok(driver) => c.yes("the driver is loaded", driver.symbol("cuInit").is_some()),
        Err(error) => c.stop(error),
    }
    let want = Code::NOT_INITIALIZED;
    let (mut count, mut context, mut ptr, mut device) = (0, CUcontext::NULL, 0, 0);
    c.expect(
        "device count before cuInit",
        cuDeviceGetCount(&mut count),
        want,
    );
    c.expect(
        "current context before cuInit",
        cuCtxGetCurrent(&mut context),
        want,
    );
    c.expect("cuMemFree before cuInit", cuMemFree_v2(0x1000), want);
    c.expect(
        "cuMemAlloc before cuInit",
        cuMemAlloc_v2(&mut ptr, 16),
        want,
    );
    c.expect(
        "cuDeviceGet before cuInit",
        cuDeviceGet(&mut device, 0),
        want,
    );
    let mut version = 0;
    c.ok(
        "driver version before cuInit",
        cuDriverGetVersion(&mut version),
    );
    c.yes("the version is that of CUDA 11 or newer", version >= 11_000);
    c.expect(
        "device count after the version",
        cuDeviceGetCount(&mut count),
        want,
    );
    let mut name = std::ptr::null();
    c.ok(
        "error name before cuInit",
        cuGetErrorName(Code(2), &mut name),
    );
    c.same(
        "that name",
        text(name).as_deref(),
        Some("CUDA_ERROR_OUT_OF_MEMORY"),
    );
}

/// `cuInit` takes no flags, and a failed start is not a start.
fn init_flags(c: &Case) {
    let mut count = 0;
    c.invalid("cuInit with a flag", cuInit(1));
    let result = cuDeviceGetCount(&mut count);
    c.expect(
        "device count after a refused cuInit",
        result,
        Code::NOT_INITIALIZED,
    );
    c.ok("cuInit without flags", cuInit(0));
    c.ok("device count after cuInit", cuDeviceGetCount(&mut count));
}

/// `cuInit` may be called again.
fn init_twice(c: &Case) {
    c.ok("cuInit", cuInit(0));
    c.ok("cuInit again", cuInit(0));
    c.ok(
        "cuInit on another thread",
        crate::host::on_another_thread(|| cuInit(0)),
    );
}

/// Devices are numbered from 0; any other number is INVALID_DEVICE.
fn device_numbers(c: &Case) {
    c.require("cuInit", cuInit(0));
    let (mut count, mut device) = (0, -1);
    c.ok("device count", cuDeviceGetCount(&mut count));
    c.yes("there is a device", count >= 1);
    c.invalid(
        "device count into null",
        cuDeviceGetCount(std::ptr::null_mut()),
    );
    let want = Code::INVALID_DEVICE;
    c.expect("device 99", cuDeviceGet(&mut device, 99), want);
    c.expect("device -1", cuDeviceGet(&mut device, -1), want);
    c.expect("device number count", cuDeviceGet(&mut device, count), want);
    c.ok("device 0", cuDeviceGet(&mut device, 0));
    c.same("the first device", device, 0);
}

/// A name that does not fit is cut, and ends in a NUL all the same.
fn device_name(c: &Case) {
    let device = start(c);
    let mut whole = [b'x' as c_char; 256];
    let mut cut = [b'x' as c_char; 64];
    c.ok(
        "device name",
        cuDeviceGetName(whole.as_mut_ptr(), 256, device),
    );
    c.ok(
        "device name into 6 bytes",
        cuDeviceGetName(cut.as_mut_ptr(), 6, device),
    );
    let (whole, short) = (text(whole.as_ptr()), text(cut.as_ptr()));
    let whole = whole.unwrap_or_default();
    c.yes("the name is more than 5 bytes long", whole.len() > 5);
    c.yes(
        "the cut name is its first 5 bytes",
        short.as_deref() == whole.get(..5),
    );
    c.same("the byte after the end", cut[6], b'x' as c_char);
    let result = cuDeviceGetName(cut.as_mut_ptr(), 6, 99);
    c.expect("name of device 99", result, Code::INVALID_DEVICE);
}

/// A device's memory is what `cuMemGetInfo` calls the total.
fn device_memory(c: &Case) {
    primary(c);
    let mut bytes = 0;
    c.ok("memory of the device", cuDeviceTotalMem_v2(&mut bytes, 0));
    let (free, total) = memory(c);
    c.yes("the same as the total of cuMemGetInfo", bytes == total);
    c.yes("some of it is free", free > 0);
    c.yes("less is free than there is", free < total);
    let result = cuDeviceTotalMem_v2(&mut bytes, 99);
    c.expect("memory of device 99", result, Code::INVALID_DEVICE);
}

/// What this project relies on is there: unified addressing, managed memory, pools, virtual memory.
fn device_attributes(c: &Case) {
    let device = start(c);
    for (what, attribute, want) in [
        (
            "threads in a block",
            device_attribute::MAX_THREADS_PER_BLOCK,
            1024,
        ),
        ("threads in a warp", device_attribute::WARP_SIZE, 32),
        (
            "can map host memory",
            device_attribute::CAN_MAP_HOST_MEMORY,
            1,
        ),
        (
            "unified addressing",
            device_attribute::UNIFIED_ADDRESSING,
            1,
        ),
        ("managed memory", device_attribute::MANAGED_MEMORY, 1),
        (
            "concurrent managed access",
            device_attribute::CONCURRENT_MANAGED_ACCESS,
            1,
        ),
        (
            "virtual memory",
            device_attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            1,
        ),
        ("memory pools", device_attribute::MEMORY_POOLS_SUPPORTED, 1),
    ] {
        let mut value = -1;
        c.ok(what, cuDeviceGetAttribute(&mut value, attribute, device));
        c.same(format_args!("value of {what}"), value, want);
    }
    let mut value = -1;
    let attribute = device_attribute::MULTIPROCESSOR_COUNT;
    c.ok(
        "multiprocessors",
        cuDeviceGetAttribute(&mut value, attribute, device),
    );
    c.yes("there is at least one multiprocessor", value >= 1);
}

/// An attribute that does not exist is INVALID_VALUE, a device that does not exist INVALID_DEVICE.
fn device_attribute_errors(c: &Case) {
    let device = start(c);
    let mut value = -1;
    c.invalid(
        "attribute 9999",
        cuDeviceGetAttribute(&mut value, 9999, device),
    );
    let result = cuDeviceGetAttribute(&mut value, 1, 99);
    c.expect("an attribute of device 99", result, Code::INVALID_DEVICE);
}

/// The compute capability is the same by its own function and by the attributes.
fn compute_capability(c: &Case) {
    let device = start(c);
    let (mut major, mut minor) = (-1, -1);
    c.ok(
        "capability",
        cuDeviceComputeCapability(&mut major, &mut minor, device),
    );
    for (what, attribute, want) in [
        ("major", device_attribute::COMPUTE_CAPABILITY_MAJOR, major),
        ("minor", device_attribute::COMPUTE_CAPABILITY_MINOR, minor),
    ] {
        let mut value = -1;
        c.ok(what, cuDeviceGetAttribute(&mut value, attribute, device));
        c.yes(format_args!("both ways agree on {what}"), value == want);
    }
}

/// A device is known by its UUID and by its place on the PCI bus.
fn device_identity(c: &Case) {
    let device = start(c);
    let (mut one, mut other) = (CUuuid::default(), CUuuid::default());
    c.ok("cuDeviceGetUuid", cuDeviceGetUuid(&mut one, device));
    c.ok("cuDeviceGetUuid_v2", cuDeviceGetUuid_v2(&mut other, device));
    c.yes("both are the same", one == other);
    c.yes("it is not zero", one != CUuuid::default());
    let mut place = [0 as c_char; 64];
    c.ok(
        "place on the bus",
        cuDeviceGetPCIBusId(place.as_mut_ptr(), 64, device),
    );
    let length = text(place.as_ptr()).unwrap_or_default().len();
    c.same("length of the place (0000:00:00.0)", length, 12);
    let mut found = -1;
    c.ok(
        "device at that place",
        cuDeviceGetByPCIBusId(&mut found, place.as_ptr()),
    );
    c.same("it is the device", found, device);
}

/// `cuGetProcAddress` knows functions by their plain names.
fn proc_address(c: &Case) {
    start(c);
    let mut function = std::ptr::null_mut();
    let mut ask = |name: &std::ffi::CStr, version| {
        function = std::ptr::null_mut();
        let result = cuGetProcAddress(name.as_ptr(), &mut function, version, 0);
        (result, !function.is_null())
    };
    let (result, found) = ask(c"cuMemAlloc", 11_030);
    c.ok("address of cuMemAlloc", result);
    c.yes("it has one", found);
    let (result, found) = ask(c"nonsense", 11_030);
    c.expect(
        "address of a function that does not exist",
        result,
        Code::NOT_FOUND,
    );
    c.no("it has one", found);
    let (result, found) = ask(c"cuMemAllocAsync", 2_000);
    c.expect(
        "address of a function newer than asked for",
        result,
        Code::NOT_FOUND,
    );
    c.no("it has one", found);
}

/// The profiler is switched in a context.
fn profiler(c: &Case) {
    let device = start(c);
    c.expect(
        "start without a context",
        cuProfilerStart(),
        Code::INVALID_CONTEXT,
    );
    c.expect(
        "stop without a context",
        cuProfilerStop(),
        Code::INVALID_CONTEXT,
    );
    let context = retain(c, device);
    c.require("cuCtxSetCurrent", cuCtxSetCurrent(context));
    c.ok("start", cuProfilerStart());
    c.ok("stop", cuProfilerStop());
}
