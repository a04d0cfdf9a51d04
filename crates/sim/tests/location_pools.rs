//! Pools of host and managed memory, and batches of copies: what is in flight, what is counted.

mod common;

use common::*;
use cuguard_sim::counters;
use cuguard_sys::*;

fn location(type_: u32) -> CUmemLocation {
    CUmemLocation { type_, id: 0 }
}

fn host_pool() -> CUmemoryPool {
    let props = CUmemPoolProps {
        allocType: mem_allocation_type::PINNED,
        location: location(mem_location_type::HOST),
        ..CUmemPoolProps::default()
    };
    let mut pool = CUmemoryPool::NULL;
    ok(cu::cuMemPoolCreate(&mut pool, &props));
    pool
}

fn read(device: CUdeviceptr) -> u32 {
    let mut seen = 0_u32;
    ok(cu::cuMemcpyDtoH_v2((&raw mut seen).cast(), device, 4));
    std::hint::black_box(seen)
}

/// What a copy of a batch sees of a pinned source that changes after the call.
fn seen_with(order: u32) -> u32 {
    let (stream, mut device, host) = (stream(), alloc(4), pinned(4).cast::<u32>());
    // SAFETY: four bytes of this test, which the copy reads during the call or once the gate is open.
    unsafe { host.write(1) };
    let gate = Gate::close(stream);
    let (mut source, mut size, mut start) = (host as u64, 4, 0);
    let mut attributes = CUmemcpyAttributes {
        srcAccessOrder: order,
        ..CUmemcpyAttributes::default()
    };
    ok(cu::cuMemcpyBatchAsync_v2(
        &mut device,
        &mut source,
        &mut size,
        1,
        &mut attributes,
        &mut start,
        1,
        stream,
    ));
    assert_eq!(cu::cuStreamQuery(stream), CUresult::NOT_READY);
    // SAFETY: as above.
    unsafe { host.write(2) };
    gate.open();
    ok(cu::cuStreamSynchronize(stream));
    read(device)
}

#[test]
fn the_order_of_access_decides_when_a_source_is_read() {
    let _turn = turn();
    context();
    assert_eq!(seen_with(memcpy_src_access_order::STREAM), 2);
    assert_eq!(seen_with(memcpy_src_access_order::DURING_API_CALL), 1);
    release();
}

#[test]
fn a_fill_of_host_pool_memory_is_in_flight_until_the_stream_gets_there() {
    let _turn = turn();
    context();
    let (pool, stream) = (host_pool(), stream());
    let access = CUmemAccessDesc {
        location: location(mem_location_type::DEVICE),
        flags: mem_access_flags::READWRITE,
    };
    ok(cu::cuMemPoolSetAccess(pool, &access, 1));
    let mut ptr = 0;
    ok(cu::cuMemAllocFromPoolAsync(&mut ptr, 16, pool, stream));
    ok(cu::cuStreamSynchronize(stream));
    let byte = ptr as *mut u8;
    // SAFETY: memory of this test, which the fill writes only once the gate is open.
    unsafe { byte.write_volatile(1) };
    let gate = Gate::close(stream);
    ok(cu::cuMemsetD8Async(ptr, 9, 16, stream));
    // SAFETY: as above.
    assert_eq!(unsafe { byte.read_volatile() }, 1);
    gate.open();
    ok(cu::cuStreamSynchronize(stream));
    // SAFETY: the fill is complete.
    assert_eq!(unsafe { byte.read_volatile() }, 9);
    ok(cu::cuMemFreeAsync(ptr, stream));
    ok(cu::cuMemPoolDestroy(pool));
    release();
}

#[test]
fn default_pools_of_locations_are_not_the_programs() {
    let _turn = turn();
    context();
    let before = counters().pools;
    let mut pool = CUmemoryPool::NULL;
    for (type_, allocation) in [
        (mem_location_type::HOST, mem_allocation_type::PINNED),
        (mem_location_type::NONE, mem_allocation_type::MANAGED),
    ] {
        let mut at = location(type_);
        ok(cu::cuMemGetDefaultMemPool(&mut pool, &mut at, allocation));
    }
    assert_eq!(counters().pools, before);
    let own = host_pool();
    assert_eq!(counters().pools, before + 1);
    ok(cu::cuMemPoolDestroy(own));
    assert_eq!(counters().pools, before);
    release();
}

#[test]
fn host_pools_use_no_device_memory() {
    let _turn = turn();
    context();
    let (pool, stream) = (host_pool(), stream());
    let before = free_bytes();
    let mut ptr = 0;
    ok(cu::cuMemAllocFromPoolAsync(
        &mut ptr,
        100 * MIB,
        pool,
        stream,
    ));
    assert_eq!(free_bytes(), before);
    ok(cu::cuMemPoolDestroy(pool));
    // The block outlives its pool.
    ok(cu::cuStreamSynchronize(stream));
    // SAFETY: both ends of the block.
    unsafe {
        (ptr as *mut u8).write_volatile(1);
        ((ptr + 100 * MIB as u64 - 1) as *mut u8).write_volatile(2);
    }
    ok(cu::cuMemFree_v2(ptr));
    release();
}
