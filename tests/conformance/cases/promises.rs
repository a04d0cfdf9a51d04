//! What a device's attributes promise about memory, and what becomes of it.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;
use device_attribute::*;

/// Why the simulated GPU differs.
const NOT_SIMULATED: &str = "it does not share memory, compress it, or map host memory as \
                             physical memory, and its attributes are 0";

cases! {"promises":
    kept,
    not_simulated.differs_on_simulation(NOT_SIMULATED),
    shared_physical_memory.differs_on_simulation(NOT_SIMULATED),
    shared_pools.differs_on_simulation(NOT_SIMULATED),
    never_shared,
    granularity,
    properties,
    retained_handles,
}

fn attribute(c: &Case, which: u32) -> i32 {
    let mut value = 77;
    let result = cuDeviceGetAttribute(&mut value, which, 0);
    c.require("cuDeviceGetAttribute", result);
    value
}

/// What every simulated and every real device of this kind has, and has not.
fn kept(c: &Case) {
    start(c);
    for (what, which, want) in [
        ("pools", MEMORY_POOLS_SUPPORTED, 1),
        ("host pools", HOST_MEMORY_POOLS_SUPPORTED, 1),
        ("NUMA pools", HOST_NUMA_MEMORY_POOLS_SUPPORTED, 1),
        ("virtual memory", VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1),
        ("registered memory", HOST_REGISTER_SUPPORTED, 1),
        (
            "host addresses of it",
            CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
            1,
        ),
        ("managed memory", MANAGED_MEMORY, 1),
        ("ordinary memory", PAGEABLE_MEMORY_ACCESS, 0),
        (
            "host page tables",
            PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
            0,
        ),
        (
            "managed memory on the device",
            DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
            0,
        ),
        ("Windows handles", HANDLE_TYPE_WIN32_HANDLE_SUPPORTED, 0),
        (
            "Windows KMT handles",
            HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED,
            0,
        ),
        ("several machines", HOST_NUMA_MULTINODE_IPC_SUPPORTED, 0),
    ] {
        c.same(what, attribute(c, which), want);
    }
}

/// What a real device has and the simulated one has not.
fn not_simulated(c: &Case) {
    start(c);
    for (what, which, real) in [
        (
            "file descriptors",
            HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            1,
        ),
        ("compression", GENERIC_COMPRESSION_SUPPORTED, 1),
        (
            "RDMA of virtual memory",
            GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
            1,
        ),
        ("sparse arrays", SPARSE_CUDA_ARRAY_SUPPORTED, 1),
        (
            "timeline semaphores",
            TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
            1,
        ),
        ("RDMA", GPU_DIRECT_RDMA_SUPPORTED, 1),
        ("RDMA flushes", GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 1),
        ("RDMA order", GPU_DIRECT_RDMA_WRITES_ORDERING, 100),
        ("handles of pools", MEMPOOL_SUPPORTED_HANDLE_TYPES, 9),
        ("deferred arrays", DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, 1),
        ("DMA buffers", DMA_BUF_SUPPORTED, 1),
        ("shared events", IPC_EVENT_SUPPORTED, 1),
        ("fabric handles", HANDLE_TYPE_FABRIC_SUPPORTED, 1),
        (
            "NUMA virtual memory",
            HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            1,
        ),
        (
            "host virtual memory",
            HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            1,
        ),
    ] {
        let want = if c.on_simulation() { 0 } else { real };
        c.same(what, attribute(c, which), want);
    }
}

fn create(prop: CUmemAllocationProp) -> CUresult {
    let mut handle = 0;
    cuMemCreate(&mut handle, PAGE, &prop, 0)
}

/// Physical memory is shared by a file descriptor where the device says so, else it is no memory.
fn shared_physical_memory(c: &Case) {
    primary(c);
    let prop = CUmemAllocationProp {
        requestedHandleTypes: mem_allocation_handle_type::POSIX_FILE_DESCRIPTOR,
        ..device_properties(0)
    };
    let want = match c.on_simulation() {
        true => Code::INVALID_VALUE,
        false => Code::SUCCESS,
    };
    c.expect("by a file descriptor", create(prop), want);
}

