//! Attributes of addresses beyond the basic ones: access, pool, mapping, physical memory.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;
use pointer_attribute::*;

/// Why the simulated GPU differs in what may be shared with other processes and devices.
const NOT_SHARED: &str = "it shares no memory with other processes and devices";

cases! {"pointer_values":
    device_memory,
    stream_ordered_memory,
    managed_memory,
    pinned_and_registered_memory,
    host_pool_memory,
    mapped_memory,
    reserved_addresses,
    shared_pages,
    shareable.differs_on_simulation(NOT_SHARED),
    synchronous_operations,
    synchronous_operations_errors,
    no_address_on_the_other_side,
    many_of_device_memory,
    many_of_unknown_addresses,
    many_errors,
}

/// An attribute of 32 bits.
fn word(ptr: CUdeviceptr, which: u32) -> Result<i32, CUresult> {
    let mut value = 77_i32;
    let result = cuPointerGetAttribute((&raw mut value).cast(), which, ptr);
    result
        .is_success()
        .then(|| std::hint::black_box(value))
        .ok_or(result)
}

/// An attribute of 64 bits.
fn long(ptr: CUdeviceptr, which: u32) -> Result<u64, CUresult> {
    let mut value = 77_u64;
    let result = cuPointerGetAttribute((&raw mut value).cast(), which, ptr);
    result
        .is_success()
        .then(|| std::hint::black_box(value))
        .ok_or(result)
}

/// The attributes that depend on the kind of memory.
struct Facts {
    sync_memops: i32,
    access: i32,
    pool: Option<CUmemoryPool>,
    mapping: usize,
}

impl Facts {
    fn check(&self, c: &Case, what: &str, ptr: CUdeviceptr) {
        let sync = word(ptr, SYNC_MEMOPS);
        c.same(
            format_args!("{what}: SYNC_MEMOPS"),
            sync,
            Ok(self.sync_memops),
        );
        let access = word(ptr, ACCESS_FLAGS);
        c.same(format_args!("{what}: access"), access, Ok(self.access));
        let pool = long(ptr, MEMPOOL_HANDLE).map(|pool| CUmemoryPool(pool as usize));
        let want = self.pool.unwrap_or(CUmemoryPool::NULL);
        c.yes(format_args!("{what}: pool"), pool == Ok(want));
        let size = long(ptr, MAPPING_SIZE);
        c.same(
            format_args!("{what}: mapping"),
            size,
            Ok(self.mapping as u64),
        );
        let types = long(ptr, ALLOWED_HANDLE_TYPES);
        c.same(format_args!("{what}: handle types"), types, Ok(0));
        let base = long(ptr, MAPPING_BASE_ADDR).unwrap_or(0);
        let inside = base <= ptr && ptr < base + self.mapping as u64;
        c.yes(format_args!("{what}: it is in its mapping"), inside);
        let block = long(ptr, MEMORY_BLOCK_ID);
        c.yes(format_args!("{what}: has physical memory"), block.is_ok());
    }
}

const PLAIN: Facts = Facts {
    sync_memops: 0,
    access: 3,
    pool: None,
    mapping: PAGE,
};

/// Device memory is mapped in whole pages.
fn device_memory(c: &Case) {
    primary(c);
    PLAIN.check(c, "5000 bytes", alloc(c, 5000) + 10);
    let large = Facts {
        mapping: 2 * PAGE,
        ..PLAIN
    };
    let ptr = alloc(c, 3 * MIB);
    large.check(c, "3 MiB", ptr);
    c.same_handle(
        "3 MiB: mapping starts",
        long(ptr, MAPPING_BASE_ADDR),
        Ok(ptr),
    );
    let far = ptr + 5 * MIB as u64 / 2;
    large.check(c, "3 MiB, in the second page", far);
    c.same_handle("its mapping starts", long(far, MAPPING_BASE_ADDR), Ok(ptr));
    c.same("decompression", word(ptr, IS_HW_DECOMPRESS_CAPABLE), Ok(1));
}

