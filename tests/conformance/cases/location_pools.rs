//! Memory pools by location: of the host, of a NUMA node, of managed memory.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;
use mem_allocation_type::{MANAGED, PINNED};
use mem_location_type as kind;

cases! {"location_pools":
    default_pools,
    locations_without_pools,
    current_pool,
    wrong_arguments,
    create_pools,
    pools_that_cannot_be,
    current_pool_destroyed,
    attributes,
    without_a_context,
}

pub(crate) fn at(type_: u32, id: i32) -> CUmemLocation {
    CUmemLocation { type_, id }
}

fn create_result(pool: &mut CUmemoryPool, location: CUmemLocation, allocation: u32) -> CUresult {
    let props = CUmemPoolProps {
        allocType: allocation,
        location,
        ..CUmemPoolProps::default()
    };
    cuMemPoolCreate(pool, &props)
}

pub(crate) fn create(c: &Case, location: CUmemLocation, allocation: u32) -> CUmemoryPool {
    let mut pool = CUmemoryPool::NULL;
    let result = create_result(&mut pool, location, allocation);
    c.require("cuMemPoolCreate", result);
    pool
}

fn current(c: &Case, mut location: CUmemLocation, allocation: u32) -> CUmemoryPool {
    let mut pool = CUmemoryPool::NULL;
    let result = cuMemGetMemPool(&mut pool, &mut location, allocation);
    c.require("cuMemGetMemPool", result);
    pool
}

fn default(c: &Case, mut location: CUmemLocation, allocation: u32) -> CUmemoryPool {
    let mut pool = CUmemoryPool::NULL;
    let result = cuMemGetDefaultMemPool(&mut pool, &mut location, allocation);
    c.require("cuMemGetDefaultMemPool", result);
    pool
}

/// The locations that have pools, with their allocation types.
const LOCATIONS: [(&str, u32, u32); 7] = [
    ("device, pinned", kind::DEVICE, PINNED),
    ("host, pinned", kind::HOST, PINNED),
    ("NUMA node, pinned", kind::HOST_NUMA, PINNED),
    ("nowhere, managed", kind::NONE, MANAGED),
    ("device, managed", kind::DEVICE, MANAGED),
    ("host, managed", kind::HOST, MANAGED),
    ("NUMA node, managed", kind::HOST_NUMA, MANAGED),
];

/// Every location has a default pool, which is current at first and cannot be destroyed.
fn default_pools(c: &Case) {
    primary(c);
    for (what, type_, allocation) in LOCATIONS {
        let location = at(type_, 0);
        let pool = default(c, location, allocation);
        let now = current(c, location, allocation);
        c.yes(format_args!("{what}: current at first"), pool == now);
        let again = default(c, location, allocation);
        c.yes(format_args!("{what}: the same again"), pool == again);
        c.invalid(format_args!("{what}: destroy it"), cuMemPoolDestroy(pool));
    }
    let of_device = default(c, at(kind::DEVICE, 0), PINNED);
    c.yes("the device's default pool", of_device == default_pool(c));
    let of_host = default(c, at(kind::HOST, 0), PINNED);
    let other_id = default(c, at(kind::HOST, 77), PINNED);
    c.yes("the host has no number", of_host == other_id);
}

/// A location that does not exist has no pool; nothing is written.
fn locations_without_pools(c: &Case) {
    primary(c);
    for (what, location, allocation, want) in [
        ("type 0", at(kind::DEVICE, 0), 0, Code::INVALID_VALUE),
        ("type 3", at(kind::DEVICE, 0), 3, Code::INVALID_VALUE),
        (
            "nowhere, pinned",
            at(kind::NONE, 0),
            PINNED,
            Code::INVALID_VALUE,
        ),
        (
            "device -1",
            at(kind::DEVICE, -1),
            PINNED,
            Code::INVALID_VALUE,
        ),
        (
            "device 77",
            at(kind::DEVICE, 77),
            PINNED,
            Code::INVALID_VALUE,
        ),
        (
            "device 77, managed",
            at(kind::DEVICE, 77),
            MANAGED,
            Code::INVALID_VALUE,
        ),
        (
            "NUMA node -1",
            at(kind::HOST_NUMA, -1),
            PINNED,
            Code::INVALID_VALUE,
        ),
        (
            "NUMA node 77",
            at(kind::HOST_NUMA, 77),
            MANAGED,
            Code::INVALID_VALUE,
        ),
        (
            "current NUMA node",
            at(kind::HOST_NUMA_CURRENT, 0),
            PINNED,
            Code::NOT_SUPPORTED,
        ),
        (
            "current NUMA node, managed",
            at(kind::HOST_NUMA_CURRENT, 0),
            MANAGED,
            Code::NOT_SUPPORTED,
        ),
        (
            "invisible",
            at(kind::INVISIBLE, 0),
            PINNED,
            Code::NOT_SUPPORTED,
        ),
        (
            "invisible, type 0",
            at(kind::INVISIBLE, 0),
            0,
            Code::NOT_SUPPORTED,
        ),
    ] {
        let mut location = location;
        let mut pool = CUmemoryPool(7);
        let result = cuMemGetDefaultMemPool(&mut pool, &mut location, allocation);
        c.expect(format_args!("{what}: default pool"), result, want);
        let result = cuMemGetMemPool(&mut pool, &mut location, allocation);
        c.expect(format_args!("{what}: current pool"), result, want);
        c.yes(format_args!("{what}: not written"), pool == CUmemoryPool(7));
    }
}

