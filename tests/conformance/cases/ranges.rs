//! Attributes of ranges of managed memory: what advice and prefetches set.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;
use mem_advise::*;
use mem_range_attribute::*;

cases! {"ranges":
    at_first,
    not_managed,
    read_mostly,
    preferred_location,
    accessed_by,
    last_prefetch,
    sizes_of_values,
    many_at_once,
}

pub(crate) const SIZE: usize = 8 * MIB;

pub(crate) const HALF: usize = SIZE / 2;

const CPU: i32 = -1;

/// One number about a range, or the error.
fn value(which: u32, ptr: CUdeviceptr, count: usize) -> Result<i32, CUresult> {
    let mut value = 77_i32;
    let result = cuMemRangeGetAttribute((&raw mut value).cast(), 4, which, ptr, count);
    match result.is_success() {
        true => Ok(std::hint::black_box(value)),
        false => Err(result),
    }
}

/// Who accesses a range.
fn accessors(c: &Case, ptr: CUdeviceptr, count: usize) -> [i32; 3] {
    let mut list = [77_i32; 3];
    let result = cuMemRangeGetAttribute(list.as_mut_ptr().cast(), 12, ACCESSED_BY, ptr, count);
    c.require("cuMemRangeGetAttribute", result);
    std::hint::black_box(list)
}

/// Where a range is preferred or was prefetched: the device, the type, the id.
pub(crate) fn location(first: u32, ptr: CUdeviceptr, count: usize) -> [Result<i32, CUresult>; 3] {
    let (type_, id) = match first {
        PREFERRED_LOCATION => (PREFERRED_LOCATION_TYPE, PREFERRED_LOCATION_ID),
        _ => (LAST_PREFETCH_LOCATION_TYPE, LAST_PREFETCH_LOCATION_ID),
    };
    [first, type_, id].map(|which| value(which, ptr, count))
}

const NOWHERE: [Result<i32, CUresult>; 3] = [Ok(-2), Ok(0), Ok(-2)];

pub(crate) const DEVICE: [Result<i32, CUresult>; 3] = [Ok(0), Ok(1), Ok(0)];

const HOST: [Result<i32, CUresult>; 3] = [Ok(-1), Ok(2), Ok(-1)];

/// New memory has no advice.
fn at_first(c: &Case) {
    primary(c);
    let ptr = managed(c, SIZE);
    for (what, ptr, count) in [
        ("all", ptr, SIZE),
        ("1 byte", ptr, 1),
        ("within", ptr + 1, 10),
    ] {
        let mostly = value(READ_MOSTLY, ptr, count);
        c.same(format_args!("{what}: read-mostly"), mostly, Ok(0));
        let preferred = location(PREFERRED_LOCATION, ptr, count);
        c.same(format_args!("{what}: preferred"), preferred, NOWHERE);
        let prefetched = location(LAST_PREFETCH_LOCATION, ptr, count);
        c.same(format_args!("{what}: prefetched"), prefetched, NOWHERE);
        let list = accessors(c, ptr, count);
        c.same(format_args!("{what}: accessed by"), list, [-2; 3]);
    }
}

/// Only managed memory has these attributes, within one allocation.
fn not_managed(c: &Case) {
    primary(c);
    let ptr = managed(c, SIZE);
    let ordinary = pages(8192).addr() as u64;
    let pinned = pinned(c, 4096).addr() as u64;
    for which in 1..=8 {
        for (what, ptr, count) in [
            ("beyond the end", ptr, SIZE + 1),
            ("no bytes", ptr, 0),
            ("device memory", alloc(c, 4096), 4096),
            ("null", 0, 10),
            ("pinned memory", pinned, 4096),
            ("ordinary memory", ordinary, 4096),
            (
                "stream-ordered memory",
                alloc_async(c, 4096, CUstream::NULL),
                4096,
            ),
        ] {
            let got = value(which, ptr, count);
            c.same(
                format_args!("{what}: attribute {which}"),
                got,
                Err(Code::INVALID_VALUE),
            );
        }
    }
    for which in [0, 9] {
        let got = value(which, ptr, 4096);
        c.same(
            format_args!("attribute {which}"),
            got,
            Err(Code::INVALID_VALUE),
        );
    }
    c.require("no context", cuCtxSetCurrent(CUcontext::NULL));
    let got = value(READ_MOSTLY, ptr, 4096);
    c.same("without a context", got, Err(Code::INVALID_CONTEXT));
}