/// Stream-ordered memory is mapped in chunks of its pool.
fn stream_ordered_memory(c: &Case) {
    primary(c);
    let facts = Facts {
        pool: Some(default_pool(c)),
        mapping: 32 * MIB,
        ..PLAIN
    };
    let stream = independent(c);
    let first = alloc_async(c, 100, stream);
    let second = alloc_async(c, 20 * MIB, stream);
    let third = alloc_async(c, 20 * MIB, stream);
    for (what, ptr) in [
        ("100 bytes", first),
        ("20 MiB", second),
        ("20 MiB more", third),
    ] {
        facts.check(c, what, ptr);
        c.same_handle(
            format_args!("{what}: chunk"),
            long(ptr, MAPPING_BASE_ADDR),
            Ok(first),
        );
    }
    let end = third + 20 * MIB as u64 - 1;
    facts.check(c, "the end", end);
    let next = first + 32 * MIB as u64;
    c.same_handle("the end: chunk", long(end, MAPPING_BASE_ADDR), Ok(next));
    let block = |ptr| long(ptr, MEMORY_BLOCK_ID);
    c.yes("one chunk is one block", block(first) == block(third));
    c.no("two chunks are one block", block(first) == block(end));
    c.same(
        "decompression",
        word(first, IS_HW_DECOMPRESS_CAPABLE),
        Ok(0),
    );
}

/// Copies of managed memory are synchronous.
fn managed_memory(c: &Case) {
    primary(c);
    let facts = Facts {
        sync_memops: 1,
        ..PLAIN
    };
    facts.check(c, "5000 bytes", managed(c, 5000));
    let facts = Facts {
        mapping: 4 * PAGE,
        ..facts
    };
    facts.check(c, "8 MiB", managed(c, 8 * MIB));
}

/// Pinned memory is mapped in whole pages, registered memory as it is.
fn pinned_and_registered_memory(c: &Case) {
    primary(c);
    PLAIN.check(c, "pinned memory", pinned(c, 5000).addr() as u64);
    let ptr = pages(8192);
    c.require("register", cuMemHostRegister_v2(ptr.cast(), 8192, 0));
    let facts = Facts {
        mapping: 8192,
        ..PLAIN
    };
    facts.check(c, "registered memory", ptr.addr() as u64 + 10);
}

/// Memory of a host pool has a device address once devices have access.
fn host_pool_memory(c: &Case) {
    primary(c);
    let props = CUmemPoolProps {
        allocType: mem_allocation_type::PINNED,
        location: CUmemLocation {
            type_: mem_location_type::HOST,
            id: 0,
        },
        ..CUmemPoolProps::default()
    };
    let (mut pool, mut ptr) = (CUmemoryPool::NULL, 0);
    c.require("create", cuMemPoolCreate(&mut pool, &props));
    let stream = independent(c);
    c.require(
        "allocate",
        cuMemAllocFromPoolAsync(&mut ptr, 5000, pool, stream),
    );
    let facts = Facts {
        pool: Some(pool),
        mapping: 32 * MIB,
        ..PLAIN
    };
    facts.check(c, "host pool", ptr);
    c.same("type", word(ptr, MEMORY_TYPE), Ok(memory_type::HOST as i32));
    c.same_handle("host address", long(ptr, HOST_POINTER), Ok(ptr));
    let device = long(ptr, DEVICE_POINTER);
    c.same("device address", device, Err(Code::INVALID_VALUE));
    c.same("context", long(ptr, CONTEXT), Ok(0));
    c.same("managed", word(ptr, IS_MANAGED), Ok(0));
    c.same("size", long(ptr, RANGE_SIZE), Ok(5000));
    let access = CUmemAccessDesc {
        location: CUmemLocation {
            type_: mem_location_type::DEVICE,
            id: 0,
        },
        flags: mem_access_flags::READWRITE,
    };
    c.require("allow access", cuMemPoolSetAccess(pool, &access, 1));
    c.same_handle("device address then", long(ptr, DEVICE_POINTER), Ok(ptr));
}

