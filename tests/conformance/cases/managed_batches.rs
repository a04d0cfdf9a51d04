//! Batches of prefetches and discards of managed memory.

use super::ranges::{DEVICE, HALF, SIZE, location};
use crate::case::Case;
use crate::driver::*;
use crate::tools::*;
use mem_range_attribute::LAST_PREFETCH_LOCATION;

cases! {"managed_batches":
    prefetch_batch,
    prefetch_batch_arguments,
    prefetch_batch_stops,
    discard_batch,
    discard_batch_arguments,
    discard_and_prefetch_batch,
    memory_of_pools,
}

fn at(type_: u32, id: i32) -> CUmemLocation {
    CUmemLocation { type_, id }
}

/// The arguments of a batch of two halves.
struct Batch {
    ptrs: Vec<CUdeviceptr>,
    sizes: Vec<usize>,
    locations: Vec<CUmemLocation>,
    starts: Vec<usize>,
    flags: u64,
    stream: CUstream,
}

impl Batch {
    fn new(c: &Case, ptr: CUdeviceptr) -> Batch {
        Batch {
            ptrs: vec![ptr, ptr + HALF as u64],
            sizes: vec![HALF, HALF],
            locations: vec![at(1, 0), at(2, 0)],
            starts: vec![0, 1],
            flags: 0,
            stream: independent(c),
        }
    }

    fn prefetch(&mut self) -> CUresult {
        cuMemPrefetchBatchAsync(
            self.ptrs.as_mut_ptr(),
            self.sizes.as_mut_ptr(),
            self.ptrs.len(),
            self.locations.as_mut_ptr(),
            self.starts.as_mut_ptr(),
            self.starts.len(),
            self.flags,
            self.stream,
        )
    }

    fn discard(&mut self) -> CUresult {
        let (ptrs, sizes) = (self.ptrs.as_mut_ptr(), self.sizes.as_mut_ptr());
        cuMemDiscardBatchAsync(ptrs, sizes, self.ptrs.len(), self.flags, self.stream)
    }

    fn discard_and_prefetch(&mut self) -> CUresult {
        cuMemDiscardAndPrefetchBatchAsync(
            self.ptrs.as_mut_ptr(),
            self.sizes.as_mut_ptr(),
            self.ptrs.len(),
            self.locations.as_mut_ptr(),
            self.starts.as_mut_ptr(),
            self.starts.len(),
            self.flags,
            self.stream,
        )
    }
}

/// Each range is prefetched to its location. The id is kept as it is.
fn prefetch_batch(c: &Case) {
    primary(c);
    let ptr = managed(c, SIZE);
    let second = ptr + HALF as u64;
    let mut batch = Batch::new(c, ptr);
    c.ok("device and host", batch.prefetch());
    c.same(
        "device",
        location(LAST_PREFETCH_LOCATION, ptr, HALF),
        DEVICE,
    );
    let host = [Ok(-1), Ok(2), Ok(0)];
    c.same("host", location(LAST_PREFETCH_LOCATION, second, HALF), host);
    batch.starts = vec![0];
    c.ok("both to the device", batch.prefetch());
    c.same("all", location(LAST_PREFETCH_LOCATION, ptr, SIZE), DEVICE);
    batch.starts = vec![0, 1];
    for type_ in [3, 4] {
        batch.locations[1] = at(type_, 0);
        c.ok(format_args!("location {type_}"), batch.prefetch());
        let got = location(LAST_PREFETCH_LOCATION, second, HALF);
        c.same(
            format_args!("at {type_}"),
            got,
            [Ok(-1), Ok(type_ as i32), Ok(0)],
        );
    }
    wait_for(c, batch.stream);
    c.require("no context", cuCtxSetCurrent(CUcontext::NULL));
    c.ok("without a context", batch.prefetch());
}

