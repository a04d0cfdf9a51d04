//! Memory of pools of the host and of managed pools, and which locations have access to it.

use super::location_pools::{at, create};
use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;
use mem_allocation_type::{MANAGED, PINNED};
use mem_location_type as kind;

cases! {"location_pool_memory":
    host_memory,
    access_and_blocks,
    managed_memory,
    preferred_location,
    access_of_device_pools,
    access_of_host_pools,
    access_of_managed_pools,
    access_arguments,
    maximum_size,
}

fn from_pool(c: &Case, pool: CUmemoryPool, bytes: usize, stream: CUstream) -> CUdeviceptr {
    let mut ptr = 0;
    let result = cuMemAllocFromPoolAsync(&mut ptr, bytes, pool, stream);
    c.require("cuMemAllocFromPoolAsync", result);
    c.require("wait", cuStreamSynchronize(stream));
    ptr
}

/// Memory of a host pool is the host's. Devices access it once the program allows it.
fn host_memory(c: &Case) {
    primary(c);
    let stream = independent(c);
    for (what, type_) in [("host", kind::HOST), ("NUMA node", kind::HOST_NUMA)] {
        let pool = create(c, at(type_, 0), PINNED);
        let mut ptr = 0;
        let taken = taken_kib(c, |c| ptr = from_pool(c, pool, 5000, stream));
        c.same(format_args!("{what}: device memory taken"), taken, 0);
        let kib = reserved_kib(c, pool);
        c.same(format_args!("{what}: KiB reserved"), kib, 32 * 1024);
        c.same(format_args!("{what}: used"), used(c, pool), 5000);
        poke(ptr, 42);
        poke(ptr + 4999, 43);
        let ends = (peek(ptr), peek(ptr + 4999));
        c.same(format_args!("{what}: the host reads"), ends, (42, 43));
        let mut byte = 0_u8;
        let result = cuMemcpyDtoH_v2((&raw mut byte).cast(), ptr, 1);
        c.invalid(format_args!("{what}: copy without access"), result);
        let result = cuMemsetD8Async(ptr, 9, 5000, stream);
        c.invalid(format_args!("{what}: fill without access"), result);
        let device = alloc(c, 16);
        let host = ptr as *mut c_void;
        let result = cuMemcpyHtoD_v2(device, host, 16);
        c.ok(format_args!("{what}: copy from it as host memory"), result);
        c.same(format_args!("{what}: copied"), read(c, device, 1), vec![42]);
        let result = cuMemcpyDtoH_v2(host, device, 16);
        c.ok(format_args!("{what}: copy to it as host memory"), result);
        let result = cuMemcpy(device, ptr, 16);
        c.ok(format_args!("{what}: copy between any memory"), result);
        let result = cuMemcpyDtoD_v2(device, ptr, 16);
        c.invalid(
            format_args!("{what}: copy from it as device memory"),
            result,
        );
        let (mut base, mut size) = (0, 0);
        let result = cuMemGetAddressRange_v2(&mut base, &mut size, ptr);
        c.expect(format_args!("{what}: its range"), result, Code::NOT_FOUND);
        let access = CUmemAccessDesc {
            location: at(kind::DEVICE, 0),
            flags: mem_access_flags::READWRITE,
        };
        let result = cuMemPoolSetAccess(pool, &access, 1);
        c.ok(format_args!("{what}: allow access"), result);
        let result = cuMemsetD8Async(ptr, 9, 5000, stream);
        c.ok(format_args!("{what}: fill"), result);
        wait_for(c, stream);
        let ends = (peek(ptr), peek(ptr + 4999));
        c.same(format_args!("{what}: filled"), ends, (9, 9));
        let result = cuMemcpyDtoH_v2((&raw mut byte).cast(), ptr, 1);
        c.invalid(format_args!("{what}: it is no device memory"), result);
        let result = cuMemsetD8_v2(ptr, 9, 5001);
        c.invalid(format_args!("{what}: fill too much"), result);
        let mut flags = 0;
        let result = cuMemHostGetFlags(&mut flags, ptr as *mut c_void);
        c.invalid(format_args!("{what}: flags"), result);
        let result = cuMemFreeHost(ptr as *mut c_void);
        c.invalid(format_args!("{what}: cuMemFreeHost"), result);
        c.ok(format_args!("{what}: free"), cuMemFreeAsync(ptr, stream));
        wait_for(c, stream);
        c.same(format_args!("{what}: used then"), used(c, pool), 0);
        let kib = reserved_kib(c, pool);
        c.same(format_args!("{what}: KiB reserved then"), kib, 0);
        let ptr = from_pool(c, pool, 40 * MIB, stream);
        let kib = reserved_kib(c, pool);
        c.same(format_args!("{what}: KiB for 40 MiB"), kib, 64 * 1024);
        c.ok(format_args!("{what}: cuMemFree"), cuMemFree_v2(ptr));
        c.ok(format_args!("{what}: destroy"), cuMemPoolDestroy(pool));
    }
}