/// Read-mostly is true of a range if it is of all its pages. Advice is for whole pages.
fn read_mostly(c: &Case) {
    primary(c);
    let ptr = managed(c, SIZE);
    let half = HALF as u64;
    c.ok(
        "advise on the first half",
        cuMemAdvise(ptr, HALF, SET_READ_MOSTLY, 0),
    );
    c.same("all", value(READ_MOSTLY, ptr, SIZE), Ok(0));
    c.same("the first half", value(READ_MOSTLY, ptr, HALF), Ok(1));
    c.same(
        "the second half",
        value(READ_MOSTLY, ptr + half, HALF),
        Ok(0),
    );
    c.same(
        "the last byte",
        value(READ_MOSTLY, ptr + half - 1, 1),
        Ok(1),
    );
    c.ok("no more", cuMemAdvise(ptr, SIZE, UNSET_READ_MOSTLY, 0));
    c.same("the first half then", value(READ_MOSTLY, ptr, HALF), Ok(0));
    c.ok(
        "advise on 10 bytes",
        cuMemAdvise(ptr, 10, SET_READ_MOSTLY, 0),
    );
    c.same("their page", value(READ_MOSTLY, ptr, 4096), Ok(1));
    c.same("more than that", value(READ_MOSTLY, ptr, 65536), Ok(0));
    c.same("the next page", value(READ_MOSTLY, ptr + 4096, 1), Ok(0));
    c.ok("on no device", cuMemAdvise(ptr, 4096, SET_READ_MOSTLY, 9));
}

/// A range has a preferred location if all its pages have the same.
fn preferred_location(c: &Case) {
    primary(c);
    let ptr = managed(c, SIZE);
    let preferred = |count| location(PREFERRED_LOCATION, ptr, count);
    c.ok(
        "on the device",
        cuMemAdvise(ptr, SIZE, SET_PREFERRED_LOCATION, 0),
    );
    c.same("all", preferred(SIZE), DEVICE);
    c.ok(
        "half on the host",
        cuMemAdvise(ptr, HALF, SET_PREFERRED_LOCATION, CPU),
    );
    c.same("all then", preferred(SIZE), NOWHERE);
    c.same("the half", preferred(HALF), HOST);
    c.ok(
        "nowhere",
        cuMemAdvise(ptr, SIZE, UNSET_PREFERRED_LOCATION, 9),
    );
    c.same("all at last", preferred(SIZE), NOWHERE);
    for device in [9, -2] {
        let result = cuMemAdvise(ptr, 4096, SET_PREFERRED_LOCATION, device);
        c.expect(
            format_args!("on device {device}"),
            result,
            Code::INVALID_DEVICE,
        );
    }
}

/// A range is accessed by those that access all its pages: devices first, then the host.
fn accessed_by(c: &Case) {
    primary(c);
    let ptr = managed(c, SIZE);
    c.ok(
        "half by the host",
        cuMemAdvise(ptr, HALF, SET_ACCESSED_BY, CPU),
    );
    c.ok("by the device", cuMemAdvise(ptr, SIZE, SET_ACCESSED_BY, 0));
    c.same("all", accessors(c, ptr, SIZE), [0, -2, -2]);
    c.same("half", accessors(c, ptr, HALF), [0, CPU, -2]);
    c.ok(
        "not by the device",
        cuMemAdvise(ptr, SIZE, UNSET_ACCESSED_BY, 0),
    );
    c.same("all then", accessors(c, ptr, SIZE), [-2; 3]);
    c.same("half then", accessors(c, ptr, HALF), [CPU, -2, -2]);
    c.ok(
        "not by the host",
        cuMemAdvise(ptr, SIZE, UNSET_ACCESSED_BY, CPU),
    );
    c.same("half at last", accessors(c, ptr, HALF), [-2; 3]);
}

