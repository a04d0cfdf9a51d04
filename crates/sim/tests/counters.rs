//! Counters match what was allocated, and everything is released.

use crate::common::*;
use cuguard_sim::counters;
use cuguard_sys::*;

#[test]
fn every_kind_is_counted_and_teardown_leaves_nothing() {
    let _turn = turn();
    context();
    let own_cost = counters().device_bytes_in_use;
    let stream = stream();
    let mut event = CUevent::NULL;
    ok(cu::cuEventCreate(&mut event, 0));
    alloc(1000);
    alloc(5 * MIB);
    let mut pooled = 0;
    ok(cu::cuMemAllocAsync(&mut pooled, 300, stream));
    let mut pinned = std::ptr::null_mut();
    ok(cu::cuMemHostAlloc(&mut pinned, 4096, 0));
    let mut managed = 0;
    ok(cu::cuMemAllocManaged(&mut managed, 77, 1));
    let mut host = vec![0u8; 10_000];
    ok(cu::cuMemHostRegister_v2(
        host.as_mut_ptr().cast(),
        10_000,
        0,
    ));
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 100,
        Format: 0x20,
        NumChannels: 1,
        ..Default::default()
    };
    let mut array = CUarray::NULL;
    ok(cu::cuArray3DCreate_v2(&mut array, &descriptor));

    let now = counters();
    assert_eq!((now.contexts, now.streams, now.events), (1, 1, 1));
    assert_eq!(
        (now.device.count, now.device.bytes),
        (2, 1000 + 5 * MIB as u64)
    );
    assert_eq!((now.pooled.count, now.pooled.bytes), (1, 300));
    assert_eq!((now.pinned.count, now.pinned.bytes), (1, 4096));
    assert_eq!((now.managed.count, now.managed.bytes), (1, 77));
    assert_eq!((now.registered.count, now.registered.bytes), (1, 10_000));
    assert_eq!((now.arrays.count, now.arrays.bytes), (1, 400));
    assert_eq!(now.allocations().count, 6);
    assert!(now.calls_of("cuMemAlloc_v2") >= 2);
    // One page for the small block, three for the large one, one for the array, and a pool's chunk.
    let pages = (1 + 3 + 1) * 2 * MIB + 32 * MIB;
    assert_eq!(now.device_bytes_in_use - own_cost, pages as u64);

    ok(cu::cuMemFreeAsync(pooled, stream));
    ok(cu::cuStreamSynchronize(stream));
    release();
    let after = counters();
    assert_eq!((after.contexts, after.streams, after.events), (0, 0, 0));
    assert_eq!(after.allocations().count, 0);
    assert_eq!(after.registered.count, 0);
    assert_eq!(after.device_bytes_in_use, 0);
}

#[test]
fn free_memory_and_what_is_in_use_add_up_to_the_device() {
    let _turn = turn();
    context();
    let mut total = 0;
    ok(cu::cuDeviceTotalMem_v2(&mut total, 0));
    let blocks: Vec<_> = [1, 511, 4096, MIB, MIB + 1, 3 * MIB, 64 * MIB]
        .map(alloc)
        .into();
    assert_eq!(
        free_bytes() as u64 + counters().device_bytes_in_use,
        total as u64
    );
    for block in blocks {
        ok(cu::cuMemFree_v2(block));
    }
    release();
}

#[test]
fn a_function_that_is_not_simulated_says_so_and_is_counted() {
    let _turn = turn();
    context();
    let before = counters().calls_of("cuGLInit");
    assert_eq!(cu::cuGLInit(), CUresult::NOT_SUPPORTED);
    assert_eq!(counters().calls_of("cuGLInit"), before + 1);
    release();
}