/// What access is set holds for memory that is allocated later, and can be taken away.
fn access_and_blocks(c: &Case) {
    primary(c);
    let stream = independent(c);
    let (host, device) = (at(kind::HOST, 0), at(kind::DEVICE, 0));
    let pool = create(c, host, PINNED);
    c.require("allow", set_access(pool, device, 3));
    let ptr = from_pool(c, pool, 4096, stream);
    c.ok("fill a later block", cuMemsetD8_v2(ptr, 9, 4096));
    synchronize(c);
    c.same("filled", peek(ptr), 9);
    c.require("no access", set_access(pool, device, 0));
    c.invalid("fill without access", cuMemsetD8_v2(ptr, 9, 16));
    let mut none = 7;
    let result = cuMemAllocFromPoolAsync(&mut none, 1 << 44, pool, stream);
    c.expect("16 TiB", result, Code::OUT_OF_MEMORY);
    c.same("no address", none, 0);
    c.ok(
        "0 bytes",
        cuMemAllocFromPoolAsync(&mut none, 0, pool, stream),
    );
    c.ok("destroy the pool", cuMemPoolDestroy(pool));
    c.same("its block is there", peek(ptr), 9);
    c.ok("free the block", cuMemFreeAsync(ptr, stream));
}

/// Memory of a managed pool is shared by host and devices, whatever access is set.
fn managed_memory(c: &Case) {
    primary(c);
    let stream = independent(c);
    for type_ in [kind::NONE, kind::DEVICE, kind::HOST, kind::HOST_NUMA] {
        let pool = create(c, at(type_, 0), MANAGED);
        let mut ptr = 0;
        let taken = taken_kib(c, |c| ptr = from_pool(c, pool, 5000, stream));
        c.same(
            format_args!("location {type_}: device memory taken"),
            taken,
            0,
        );
        poke(ptr, 42);
        c.same(
            format_args!("location {type_}: the device reads"),
            read(c, ptr, 1),
            vec![42],
        );
        let result = cuMemsetD8Async(ptr, 9, 5000, stream);
        c.ok(format_args!("location {type_}: fill"), result);
        wait_for(c, stream);
        let ends = (peek(ptr), peek(ptr + 4999));
        c.same(
            format_args!("location {type_}: the host reads"),
            ends,
            (9, 9),
        );
        let result = cuMemsetD8_v2(ptr, 9, 5001);
        c.invalid(format_args!("location {type_}: fill too much"), result);
        let mut managed = 0_u32;
        let which = pointer_attribute::IS_MANAGED;
        let result = cuPointerGetAttribute((&raw mut managed).cast(), which, ptr);
        c.ok(format_args!("location {type_}: attribute"), result);
        c.same(format_args!("location {type_}: managed"), managed, 1);
        let result = cuMemFreeHost(ptr as *mut c_void);
        c.invalid(format_args!("location {type_}: cuMemFreeHost"), result);
        c.ok(
            format_args!("location {type_}: free"),
            cuMemFreeAsync(ptr, stream),
        );
        wait_for(c, stream);
        c.same(
            format_args!("location {type_}: reserved"),
            reserved_kib(c, pool),
            0,
        );
        c.ok(
            format_args!("location {type_}: destroy"),
            cuMemPoolDestroy(pool),
        );
    }
}