/// Maps 2 MiB of physical memory at the start of 8 MiB of addresses.
fn map(c: &Case) -> (CUdeviceptr, CUmemGenericAllocationHandle) {
    let prop = CUmemAllocationProp {
        type_: mem_allocation_type::PINNED,
        location: CUmemLocation {
            type_: mem_location_type::DEVICE,
            id: 0,
        },
        ..CUmemAllocationProp::default()
    };
    let (mut handle, mut ptr) = (0, 0);
    c.require("cuMemCreate", cuMemCreate(&mut handle, PAGE, &prop, 0));
    let result = cuMemAddressReserve(&mut ptr, 4 * PAGE, 0, 0, 0);
    c.require("cuMemAddressReserve", result);
    c.require("cuMemMap", cuMemMap(ptr, PAGE, 0, handle, 0));
    (ptr, handle)
}

/// A mapping has no access at first. All mappings of physical memory are one block.
fn mapped_memory(c: &Case) {
    primary(c);
    let (ptr, handle) = map(c);
    let facts = Facts { access: 0, ..PLAIN };
    facts.check(c, "without access", ptr + 10);
    let access = CUmemAccessDesc {
        location: CUmemLocation {
            type_: mem_location_type::DEVICE,
            id: 0,
        },
        flags: mem_access_flags::READWRITE,
    };
    c.require("cuMemSetAccess", cuMemSetAccess(ptr, PAGE, &access, 1));
    PLAIN.check(c, "with access", ptr + 10);
    c.same_handle("mapping starts", long(ptr + 10, MAPPING_BASE_ADDR), Ok(ptr));
    c.same_handle("range starts", long(ptr + 10, RANGE_START_ADDR), Ok(ptr));
    c.same("range", long(ptr + 10, RANGE_SIZE), Ok(4 * PAGE as u64));
    let mut second = 0;
    c.require("reserve", cuMemAddressReserve(&mut second, PAGE, 0, 0, 0));
    c.require("map again", cuMemMap(second, PAGE, 0, handle, 0));
    let block = |ptr| long(ptr, MEMORY_BLOCK_ID);
    c.yes("one block", block(ptr) == block(second));
}

/// Addresses without memory have no attributes, but many at once return the range.
fn reserved_addresses(c: &Case) {
    primary(c);
    let (ptr, _) = map(c);
    let beyond = ptr + 3 * MIB as u64;
    for which in (1..=20).filter(|which| *which != P2P_TOKENS) {
        let got = long(beyond, which);
        c.same(
            format_args!("attribute {which}"),
            got,
            Err(Code::INVALID_VALUE),
        );
    }
    let (mut base, mut size, mut mapped) = (77_u64, 77_u64, 77_i32);
    let mut which = [RANGE_START_ADDR, RANGE_SIZE, MAPPED];
    let mut data = [
        (&raw mut base).cast(),
        (&raw mut size).cast(),
        (&raw mut mapped).cast(),
    ];
    let result = cuPointerGetAttributes(3, which.as_mut_ptr(), data.as_mut_ptr(), beyond);
    c.ok("many at once", result);
    let got = std::hint::black_box((base == ptr, size, mapped));
    c.same("start, size, mapped", got, (true, 4 * PAGE as u64, 0));
}

/// Small blocks in one page are one block of physical memory.
fn shared_pages(c: &Case) {
    primary(c);
    let (first, second, large) = (alloc(c, 100), alloc(c, 100), alloc(c, 3 * MIB));
    let block = |ptr| long(ptr, MEMORY_BLOCK_ID);
    c.yes("two small blocks", block(first) == block(second));
    let base = |ptr| long(ptr, MAPPING_BASE_ADDR);
    c.yes("one mapping", base(first) == base(second));
    c.no("a large block", block(first) == block(large));
    c.no(
        "their identity",
        long(first, BUFFER_ID) == long(second, BUFFER_ID),
    );
}