/// The last prefetch is known when it is submitted.
fn last_prefetch(c: &Case) {
    primary(c);
    let (ptr, stream) = (managed(c, SIZE), independent(c));
    let prefetched = |count| location(LAST_PREFETCH_LOCATION, ptr, count);
    c.ok("to the device", cuMemPrefetchAsync(ptr, SIZE, 0, stream));
    c.same("all", prefetched(SIZE), DEVICE);
    c.ok(
        "half to the host",
        cuMemPrefetchAsync(ptr, HALF, CPU, stream),
    );
    c.same("all then", prefetched(SIZE), NOWHERE);
    c.same("the half", prefetched(HALF), HOST);
    c.invalid("no bytes", cuMemPrefetchAsync(ptr, 0, 0, stream));
    for device in [9, -2] {
        let result = cuMemPrefetchAsync(ptr, 4096, device, stream);
        c.expect(
            format_args!("to device {device}"),
            result,
            Code::INVALID_DEVICE,
        );
    }
    wait_for(c, stream);
}

/// A value is 4 bytes, the list of accessors any number of values.
fn sizes_of_values(c: &Case) {
    primary(c);
    let ptr = managed(c, 4096);
    c.require("advise", cuMemAdvise(ptr, 4096, SET_ACCESSED_BY, 0));
    let mut list = [77_i32; 4];
    for which in 1..=8 {
        for size in [0, 3, 4, 6, 8, 16] {
            let place = list.as_mut_ptr().cast();
            let result = cuMemRangeGetAttribute(place, size, which, ptr, 4096);
            let whole = which == ACCESSED_BY && size > 0 && size.is_multiple_of(4);
            let want = match whole || size == 4 {
                true => Code::SUCCESS,
                false => Code::INVALID_VALUE,
            };
            c.expect(
                format_args!("attribute {which} in {size} bytes"),
                result,
                want,
            );
        }
    }
    let result = cuMemRangeGetAttribute(std::ptr::null_mut(), 4, READ_MOSTLY, ptr, 4096);
    c.invalid("into null", result);
}

/// Many attributes at once are written only if all are valid.
fn many_at_once(c: &Case) {
    primary(c);
    let (ptr, device) = (managed(c, 4096), alloc(c, 4096));
    let (mut mostly, mut prefetched) = (77_i32, 77_i32);
    let mut data = [(&raw mut mostly).cast(), (&raw mut prefetched).cast()];
    let mut sizes = [4_usize, 4];
    let mut which = [READ_MOSTLY, LAST_PREFETCH_LOCATION];
    let mut get = |ptr, count: usize, size: usize, second: u32, null: usize| {
        sizes[1] = size;
        which[1] = second;
        cuMemRangeGetAttributes(
            if null == 1 {
                std::ptr::null_mut()
            } else {
                data.as_mut_ptr()
            },
            if null == 2 {
                std::ptr::null_mut()
            } else {
                sizes.as_mut_ptr()
            },
            if null == 3 {
                std::ptr::null_mut()
            } else {
                which.as_mut_ptr()
            },
            count,
            ptr,
            4096,
        )
    };
    let last = LAST_PREFETCH_LOCATION;
    c.invalid("attribute 99", get(ptr, 2, 4, 99, 0));
    c.invalid("3 bytes", get(ptr, 2, 3, last, 0));
    c.invalid("no attributes", get(ptr, 0, 4, last, 0));
    c.invalid("device memory", get(device, 2, 4, last, 0));
    for (null, what) in (1..).zip(["values", "sizes", "attributes"]) {
        c.invalid(format_args!("no {what}"), get(ptr, 2, 4, last, null));
    }
    c.same("not written", std::hint::black_box(mostly), 77);
    c.ok("both", get(ptr, 2, 4, last, 0));
    let got = std::hint::black_box((mostly, prefetched));
    c.same("their values", got, (0, -2));
}