/// A pool becomes current at its own location only.
fn current_pool(c: &Case) {
    primary(c);
    for (what, type_, allocation) in LOCATIONS {
        let mut location = at(type_, 0);
        let pool = create(c, location, allocation);
        let result = cuMemSetMemPool(&mut location, allocation, pool);
        c.ok(format_args!("{what}: set"), result);
        let now = current(c, location, allocation);
        c.yes(format_args!("{what}: it is current"), now == pool);
        for (other, type_, allocation) in LOCATIONS[..2].iter().filter(|other| other.0 != what) {
            let result = cuMemSetMemPool(&mut at(*type_, 0), *allocation, pool);
            c.invalid(format_args!("{what}: set at {other}"), result);
        }
        let first = default(c, location, allocation);
        let result = cuMemSetMemPool(&mut location, allocation, first);
        c.ok(format_args!("{what}: set the default pool"), result);
        c.ok(format_args!("{what}: destroy"), cuMemPoolDestroy(pool));
    }
    let host = create(c, at(kind::HOST, 0), PINNED);
    c.invalid("a host pool for the device", cuDeviceSetMemPool(0, host));
    let mut location = at(kind::HOST_NUMA_CURRENT, 0);
    let result = cuMemSetMemPool(&mut location, PINNED, host);
    c.expect("set at the current NUMA node", result, Code::NOT_SUPPORTED);
}

/// Null is an error everywhere.
fn wrong_arguments(c: &Case) {
    primary(c);
    let mut location = at(kind::DEVICE, 0);
    let none = std::ptr::null_mut();
    let mut pool = CUmemoryPool::NULL;
    let result = cuMemGetMemPool(none, &mut location, PINNED);
    c.invalid("current pool into null", result);
    let result = cuMemGetMemPool(&mut pool, std::ptr::null_mut(), PINNED);
    c.invalid("current pool of null", result);
    let result = cuMemGetDefaultMemPool(none, &mut location, PINNED);
    c.invalid("default pool into null", result);
    let result = cuMemSetMemPool(&mut location, PINNED, CUmemoryPool::NULL);
    c.invalid("set null", result);
    let result = cuMemSetMemPool(std::ptr::null_mut(), PINNED, default_pool(c));
    c.invalid("set at null", result);
    let props = CUmemPoolProps::default();
    c.invalid("create into null", cuMemPoolCreate(none, &props));
    let result = cuMemPoolCreate(&mut pool, std::ptr::null());
    c.invalid("create from null", result);
}

/// Pools of every location are created, empty, and destroyed.
fn create_pools(c: &Case) {
    primary(c);
    let more = [
        ("host 77, pinned", at(kind::HOST, 77), PINNED),
        (
            "current NUMA node, managed",
            at(kind::HOST_NUMA_CURRENT, 0),
            MANAGED,
        ),
        ("nowhere 77, managed", at(kind::NONE, 77), MANAGED),
    ];
    let all = LOCATIONS.map(|(what, type_, allocation)| (what, at(type_, 0), allocation));
    for (what, location, allocation) in all.into_iter().chain(more) {
        let mut pool = CUmemoryPool::NULL;
        let result = create_result(&mut pool, location, allocation);
        c.ok(format_args!("{what}: create"), result);
        c.same(format_args!("{what}: used"), used(c, pool), 0);
        c.same(format_args!("{what}: reserved"), reserved_kib(c, pool), 0);
        c.ok(format_args!("{what}: destroy"), cuMemPoolDestroy(pool));
    }
}

