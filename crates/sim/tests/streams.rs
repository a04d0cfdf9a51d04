//! Streams execute work in order, asynchronously; a copy is in flight until the program synchronizes.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::*;
use cuguard_sys::*;

#[test]
fn a_copy_from_pinned_memory_reads_it_when_its_turn_comes() {
    let _turn = turn();
    context();
    let (stream, device, host) = (stream(), alloc(4), pinned(4).cast::<u8>());
    // SAFETY: four bytes of this test, which the copy reads only once the gate is open.
    unsafe { host.cast::<u32>().write(1) };
    let gate = Gate::close(stream);
    ok(cu::cuMemcpyHtoDAsync_v2(device, host.cast(), 4, stream));
    assert_eq!(cu::cuStreamQuery(stream), CUresult::NOT_READY);
    // SAFETY: as above.
    unsafe { host.cast::<u32>().write(2) };
    gate.open();
    ok(cu::cuStreamSynchronize(stream));
    let mut seen = 0u32;
    ok(cu::cuMemcpyDtoH_v2((&raw mut seen).cast(), device, 4));
    assert_eq!(seen, 2, "the copy was in flight");
    release();
}

#[test]
fn a_copy_from_pageable_memory_has_read_it_on_return() {
    let _turn = turn();
    context();
    let (stream, device) = (stream(), alloc(4));
    let mut source = 1u32;
    let gate = Gate::close(stream);
    ok(cu::cuMemcpyHtoDAsync_v2(
        device,
        (&raw const source).cast(),
        4,
        stream,
    ));
    source += 1;
    assert_eq!(source, 2);
    gate.open();
    ok(cu::cuStreamSynchronize(stream));
    let mut seen = 0u32;
    ok(cu::cuMemcpyDtoH_v2((&raw mut seen).cast(), device, 4));
    assert_eq!(seen, 1);
    release();
}

#[test]
fn an_event_orders_two_streams() {
    let _turn = turn();
    context();
    let (first, second) = (stream(), stream());
    let device = alloc(4);
    let mut event = CUevent::NULL;
    ok(cu::cuEventCreate(&mut event, 0));
    let gate = Gate::close(first);
    ok(cu::cuMemsetD32Async(device, 1, 1, first));
    ok(cu::cuEventRecord(event, first));
    ok(cu::cuStreamWaitEvent(second, event, 0));
    ok(cu::cuMemsetD32Async(device, 2, 1, second));
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(cu::cuStreamQuery(second), CUresult::NOT_READY);
    gate.open();
    ok(cu::cuStreamSynchronize(second));
    let mut seen = 0u32;
    ok(cu::cuMemcpyDtoH_v2((&raw mut seen).cast(), device, 4));
    assert_eq!(seen, 2);
    release();
}

static ORDER: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn in_order(expected: *mut c_void) {
    let _ = ORDER.compare_exchange(
        expected as u32,
        expected as u32 + 1,
        Ordering::AcqRel,
        Ordering::Relaxed,
    );
}

#[test]
fn a_thousand_pieces_of_work_run_in_order_while_the_stream_is_destroyed() {
    let _turn = turn();
    context();
    let stream = stream();
    for number in 0..1000 {
        ok(cu::cuLaunchHostFunc(
            stream,
            Some(in_order),
            number as *mut c_void,
        ));
    }
    ok(cu::cuStreamDestroy_v2(stream));
    ok(cu::cuCtxSynchronize());
    assert_eq!(ORDER.load(Ordering::Acquire), 1000);
    release();
}

#[test]
fn many_threads_use_one_machine() {
    let _turn = turn();
    let context = context();
    std::thread::scope(|scope| {
        for number in 0..8u8 {
            scope.spawn(move || {
                ok(cu::cuCtxSetCurrent(context));
                let stream = stream();
                for round in 0..50 {
                    let (mut pooled, plain) = (0, alloc(1000));
                    ok(cu::cuMemAllocAsync(&mut pooled, 5000, stream));
                    ok(cu::cuMemsetD8Async(pooled, number, 5000, stream));
                    ok(cu::cuMemcpyDtoDAsync_v2(plain, pooled + 17, 1000, stream));
                    ok(cu::cuMemFreeAsync(pooled, stream));
                    ok(cu::cuStreamSynchronize(stream));
                    let mut seen = [0u8; 1000];
                    ok(cu::cuMemcpyDtoH_v2(seen.as_mut_ptr().cast(), plain, 1000));
                    assert_eq!(seen, [number; 1000], "round {round}");
                    ok(cu::cuMemFree_v2(plain));
                }
                ok(cu::cuStreamDestroy_v2(stream));
            });
        }
    });
    release();
    assert_eq!(cuguard_sim::counters().device_bytes_in_use, 0);
}