/// What a batch of prefetches does not accept.
fn prefetch_batch_arguments(c: &Case) {
    primary(c);
    let ptr = managed(c, SIZE);
    let new = || Batch::new(c, ptr);
    let with = |change: fn(&mut Batch)| {
        let mut batch = new();
        change(&mut batch);
        batch.prefetch()
    };
    c.invalid(
        "default stream",
        with(|batch| batch.stream = CUstream::NULL),
    );
    c.invalid(
        "legacy stream",
        with(|batch| batch.stream = CUstream::LEGACY),
    );
    c.ok(
        "own stream",
        with(|batch| batch.stream = CUstream::PER_THREAD),
    );
    c.invalid("flags 1", with(|batch| batch.flags = 1));
    c.invalid("no ranges", with(|batch| batch.ptrs.clear()));
    c.invalid("no locations", with(|batch| batch.starts.clear()));
    c.invalid(
        "3 locations",
        with(|batch| {
            batch.locations.push(at(2, 0));
            batch.starts.push(2);
        }),
    );
    c.invalid("from the second", with(|batch| batch.starts = vec![1]));
    c.invalid("from the third", with(|batch| batch.starts = vec![0, 2]));
    c.invalid("no bytes", with(|batch| batch.sizes[1] = 0));
    c.invalid("too many bytes", with(|batch| batch.sizes[1] += 1));
    c.invalid("device 9", with(|batch| batch.locations[1] = at(1, 9)));
    c.invalid("NUMA node 9", with(|batch| batch.locations[1] = at(3, 9)));
    c.invalid("nowhere", with(|batch| batch.locations[1] = at(0, 0)));
    let mut batch = new();
    batch.ptrs[1] = alloc(c, HALF);
    c.invalid("device memory", batch.prefetch());
    batch.ptrs[1] = pages(HALF).addr() as u64;
    c.invalid("ordinary memory", batch.prefetch());

    let stream = batch.stream;
    let (ptrs, sizes) = (batch.ptrs.as_mut_ptr(), batch.sizes.as_mut_ptr());
    let (locations, starts) = (batch.locations.as_mut_ptr(), batch.starts.as_mut_ptr());
    let prefetch = cuMemPrefetchBatchAsync;
    c.invalid(
        "null ranges",
        prefetch(
            std::ptr::null_mut(),
            sizes,
            2,
            locations,
            starts,
            2,
            0,
            stream,
        ),
    );
    c.invalid(
        "null sizes",
        prefetch(
            ptrs,
            std::ptr::null_mut(),
            2,
            locations,
            starts,
            2,
            0,
            stream,
        ),
    );
    c.invalid(
        "null locations",
        prefetch(ptrs, sizes, 2, std::ptr::null_mut(), starts, 2, 0, stream),
    );
    c.invalid(
        "null starts",
        prefetch(
            ptrs,
            sizes,
            2,
            locations,
            std::ptr::null_mut(),
            2,
            0,
            stream,
        ),
    );
    synchronize(c);
}

/// Ranges before one that is too large are prefetched.
fn prefetch_batch_stops(c: &Case) {
    primary(c);
    let ptr = managed(c, SIZE);
    let mut batch = Batch::new(c, ptr);
    batch.locations = vec![at(2, 5), at(1, 0)];
    batch.sizes[1] += 1;
    c.invalid("prefetch", batch.prefetch());
    let got = location(LAST_PREFETCH_LOCATION, ptr, HALF);
    c.same("the first range", got, [Ok(-1), Ok(2), Ok(5)]);
    batch.sizes[1] -= 1;
    batch.locations = vec![at(1, 0), at(2, 0)];
    batch.starts = vec![0, 0];
    c.ok("two locations for the first", batch.prefetch());
    c.same(
        "the first holds",
        location(LAST_PREFETCH_LOCATION, ptr, SIZE),
        DEVICE,
    );
    wait_for(c, batch.stream);
}

/// What is discarded can be written again; what lies in pages that are not discarded whole, stays.
fn discard_batch(c: &Case) {
    primary(c);
    let ptr = managed(c, SIZE);
    c.require("fill", cuMemsetD8_v2(ptr, 5, SIZE));
    synchronize(c);
    let mut batch = Batch::new(c, ptr);
    batch.ptrs = vec![ptr + 100];
    batch.sizes = vec![10_000];
    c.ok("a part", batch.discard());
    wait_for(c, batch.stream);
    let around = (peek(ptr + 100), peek(ptr + 10_099));
    c.same("pages that are not discarded whole", around, (5, 5));
    let mut batch = Batch::new(c, ptr);
    c.ok("all", batch.discard());
    c.ok(
        "fill on the stream",
        cuMemsetD8Async(ptr, 6, SIZE, batch.stream),
    );
    wait_for(c, batch.stream);
    c.same(
        "written again",
        (peek(ptr), peek(ptr + SIZE as u64 - 1)),
        (6, 6),
    );
    batch.stream = CUstream::PER_THREAD;
    c.ok("own stream", batch.discard());
    synchronize(c);
}