/// Device memory is shareable with processes and devices.
fn shareable(c: &Case) {
    primary(c);
    let want = i32::from(!c.on_simulation());
    let device = alloc(c, 5000);
    for which in [IS_LEGACY_CUDA_IPC_CAPABLE, IS_GPU_DIRECT_RDMA_CAPABLE] {
        let got = word(device, which);
        c.same(format_args!("device memory: {which}"), got, Ok(want));
        for (what, ptr) in [
            ("managed memory", managed(c, 5000)),
            ("pinned memory", pinned(c, 5000).addr() as u64),
            (
                "stream-ordered memory",
                alloc_async(c, 5000, CUstream::NULL),
            ),
        ] {
            c.same(format_args!("{what}: {which}"), word(ptr, which), Ok(0));
        }
    }
}

fn set(ptr: CUdeviceptr, which: u32, value: i32) -> CUresult {
    cuPointerSetAttribute((&raw const value).cast(), which, ptr)
}

/// SYNC_MEMOPS is set and unset, on all memory but mappings.
fn synchronous_operations(c: &Case) {
    primary(c);
    let registered = pages(8192);
    c.require("register", cuMemHostRegister_v2(registered.cast(), 8192, 0));
    for (what, ptr) in [
        ("device memory", alloc(c, 5000)),
        ("managed memory", managed(c, 5000)),
        ("pinned memory", pinned(c, 5000).addr() as u64),
        ("registered memory", registered.addr() as u64),
        (
            "stream-ordered memory",
            alloc_async(c, 5000, CUstream::NULL),
        ),
    ] {
        c.ok(format_args!("{what}: set"), set(ptr, SYNC_MEMOPS, 1));
        for other in [0, CONTEXT, P2P_TOKENS, BUFFER_ID, IS_MANAGED, 99] {
            let result = set(ptr, other, 1);
            c.invalid(format_args!("{what}: set attribute {other}"), result);
        }
    }
    let ptr = alloc(c, 5000);
    for (value, want) in [(1, 1), (0, 0), (2, 1)] {
        c.ok(format_args!("set {value}"), set(ptr, SYNC_MEMOPS, value));
        c.same(
            format_args!("after {value}"),
            word(ptr, SYNC_MEMOPS),
            Ok(want),
        );
    }
    c.require("no context", cuCtxSetCurrent(CUcontext::NULL));
    c.ok("without a context", set(ptr, SYNC_MEMOPS, 1));
}

/// It cannot be set on mappings and on what is no memory.
fn synchronous_operations_errors(c: &Case) {
    primary(c);
    let (mapped, _) = map(c);
    for which in [0, CONTEXT, SYNC_MEMOPS, 99] {
        let result = set(mapped, which, 1);
        c.expect(
            format_args!("mapping: {which}"),
            result,
            Code::NOT_SUPPORTED,
        );
        let ordinary = pages(8192).addr() as u64;
        c.invalid(
            format_args!("ordinary memory: {which}"),
            set(ordinary, which, 1),
        );
        c.invalid(format_args!("null: {which}"), set(0, which, 1));
    }
    let ptr = alloc(c, 100);
    let result = cuPointerSetAttribute(std::ptr::null(), SYNC_MEMOPS, ptr);
    c.invalid("from null", result);
}

/// Where there is no address on the other side, or no context for it, null is written.
fn no_address_on_the_other_side(c: &Case) {
    primary(c);
    let (device, host) = (alloc(c, 100), pinned(c, 100).addr() as u64);
    let (mapped, _) = map(c);
    for (what, ptr, which) in [
        ("host address of device memory", device, HOST_POINTER),
        ("host address of a mapping", mapped, HOST_POINTER),
        ("device address without access", mapped, DEVICE_POINTER),
    ] {
        let mut value = 77_u64;
        let result = cuPointerGetAttribute((&raw mut value).cast(), which, ptr);
        c.invalid(what, result);
        c.same(
            format_args!("{what}: written"),
            std::hint::black_box(value),
            0,
        );
    }
    c.require("no context", cuCtxSetCurrent(CUcontext::NULL));
    for (what, ptr) in [("device memory", device), ("pinned memory", host)] {
        let mut value = 77_u64;
        let result = cuPointerGetAttribute((&raw mut value).cast(), DEVICE_POINTER, ptr);
        c.expect(
            format_args!("{what}, no context"),
            result,
            Code::INVALID_CONTEXT,
        );
        c.same(
            format_args!("{what}: written"),
            std::hint::black_box(value),
            0,
        );
        let kind = word(ptr, MEMORY_TYPE);
        c.yes(format_args!("{what}: type, no context"), kind.is_ok());
    }
}