/// What is not a location, no allocation type, or not zero where it must be, is no pool.
fn pools_that_cannot_be(c: &Case) {
    primary(c);
    for (what, location, allocation, want) in [
        ("type 0", at(kind::DEVICE, 0), 0, Code::INVALID_VALUE),
        ("type 3", at(kind::HOST, 0), 3, Code::INVALID_VALUE),
        (
            "nowhere, pinned",
            at(kind::NONE, 0),
            PINNED,
            Code::INVALID_VALUE,
        ),
        (
            "device -1",
            at(kind::DEVICE, -1),
            PINNED,
            Code::INVALID_VALUE,
        ),
        (
            "device 77, managed",
            at(kind::DEVICE, 77),
            MANAGED,
            Code::INVALID_VALUE,
        ),
        (
            "NUMA node 77",
            at(kind::HOST_NUMA, 77),
            PINNED,
            Code::INVALID_VALUE,
        ),
        (
            "NUMA node -1, managed",
            at(kind::HOST_NUMA, -1),
            MANAGED,
            Code::INVALID_VALUE,
        ),
        (
            "current NUMA node, pinned",
            at(kind::HOST_NUMA_CURRENT, 0),
            PINNED,
            Code::INVALID_VALUE,
        ),
        (
            "invisible, pinned",
            at(kind::INVISIBLE, 0),
            PINNED,
            Code::INVALID_VALUE,
        ),
        (
            "invisible, managed",
            at(kind::INVISIBLE, 0),
            MANAGED,
            Code::NOT_SUPPORTED,
        ),
    ] {
        let mut pool = CUmemoryPool(7);
        c.expect(what, create_result(&mut pool, location, allocation), want);
        c.yes(format_args!("{what}: not written"), pool == CUmemoryPool(7));
    }
    let mut pool = CUmemoryPool::NULL;
    let mut props = CUmemPoolProps {
        allocType: PINNED,
        location: at(kind::DEVICE, 0),
        ..CUmemPoolProps::default()
    };
    for handle in [2, 4, 16] {
        props.handleTypes = handle;
        let result = cuMemPoolCreate(&mut pool, &props);
        c.invalid(format_args!("handle type {handle}"), result);
    }
    props.handleTypes = mem_allocation_handle_type::POSIX_FILE_DESCRIPTOR;
    props.location = at(kind::HOST, 0);
    let result = cuMemPoolCreate(&mut pool, &props);
    c.invalid("an exported pool of the host", result);
    props.handleTypes = 0;
    props.reserved[10] = 1;
    c.invalid("reserved bytes", cuMemPoolCreate(&mut pool, &props));
}

/// Without its current pool, a location has its default pool. A managed pool that is set for a device
/// is its managed pool.
fn current_pool_destroyed(c: &Case) {
    primary(c);
    let mut host = at(kind::HOST, 0);
    let pool = create(c, host, PINNED);
    c.require("set", cuMemSetMemPool(&mut host, PINNED, pool));
    let other_id = current(c, at(kind::HOST, 5), PINNED);
    c.yes("current whatever the id", other_id == pool);
    let node = current(c, at(kind::HOST_NUMA, 0), PINNED);
    c.no("current of the NUMA node", node == pool);
    c.ok("destroy", cuMemPoolDestroy(pool));
    let now = current(c, host, PINNED);
    c.yes(
        "the default pool is current",
        now == default(c, host, PINNED),
    );
    let device = at(kind::DEVICE, 0);
    let managed = create(c, device, MANAGED);
    c.ok(
        "a managed pool for the device",
        cuDeviceSetMemPool(0, managed),
    );
    let now = current(c, device, MANAGED);
    c.yes("it is the device's managed pool", now == managed);
    let now = current(c, device, PINNED);
    c.yes("the other is what it was", now == default_pool(c));
}

/// CUDA 13.0 has eight attributes of pools; those of later versions do not exist.
fn attributes(c: &Case) {
    primary(c);
    for (what, type_, allocation) in LOCATIONS {
        let pool = default(c, at(type_, 0), allocation);
        for which in 9..=16 {
            let mut value = 77_u64;
            let result = cuMemPoolGetAttribute(pool, which, (&raw mut value).cast());
            c.invalid(format_args!("{what}: attribute {which}"), result);
            c.same(format_args!("{what}: {which} not written"), value, 77);
            let result = set_pool_value(pool, which, 1);
            c.invalid(format_args!("{what}: set attribute {which}"), result);
        }
        for which in 1..=3 {
            let mut value = 77_i32;
            let result = cuMemPoolGetAttribute(pool, which, (&raw mut value).cast());
            c.ok(format_args!("{what}: attribute {which}"), result);
            let value = std::hint::black_box(value);
            c.same(format_args!("{what}: its value {which}"), value, 1);
        }
        let threshold = pool_value(c, pool, pool_attribute::RELEASE_THRESHOLD);
        c.same(format_args!("{what}: release threshold"), threshold, 0);
    }
}

/// Pools need no context.
fn without_a_context(c: &Case) {
    primary(c);
    c.require("no context", cuCtxSetCurrent(CUcontext::NULL));
    let mut pool = CUmemoryPool::NULL;
    let mut host = at(kind::HOST, 0);
    let result = cuMemGetDefaultMemPool(&mut pool, &mut at(kind::DEVICE, 0), PINNED);
    c.ok("default pool", result);
    let mut flags = 99;
    let result = cuMemPoolGetAccess(&mut flags, pool, &mut host);
    c.ok("access", result);
    c.ok("create", create_result(&mut pool, host, PINNED));
}
