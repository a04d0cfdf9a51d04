//! What belongs to the device and not to a context: pools with their blocks, and virtual memory.
//! It stays when contexts go. And what a pool only hoards, others can have.

use std::time::Duration;

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"lasting":
    stream_ordered_memory_over_a_reset,
    stream_ordered_memory_over_the_last_release,
    stream_ordered_memory_after_the_last_context,
    virtual_memory_over_a_reset,
    a_hoard_yields_to_plain_memory,
    a_hoard_yields_to_another_pool,
    a_free_nobody_waited_for_yields_to_nobody,
    a_free_nobody_waited_for_serves_its_own_pool,
}

/// A stream-ordered block is still there, with its contents, after the primary context was reset.
fn stream_ordered_memory_over_a_reset(c: &Case) {
    primary(c);
    let pool = default_pool(c);
    let ptr = alloc_async(c, MIB, CUstream::NULL);
    c.require("fill", cuMemsetD8_v2(ptr, 7, 16));
    c.ok("reset", cuDevicePrimaryCtxReset_v2(0));
    c.same("KiB that the pool holds", reserved_kib(c, pool), 32 * 1024);
    c.same("bytes in use", used(c, pool), MIB as u64);
    let context = retain(c, 0);
    c.require("make it current", cuCtxSetCurrent(context));
    c.same("the contents", read(c, ptr, 16), vec![7; 16]);
    c.ok("free", cuMemFree_v2(ptr));
    c.same("KiB that the pool holds then", reserved_kib(c, pool), 0);
}

/// The same when the primary context went with its last release.
fn stream_ordered_memory_over_the_last_release(c: &Case) {
    primary(c);
    let pool = default_pool(c);
    let ptr = alloc_async(c, MIB, CUstream::NULL);
    c.require("fill", cuMemsetD8_v2(ptr, 7, 16));
    c.ok("release", cuDevicePrimaryCtxRelease_v2(0));
    c.same("KiB that the pool holds", reserved_kib(c, pool), 32 * 1024);
    c.expect(
        "free while the dead context is current",
        cuMemFree_v2(ptr),
        Code::CONTEXT_IS_DESTROYED,
    );
    let context = retain(c, 0);
    c.require("make it current", cuCtxSetCurrent(context));
    c.same("the contents", read(c, ptr, 16), vec![7; 16]);
    c.ok("free", cuMemFree_v2(ptr));
    c.same("KiB that the pool holds then", reserved_kib(c, pool), 0);
}

/// It can be freed when the process has no context left at all.
fn stream_ordered_memory_after_the_last_context(c: &Case) {
    start(c);
    let context = create(c);
    let pool = default_pool(c);
    let ptr = alloc_async(c, MIB, CUstream::NULL);
    synchronize(c);
    c.ok("destroy the only context", cuCtxDestroy_v2(context));
    c.same("KiB that the pool holds", reserved_kib(c, pool), 32 * 1024);
    c.ok("free", cuMemFree_v2(ptr));
    c.same("KiB that the pool holds then", reserved_kib(c, pool), 0);
    c.invalid("free again", cuMemFree_v2(ptr));
}

/// Mapped physical memory is still there after the primary context was reset.
fn virtual_memory_over_a_reset(c: &Case) {
    const SIZE: usize = 4 * MIB;
    primary(c);
    let location = CUmemLocation {
        type_: virtual_memory::LOCATION_TYPE_DEVICE,
        id: 0,
    };
    let properties = CUmemAllocationProp {
        type_: virtual_memory::ALLOCATION_TYPE_PINNED,
        location,
        ..CUmemAllocationProp::default()
    };
    let access = CUmemAccessDesc {
        location,
        flags: virtual_memory::ACCESS_READWRITE,
    };
    let (mut handle, mut ptr) = (0, 0);
    c.require("create", cuMemCreate(&mut handle, SIZE, &properties, 0));
    c.require("reserve", cuMemAddressReserve(&mut ptr, SIZE, 0, 0, 0));
    c.require("map", cuMemMap(ptr, SIZE, 0, handle, 0));
    c.require("give access", cuMemSetAccess(ptr, SIZE, &access, 1));
    c.require("fill", cuMemsetD8_v2(ptr, 7, 16));
    c.ok("reset", cuDevicePrimaryCtxReset_v2(0));
    let context = retain(c, 0);
    c.require("make it current", cuCtxSetCurrent(context));
    c.same("the contents", read(c, ptr, 16), vec![7; 16]);
    c.ok("unmap", cuMemUnmap(ptr, SIZE));
    c.ok("release", cuMemRelease(handle));
    c.ok("give the addresses back", cuMemAddressFree(ptr, SIZE));
}