/// New memory of a managed pool is preferred where the pool is.
fn preferred_location(c: &Case) {
    use mem_range_attribute::*;
    primary(c);
    let stream = independent(c);
    for (type_, device, id) in [
        (kind::NONE, -2, -2),
        (kind::DEVICE, 0, 0),
        (kind::HOST, -1, 0),
        (kind::HOST_NUMA, -1, 0),
        (kind::HOST_NUMA_CURRENT, -1, 0),
    ] {
        let pool = create(c, at(type_, 0), MANAGED);
        let ptr = from_pool(c, pool, 5000, stream);
        for (which, want) in [
            (READ_MOSTLY, 0),
            (PREFERRED_LOCATION, device),
            (PREFERRED_LOCATION_TYPE, type_ as i32),
            (PREFERRED_LOCATION_ID, id),
            (LAST_PREFETCH_LOCATION, -2),
            (LAST_PREFETCH_LOCATION_TYPE, 0),
        ] {
            let mut value = 77_i32;
            let result = cuMemRangeGetAttribute((&raw mut value).cast(), 4, which, ptr, 4096);
            c.ok(
                format_args!("location {type_}: range attribute {which}"),
                result,
            );
            let what = format_args!("location {type_}: its value {which}");
            c.same(what, std::hint::black_box(value), want);
        }
        free_async(c, ptr, stream);
    }
}

fn access(c: &Case, pool: CUmemoryPool, location: CUmemLocation) -> u32 {
    let (mut flags, mut location) = (99, location);
    let result = cuMemPoolGetAccess(&mut flags, pool, &mut location);
    c.require("cuMemPoolGetAccess", result);
    flags
}

fn set_access(pool: CUmemoryPool, location: CUmemLocation, flags: u32) -> CUresult {
    cuMemPoolSetAccess(pool, &CUmemAccessDesc { location, flags }, 1)
}

/// A device has access to its own pools, always. The host has none.
fn access_of_device_pools(c: &Case) {
    primary(c);
    let device = at(kind::DEVICE, 0);
    let pool = create(c, device, PINNED);
    for (what, pool) in [("default pool", default_pool(c)), ("created pool", pool)] {
        c.same(format_args!("{what}: device"), access(c, pool, device), 3);
        for type_ in [kind::HOST, kind::HOST_NUMA] {
            let flags = access(c, pool, at(type_, 0));
            c.same(format_args!("{what}: location {type_}"), flags, 0);
        }
    }
    c.ok("allow", set_access(pool, device, 3));
    let result = set_access(pool, device, 1);
    c.expect("only read", result, Code::NOT_SUPPORTED);
    c.invalid("flags 2", set_access(pool, device, 2));
    let result = set_access(pool, device, 0);
    c.expect("no access", result, Code::INVALID_DEVICE);
    for type_ in [kind::NONE, kind::HOST, kind::HOST_NUMA] {
        let result = set_access(pool, at(type_, 0), 3);
        let what = format_args!("allow location {type_}");
        c.expect(what, result, Code::NOT_SUPPORTED);
    }
    c.same("device then", access(c, pool, device), 3);
}

/// The host has access to its pools, always; a device when it is allowed.
fn access_of_host_pools(c: &Case) {
    primary(c);
    let device = at(kind::DEVICE, 0);
    for type_ in [kind::HOST, kind::HOST_NUMA] {
        let pool = create(c, at(type_, 0), PINNED);
        let what = format!("location {type_}");
        c.same(format_args!("{what}: device"), access(c, pool, device), 0);
        c.ok(format_args!("{what}: allow"), set_access(pool, device, 3));
        c.same(
            format_args!("{what}: device then"),
            access(c, pool, device),
            3,
        );
        let result = set_access(pool, device, 1);
        c.expect(
            format_args!("{what}: only read"),
            result,
            Code::NOT_SUPPORTED,
        );
        c.ok(
            format_args!("{what}: no access"),
            set_access(pool, device, 0),
        );
        c.same(
            format_args!("{what}: device at last"),
            access(c, pool, device),
            0,
        );
        for own in [kind::HOST, kind::HOST_NUMA] {
            let host = at(own, 0);
            c.same(format_args!("{what}: host {own}"), access(c, pool, host), 3);
            c.ok(
                format_args!("{what}: allow host {own}"),
                set_access(pool, host, 3),
            );
            let result = set_access(pool, host, 0);
            c.expect(
                format_args!("{what}: no access for host {own}"),
                result,
                Code::NOT_SUPPORTED,
            );
        }
        c.invalid(
            format_args!("{what}: allow nowhere"),
            set_access(pool, at(kind::NONE, 0), 3),
        );
    }
}