/// Many attributes of device memory at once. What fails alone is zero here.
fn many_of_device_memory(c: &Case) {
    primary(c);
    let ptr = alloc(c, 5000);
    let (mut kind, mut host, mut size, mut access) = (77_u32, 77_u64, 77_u64, 77_u32);
    let mut which = [MEMORY_TYPE, HOST_POINTER, RANGE_SIZE, ACCESS_FLAGS];
    let mut data = [
        (&raw mut kind).cast(),
        (&raw mut host).cast(),
        (&raw mut size).cast(),
        (&raw mut access).cast(),
    ];
    let mut get = || cuPointerGetAttributes(4, which.as_mut_ptr(), data.as_mut_ptr(), ptr);
    c.ok("with a context", get());
    c.require("no context", cuCtxSetCurrent(CUcontext::NULL));
    c.ok("without a context", get());
    let got = std::hint::black_box((kind, host, size, access));
    c.same("their values", got, (memory_type::DEVICE, 0, 5000, 3));
}

/// Unknown addresses: the host address is itself, the range is not written, the rest is zero.
fn many_of_unknown_addresses(c: &Case) {
    primary(c);
    let ordinary = pages(8192).addr() as u64;
    for (what, ptr) in [("ordinary memory", ordinary), ("null", 0)] {
        for which in (1..=20).filter(|which| *which != P2P_TOKENS) {
            let mut value = 0x7777_7777_7777_7777_u64;
            let (mut one, mut place) = (which, (&raw mut value).cast());
            let result = cuPointerGetAttributes(1, &mut one, &mut place, ptr);
            c.ok(format_args!("{what}: attribute {which}"), result);
            let value = std::hint::black_box(value);
            let kept = 0x7777_7777_0000_0000;
            let want = match which {
                HOST_POINTER => ptr,
                DEVICE_ORDINAL => kept | 0xffff_fffe,
                RANGE_START_ADDR | RANGE_SIZE => 0x7777_7777_7777_7777,
                MEMORY_TYPE
                | SYNC_MEMOPS
                | IS_MANAGED
                | IS_LEGACY_CUDA_IPC_CAPABLE
                | MAPPED
                | IS_GPU_DIRECT_RDMA_CAPABLE
                | ACCESS_FLAGS => kept,
                _ => 0,
            };
            c.yes(format_args!("{what}: value of {which}"), value == want);
        }
    }
}

/// What many at once does not accept.
fn many_errors(c: &Case) {
    primary(c);
    let ptr = alloc(c, 100);
    let mut value = 0_u64;
    let get = |which: u32, place: *mut c_void, count: u32, ptr| {
        let (mut which, mut place) = (which, place);
        cuPointerGetAttributes(count, &mut which, &mut place, ptr)
    };
    let place = (&raw mut value).cast();
    c.invalid("none", get(MEMORY_TYPE, place, 0, ptr));
    c.invalid("attribute 99", get(99, place, 1, ptr));
    c.invalid("attribute 99 of no memory", get(99, place, 1, 0x1234));
    c.invalid("into null", get(MEMORY_TYPE, std::ptr::null_mut(), 1, ptr));
    c.invalid("tokens", get(P2P_TOKENS, place, 1, ptr));
    c.same("attribute 0 alone", long(ptr, 0), Err(Code::INVALID_VALUE));
    c.same(
        "attribute 22 alone",
        long(ptr, 22),
        Err(Code::INVALID_VALUE),
    );
}