/// Has the default pool hold more than half of the card, none of it in use; says how much.
fn hoard(c: &Case, pool: CUmemoryPool) -> usize {
    let keep = set_pool_value(pool, pool_attribute::RELEASE_THRESHOLD, u64::MAX);
    c.require("keep everything", keep);
    let bytes = free_bytes(c) / 5 * 3;
    let ptr = alloc_async(c, bytes, CUstream::NULL);
    free_async(c, ptr, CUstream::NULL);
    wait_for(c, CUstream::NULL);
    let reserved = pool_value(c, pool, pool_attribute::RESERVED_MEM_CURRENT);
    c.yes("the pool keeps it", reserved >= bytes as u64);
    bytes
}

/// `cuMemAlloc` gets what a pool keeps without using it.
fn a_hoard_yields_to_plain_memory(c: &Case) {
    primary(c);
    let pool = default_pool(c);
    let bytes = hoard(c, pool);
    c.yes("less than that is free", free_bytes(c) < bytes);
    let mut ptr = 0;
    c.ok("allocate as much", cuMemAlloc_v2(&mut ptr, bytes));
    c.same("KiB that the pool holds then", reserved_kib(c, pool), 0);
    c.ok("free", cuMemFree_v2(ptr));
}

/// And so does another pool.
fn a_hoard_yields_to_another_pool(c: &Case) {
    primary(c);
    let pool = default_pool(c);
    let bytes = hoard(c, pool);
    let other = another_pool(c);
    let mut ptr = 0;
    let result = cuMemAllocFromPoolAsync(&mut ptr, bytes, other, CUstream::NULL);
    c.ok("allocate as much from it", result);
    c.same("KiB that the first holds then", reserved_kib(c, pool), 0);
    free_async(c, ptr, CUstream::NULL);
    wait_for(c, CUstream::NULL);
}

fn another_pool(c: &Case) -> CUmemoryPool {
    let properties = CUmemPoolProps {
        allocType: virtual_memory::ALLOCATION_TYPE_PINNED,
        location: CUmemLocation {
            type_: virtual_memory::LOCATION_TYPE_DEVICE,
            id: 0,
        },
        ..CUmemPoolProps::default()
    };
    let mut other = CUmemoryPool::NULL;
    c.require("create a pool", cuMemPoolCreate(&mut other, &properties));
    other
}

/// Allocates more than half of the card on a stream, frees it there, and looks until the stream has
/// done so; says how much it was.
fn free_and_look(c: &Case, stream: CUstream) -> usize {
    let bytes = free_bytes(c) / 5 * 3;
    let ptr = alloc_async(c, bytes, stream);
    wait_for(c, stream);
    free_async(c, ptr, stream);
    while cuStreamQuery(stream) == Code::NOT_READY {
        std::thread::sleep(Duration::from_millis(1));
    }
    c.ok("the stream has done it", cuStreamQuery(stream));
    bytes
}

/// What was freed on a stream cannot be allocated again before someone waits for the stream, or for an event
/// after the free, however long the stream is done: not by `cuMemAlloc`, not by another pool, and a
/// trim does not help.
fn a_free_nobody_waited_for_yields_to_nobody(c: &Case) {
    primary(c);
    let (pool, stream, event) = (default_pool(c), independent(c), event(c, 0));
    let bytes = free_and_look(c, stream);
    c.require("record", cuEventRecord(event, stream));
    while cuEventQuery(event) == Code::NOT_READY {
        std::thread::sleep(Duration::from_millis(1));
    }
    c.ok("an event after the free has happened", cuEventQuery(event));
    c.same("bytes in use", used(c, pool), 0);
    let mut ptr = 0;
    let plain = cuMemAlloc_v2(&mut ptr, bytes);
    c.expect("allocate as much", plain, Code::OUT_OF_MEMORY);
    let other = another_pool(c);
    let pooled = cuMemAllocFromPoolAsync(&mut ptr, bytes, other, stream);
    c.expect("from another pool", pooled, Code::OUT_OF_MEMORY);
    c.ok("trim", cuMemPoolTrimTo(pool, 0));
    let plain = cuMemAlloc_v2(&mut ptr, bytes);
    c.expect("allocate as much", plain, Code::OUT_OF_MEMORY);
    c.ok("wait for the event", cuEventSynchronize(event));
    c.same("KiB that the pool holds then", reserved_kib(c, pool), 0);
    c.ok("allocate as much", cuMemAlloc_v2(&mut ptr, bytes));
    c.ok("free", cuMemFree_v2(ptr));
}

/// The pool itself looks how far its streams are.
fn a_free_nobody_waited_for_serves_its_own_pool(c: &Case) {
    primary(c);
    let (stream, other) = (independent(c), independent(c));
    let bytes = free_and_look(c, stream) / 6 * 7;
    let mut ptr = 0;
    let result = cuMemAllocAsync(&mut ptr, bytes, other);
    c.ok("allocate a sixth more on another stream", result);
    free_async(c, ptr, other);
    wait_for(c, other);
    wait_for(c, stream);
}