/// Access to managed pools is only noted.
fn access_of_managed_pools(c: &Case) {
    primary(c);
    let pool = create(c, at(kind::NONE, 0), MANAGED);
    for type_ in [kind::DEVICE, kind::HOST, kind::HOST_NUMA] {
        let location = at(type_, 0);
        let what = format!("location {type_}");
        c.same(
            format_args!("{what}: at first"),
            access(c, pool, location),
            0,
        );
        c.ok(format_args!("{what}: allow"), set_access(pool, location, 3));
        c.same(format_args!("{what}: then"), access(c, pool, location), 3);
        let result = set_access(pool, location, 1);
        c.expect(
            format_args!("{what}: only read"),
            result,
            Code::NOT_SUPPORTED,
        );
        c.ok(
            format_args!("{what}: no access"),
            set_access(pool, location, 0),
        );
        c.same(
            format_args!("{what}: at last"),
            access(c, pool, location),
            0,
        );
        c.invalid(
            format_args!("{what}: flags 2"),
            set_access(pool, location, 2),
        );
    }
}

/// Locations that do not exist have no access, and cannot get it.
fn access_arguments(c: &Case) {
    primary(c);
    let pool = create(c, at(kind::HOST, 0), PINNED);
    let mut flags = 99;
    for (type_, id) in [
        (kind::NONE, 0),
        (kind::DEVICE, 5),
        (kind::HOST_NUMA_CURRENT, 0),
    ] {
        let result = cuMemPoolGetAccess(&mut flags, pool, &mut at(type_, id));
        c.invalid(format_args!("access of location {type_} {id}"), result);
    }
    c.same("not written", flags, 99);
    let mut device = at(kind::DEVICE, 0);
    let result = cuMemPoolGetAccess(std::ptr::null_mut(), pool, &mut device);
    c.invalid("access into null", result);
    let result = cuMemPoolGetAccess(&mut flags, CUmemoryPool::NULL, &mut device);
    c.invalid("access to no pool", result);
    let result = cuMemPoolGetAccess(&mut flags, pool, std::ptr::null_mut());
    c.invalid("access of null", result);
    let result = cuMemPoolSetAccess(pool, std::ptr::null(), 0);
    c.invalid("set access of nothing, from null", result);
    let result = cuMemPoolSetAccess(pool, std::ptr::null(), 1);
    c.invalid("set access from null", result);
    let result = set_access(pool, at(kind::DEVICE, 44), 3);
    c.expect("allow device 44", result, Code::INVALID_DEVICE);
}

/// A pool reserves at most its maximum size, in whole chunks of 32 MiB.
fn maximum_size(c: &Case) {
    primary(c);
    let stream = independent(c);
    for (max, chunks) in [(1, 1), (2 * MIB, 1), (33 * MIB, 2), (64 * MIB, 2)] {
        let props = CUmemPoolProps {
            allocType: PINNED,
            location: at(kind::DEVICE, 0),
            maxSize: max,
            ..CUmemPoolProps::default()
        };
        let mut pool = CUmemoryPool::NULL;
        c.ok(
            format_args!("{max}: create"),
            cuMemPoolCreate(&mut pool, &props),
        );
        let mut ptr = 0;
        for number in 0..chunks {
            let result = cuMemAllocFromPoolAsync(&mut ptr, 20 * MIB, pool, stream);
            c.ok(format_args!("{max}: block {number}"), result);
        }
        let kib = reserved_kib(c, pool);
        c.same(format_args!("{max}: KiB reserved"), kib, chunks * 32 * 1024);
        let result = cuMemAllocFromPoolAsync(&mut ptr, 40 * MIB, pool, stream);
        c.expect(format_args!("{max}: too much"), result, Code::OUT_OF_MEMORY);
        c.same(format_args!("{max}: no address"), ptr, 0);
        let kib = reserved_kib(c, pool);
        c.same(
            format_args!("{max}: KiB reserved then"),
            kib,
            chunks * 32 * 1024,
        );
        let result = cuMemAllocFromPoolAsync(&mut ptr, MIB, pool, stream);
        c.ok(format_args!("{max}: a block that fits"), result);
    }
}