/// The same for pools.
fn shared_pools(c: &Case) {
    primary(c);
    let want = match c.on_simulation() {
        true => Code::INVALID_VALUE,
        false => Code::SUCCESS,
    };
    let mut pool = CUmemoryPool::NULL;
    let props = CUmemPoolProps {
        allocType: mem_allocation_type::PINNED,
        handleTypes: mem_allocation_handle_type::POSIX_FILE_DESCRIPTOR,
        location: device_properties(0).location,
        ..CUmemPoolProps::default()
    };
    let result = cuMemPoolCreate(&mut pool, &props);
    c.expect("by a file descriptor", result, want);
}

/// Handles of Windows are no handles here.
fn never_shared(c: &Case) {
    primary(c);
    for (what, handle) in [("Windows handle", 2), ("Windows KMT handle", 4)] {
        let prop = CUmemAllocationProp {
            requestedHandleTypes: handle,
            ..device_properties(0)
        };
        c.invalid(what, create(prop));
    }
    let mut data = 0_u64;
    let prop = CUmemAllocationProp {
        win32HandleMetaData: (&raw mut data).cast(),
        ..device_properties(0)
    };
    c.invalid("data of a Windows handle", create(prop));
    let mut location = device_properties(0);
    location.location.type_ = mem_location_type::HOST_NUMA_CURRENT;
    c.invalid("on the current NUMA node", create(location));
}

/// The granularity is 2 MiB, whatever the memory.
fn granularity(c: &Case) {
    primary(c);
    for type_ in 0..=2 {
        for location in 0..=4 {
            let prop = CUmemAllocationProp {
                type_,
                location: CUmemLocation {
                    type_: location,
                    id: 9,
                },
                ..CUmemAllocationProp::default()
            };
            for option in 0..=1 {
                let mut size = 77;
                let result = cuMemGetAllocationGranularity(&mut size, &prop, option);
                c.ok(
                    format_args!("type {type_}, location {location}, {option}"),
                    result,
                );
                c.same(
                    format_args!("its size {type_} {location} {option}"),
                    size,
                    PAGE,
                );
            }
            let mut size = 77;
            let result = cuMemGetAllocationGranularity(&mut size, &prop, 2);
            c.invalid(format_args!("type {type_}, location {location}, 2"), result);
        }
    }
    let prop = device_properties(0);
    let mut size = 77;
    let result = cuMemGetAllocationGranularity(std::ptr::null_mut(), &prop, 0);
    c.invalid("into null", result);
    let result = cuMemGetAllocationGranularity(&mut size, std::ptr::null(), 0);
    c.invalid("of null", result);
}

/// Physical memory returns what it was created with. RDMA is a hint.
fn properties(c: &Case) {
    primary(c);
    let mut handle = 0;
    c.require(
        "create",
        cuMemCreate(&mut handle, PAGE, &device_properties(0), 0),
    );
    let mut prop = CUmemAllocationProp::default();
    let result = cuMemGetAllocationPropertiesFromHandle(&mut prop, handle);
    c.ok("properties", result);
    let got = (
        prop.type_,
        prop.requestedHandleTypes,
        prop.location.type_,
        prop.location.id,
    );
    c.same("type, handle types, location", got, (1, 0, 1, 0));
    let result = cuMemGetAllocationPropertiesFromHandle(std::ptr::null_mut(), handle);
    c.invalid("into null", result);
    c.ok("release", cuMemRelease(handle));
    let mut nowhere = device_properties(0);
    nowhere.location.id = 9;
    c.expect("on device 9", create(nowhere), Code::INVALID_DEVICE);
}

/// Only mappings have a handle to retain.
fn retained_handles(c: &Case) {
    primary(c);
    let mut handle = 0;
    let mut retain = |ptr: u64| cuMemRetainAllocationHandle(&mut handle, ptr as *mut c_void);
    c.invalid("null", retain(0));
    c.invalid("device memory", retain(alloc(c, 4096)));
    let ordered = alloc_async(c, 100, CUstream::NULL);
    c.invalid("stream-ordered memory", retain(ordered));
    let ptr = alloc(c, 4096) as *mut c_void;
    let result = cuMemRetainAllocationHandle(std::ptr::null_mut(), ptr);
    c.invalid("into null", result);
}