/// What a batch of discards does not accept.
fn discard_batch_arguments(c: &Case) {
    primary(c);
    let ptr = managed(c, SIZE);
    let with = |change: fn(&mut Batch)| {
        let mut batch = Batch::new(c, ptr);
        change(&mut batch);
        batch.discard()
    };
    c.invalid(
        "default stream",
        with(|batch| batch.stream = CUstream::NULL),
    );
    c.invalid(
        "legacy stream",
        with(|batch| batch.stream = CUstream::LEGACY),
    );
    c.invalid("flags 1", with(|batch| batch.flags = 1));
    c.invalid("no ranges", with(|batch| batch.ptrs.clear()));
    c.invalid("no bytes", with(|batch| batch.sizes[0] = 0));
    c.invalid("too many bytes", with(|batch| batch.sizes[1] += 1));
    c.ok("few bytes", with(|batch| batch.sizes[0] = 10));
    for (what, other) in [
        ("device memory", alloc(c, 4096)),
        (
            "stream-ordered memory",
            alloc_async(c, 4096, CUstream::NULL),
        ),
        ("pinned memory", pinned(c, 4096).addr() as u64),
        ("ordinary memory", pages(8192).addr() as u64),
    ] {
        let mut batch = Batch::new(c, ptr);
        (batch.ptrs[1], batch.sizes[1]) = (other, 4096);
        c.invalid(what, batch.discard());
    }
    let mut batch = Batch::new(c, ptr);
    let (ptrs, sizes) = (batch.ptrs.as_mut_ptr(), batch.sizes.as_mut_ptr());

    let result = cuMemDiscardBatchAsync(std::ptr::null_mut(), sizes, 2, 0, batch.stream);
    c.invalid("null ranges", result);
    let result = cuMemDiscardBatchAsync(ptrs, std::ptr::null_mut(), 2, 0, batch.stream);
    c.invalid("null sizes", result);
    synchronize(c);
}

/// Discards and prefetches in one call.
fn discard_and_prefetch_batch(c: &Case) {
    primary(c);
    let ptr = managed(c, SIZE);
    let mut batch = Batch::new(c, ptr);
    c.ok("device and host", batch.discard_and_prefetch());
    c.same(
        "device",
        location(LAST_PREFETCH_LOCATION, ptr, HALF),
        DEVICE,
    );
    let got = location(LAST_PREFETCH_LOCATION, ptr + HALF as u64, HALF);
    c.same("host", got, [Ok(-1), Ok(2), Ok(0)]);
    let with = |change: fn(&mut Batch)| {
        let mut batch = Batch::new(c, ptr);
        change(&mut batch);
        batch.discard_and_prefetch()
    };
    c.invalid(
        "default stream",
        with(|batch| batch.stream = CUstream::NULL),
    );
    c.invalid("flags 1", with(|batch| batch.flags = 1));
    c.invalid("no ranges", with(|batch| batch.ptrs.clear()));
    c.invalid("no locations", with(|batch| batch.starts.clear()));
    (batch.ptrs[1], batch.sizes[1]) = (alloc(c, 4096), 4096);
    c.invalid("device memory", batch.discard_and_prefetch());
    synchronize(c);
}

/// Memory of a managed pool is prefetched and discarded like any managed memory.
fn memory_of_pools(c: &Case) {
    primary(c);
    let props = CUmemPoolProps {
        allocType: mem_allocation_type::MANAGED,
        ..CUmemPoolProps::default()
    };
    let (mut pool, mut ptr) = (CUmemoryPool::NULL, 0);
    c.require("create", cuMemPoolCreate(&mut pool, &props));
    let stream = independent(c);
    c.require(
        "allocate",
        cuMemAllocFromPoolAsync(&mut ptr, 8192, pool, stream),
    );
    c.ok("prefetch", cuMemPrefetchAsync(ptr, 8192, 0, stream));
    c.same(
        "prefetched",
        location(LAST_PREFETCH_LOCATION, ptr, 8192),
        DEVICE,
    );
    let mut batch = Batch::new(c, ptr);
    (batch.ptrs, batch.sizes, batch.stream) = (vec![ptr], vec![8192], stream);
    c.ok("discard", batch.discard());
    wait_for(c, stream);
}
