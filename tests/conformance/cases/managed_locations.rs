//! Advice and prefetches of managed memory by location, and its association with streams.

use super::ranges::{DEVICE, location};
use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;
use mem_advise::*;
use mem_range_attribute::*;

cases! {"managed_locations":
    advice_by_location,
    advice_without_location,
    prefetch_by_location,
    errors,
    attached_to_a_stream,
}

const SIZE: usize = 4 * MIB;

fn at(type_: u32, id: i32) -> CUmemLocation {
    CUmemLocation { type_, id }
}

const GPU: u32 = mem_location_type::DEVICE;
const HOST: u32 = mem_location_type::HOST;
const NODE: u32 = mem_location_type::HOST_NUMA;
const CURRENT_NODE: u32 = mem_location_type::HOST_NUMA_CURRENT;

/// The preferred location and the accessors are locations.
fn advice_by_location(c: &Case) {
    primary(c);
    let ptr = managed(c, SIZE);
    let set = |advice, location| cuMemAdvise_v2(ptr, SIZE, advice, location);
    c.ok("prefer the GPU", set(SET_PREFERRED_LOCATION, at(GPU, 0)));
    c.same("preferred", location(PREFERRED_LOCATION, ptr, SIZE), DEVICE);
    c.ok("prefer the host", set(SET_PREFERRED_LOCATION, at(HOST, 5)));
    let host = [Ok(-1), Ok(2), Ok(-1)];
    c.same("preferred", location(PREFERRED_LOCATION, ptr, SIZE), host);
    c.ok("accessed by the GPU", set(SET_ACCESSED_BY, at(GPU, 0)));
    c.ok("accessed by the host", set(SET_ACCESSED_BY, at(HOST, 0)));
    let mut list = [77_i32; 3];
    let result = cuMemRangeGetAttribute(list.as_mut_ptr().cast(), 12, ACCESSED_BY, ptr, SIZE);
    c.ok("cuMemRangeGetAttribute", result);
    list.sort_unstable();
    c.same("accessed by", list, [-2, -1, 0]);
}

/// Advice that needs no device takes any of a known type.
fn advice_without_location(c: &Case) {
    primary(c);
    let ptr = managed(c, SIZE);
    for (what, advice) in [
        ("mostly read", SET_READ_MOSTLY),
        ("no longer", UNSET_READ_MOSTLY),
        ("no preference", UNSET_PREFERRED_LOCATION),
    ] {
        for type_ in [GPU, HOST, NODE, CURRENT_NODE] {
            let result = cuMemAdvise_v2(ptr, SIZE, advice, at(type_, 99));
            c.ok(format_args!("{what}, type {type_}"), result);
        }
        for type_ in [0, 5, 99] {
            let result = cuMemAdvise_v2(ptr, SIZE, advice, at(type_, 0));
            c.invalid(format_args!("{what}, type {type_}"), result);
        }
    }
}

/// Prefetches go to a device or to the host.
fn prefetch_by_location(c: &Case) {
    primary(c);
    let (ptr, stream) = (managed(c, SIZE), independent(c));
    let to = |location| cuMemPrefetchAsync_v2(ptr, SIZE, location, 0, stream);
    c.ok("to the GPU", to(at(GPU, 0)));
    c.same("last", location(LAST_PREFETCH_LOCATION, ptr, SIZE), DEVICE);
    c.ok("to the host", to(at(HOST, 7)));
    let host = [Ok(-1), Ok(2), Ok(-1)];
    c.same("last", location(LAST_PREFETCH_LOCATION, ptr, SIZE), host);
    c.ok("to the first node", to(at(NODE, 0)));
    wait_for(c, stream);
}

/// Memory, location, advice and flags are checked.
fn errors(c: &Case) {
    primary(c);
    let (ptr, plain) = (managed(c, SIZE), alloc(c, SIZE));
    let none = CUstream::NULL;
    let set = |ptr, count, advice, location| cuMemAdvise_v2(ptr, count, advice, location);
    let gpu = at(GPU, 0);
    c.invalid("advice 0", set(ptr, SIZE, 0, gpu));
    c.invalid("advice 7", set(ptr, SIZE, 7, gpu));
    c.invalid("0 bytes", set(ptr, 0, SET_READ_MOSTLY, gpu));
    c.invalid("too many", set(ptr, SIZE + 1, SET_READ_MOSTLY, gpu));
    c.invalid("device memory", set(plain, SIZE, SET_READ_MOSTLY, gpu));
    for (what, advice, location) in [
        ("prefer device 99", SET_PREFERRED_LOCATION, at(GPU, 99)),
        ("prefer node 99", SET_PREFERRED_LOCATION, at(NODE, 99)),
        ("prefer nothing", SET_PREFERRED_LOCATION, at(0, 0)),
        ("accessed by device 99", SET_ACCESSED_BY, at(GPU, 99)),
        ("accessed by node 0", SET_ACCESSED_BY, at(NODE, 0)),
        (
            "accessed by this node",
            SET_ACCESSED_BY,
            at(CURRENT_NODE, 0),
        ),
        ("no longer by device 99", UNSET_ACCESSED_BY, at(GPU, 99)),
    ] {
        c.invalid(what, set(ptr, SIZE, advice, location));
    }
    let to = |ptr, count, location, flags| cuMemPrefetchAsync_v2(ptr, count, location, flags, none);
    c.invalid("prefetch 0 bytes", to(ptr, 0, gpu, 0));
    c.invalid("prefetch too many", to(ptr, SIZE + 1, gpu, 0));
    c.invalid("prefetch device memory", to(plain, SIZE, gpu, 0));
    c.invalid("prefetch, flags 1", to(ptr, SIZE, gpu, 1));
    let result = to(ptr, SIZE, at(GPU, 99), 0);
    c.expect("prefetch to device 99", result, Code::INVALID_DEVICE);
    c.invalid("prefetch to node 99", to(ptr, SIZE, at(NODE, 99), 0));
    c.invalid("prefetch to nothing", to(ptr, SIZE, at(0, 0), 0));
}

/// An allocation is attached as a whole: to a stream, globally or to the host.
fn attached_to_a_stream(c: &Case) {
    primary(c);
    let (ptr, stream) = (managed(c, SIZE), independent(c));
    let attach = |ptr, length, flags| cuStreamAttachMemAsync(stream, ptr, length, flags);
    let (global, host, single) = (
        mem_attach_flags::GLOBAL,
        mem_attach_flags::HOST,
        mem_attach_flags::SINGLE,
    );
    for (what, flags) in [("single", single), ("host", host), ("global", global)] {
        c.ok(what, attach(ptr, 0, flags));
    }
    c.ok("with the length", attach(ptr, SIZE, single));
    c.invalid("a part", attach(ptr, SIZE / 2, single));
    c.invalid("within", attach(ptr + 4096, 0, single));
    c.invalid("two flags", attach(ptr, 0, global | host));
    let none = cuStreamAttachMemAsync(CUstream::NULL, ptr, 0, single);
    c.invalid("single, on the default stream", none);
    let legacy = cuStreamAttachMemAsync(CUstream::LEGACY, ptr, 0, single);
    c.ok("single, on the legacy stream by name", legacy);
    let plain = alloc(c, SIZE);
    c.invalid("device memory", attach(plain, 0, global));
    wait_for(c, stream);
}
