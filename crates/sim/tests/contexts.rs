//! Contexts that are destroyed while other contexts use their resources.

use std::time::{Duration, Instant};

use crate::common::*;
use cuguard_sim::counters;
use cuguard_sys::*;

/// Bytes of device memory that contexts and their allocations use.
fn in_use() -> u64 {
    counters().device_bytes_in_use
}

/// To destroy a context waits for the free, which is not done twice.
#[test]
fn memory_freed_on_another_contexts_stream_goes_with_its_own_context() {
    let _turn = turn();
    // A small block shares a page with others of its context, a large one has its own pages.
    for bytes in [1000, 5 * MIB] {
        let owner = create();
        let ptr = alloc(bytes);
        let other = create();
        let cost = in_use();
        let stream = stream();
        let gate = Gate::close(stream);
        ok(cu::cuMemFreeAsync(ptr, stream));
        let destroyer = std::thread::spawn(move || cu::cuCtxDestroy_v2(owner));
        eventually("the context closes", || {
            ok(cu::cuCtxSetCurrent(owner));
            cu::cuCtxSynchronize() == CUresult::CONTEXT_IS_DESTROYED
        });
        ok(cu::cuCtxSetCurrent(other));
        gate.open();
        ok(destroyer.join().unwrap());
        assert!(in_use() < cost);
        ok(cu::cuStreamSynchronize(stream));
        ok(cu::cuCtxDestroy_v2(other));
        assert_eq!(in_use(), 0);
    }
}

#[test]
fn a_context_ends_while_another_thread_goes_on_giving_it_work() {
    let _turn = turn();
    let context = create();
    let (ptr, stream) = (alloc(16), stream());
    let worker = std::thread::spawn(move || {
        ok(cu::cuCtxSetCurrent(context));
        loop {
            let result = cu::cuMemsetD8Async(ptr, 1, 16, stream);
            if !result.is_success() {
                return result;
            }
        }
    });
    std::thread::sleep(Duration::from_millis(20));
    let gate = Gate::close(stream);
    let destroyer = std::thread::spawn(move || cu::cuCtxDestroy_v2(context));
    // A closing context accepts no new work, even while it is not idle yet.
    assert_eq!(worker.join().unwrap(), CUresult::CONTEXT_IS_DESTROYED);
    assert_eq!(cu::cuCtxDestroy_v2(context), CUresult::CONTEXT_IS_DESTROYED);
    gate.open();
    ok(destroyer.join().unwrap());
    ok(cu::cuCtxSetCurrent(CUcontext::NULL));
    assert_eq!(in_use(), 0);
}

#[test]
fn a_retain_overtakes_a_release_that_waits() {
    let _turn = turn();
    let primary = context();
    ok(cu::cuDevicePrimaryCtxSetFlags_v2(0, 4));
    let (ptr, stream) = (alloc(16), stream());
    let gate = Gate::close(stream);
    let releaser = std::thread::spawn(|| cu::cuDevicePrimaryCtxRelease_v2(0));
    eventually("the context closes", || {
        cu::cuMemsetD8_v2(ptr, 1, 1) == CUresult::CONTEXT_IS_DESTROYED
    });
    assert_eq!(context(), primary);
    ok(cu::cuMemsetD8Async(ptr, 1, 16, stream));
    gate.open();
    ok(releaser.join().unwrap());
    ok(cu::cuStreamSynchronize(stream));
    let (mut flags, mut active) = (0, 0);
    ok(cu::cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    assert_eq!((flags, active), (4, 1), "nothing ended");
    ok(cu::cuMemFree_v2(ptr));
    release();
    ok(cu::cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    assert_eq!((flags, active, in_use()), (0, 0, 0));
}

#[test]
fn a_reset_ends_the_context_whoever_retains_it_meanwhile() {
    let _turn = turn();
    context();
    let (ptr, stream) = (alloc(16), stream());
    let gate = Gate::close(stream);
    let resetter = std::thread::spawn(|| cu::cuDevicePrimaryCtxReset_v2(0));
    eventually("the context closes", || {
        cu::cuMemsetD8_v2(ptr, 1, 1) == CUresult::CONTEXT_IS_DESTROYED
    });
    context();
    gate.open();
    ok(resetter.join().unwrap());
    assert_eq!(cu::cuCtxSynchronize(), CUresult::CONTEXT_IS_DESTROYED);
    context();
    assert_eq!(cu::cuMemFree_v2(ptr), CUresult::INVALID_VALUE);
    for _ in 0..3 {
        release();
    }
    assert_eq!(in_use(), 0);
}

#[test]
fn an_event_does_not_come_back_to_life_with_its_context() {
    let _turn = turn();
    for end in [
        cu::cuDevicePrimaryCtxRelease_v2,
        cu::cuDevicePrimaryCtxReset_v2,
    ] {
        context();
        let event = event();
        ok(cu::cuEventRecord(event, CUstream::NULL));
        ok(end(0));
        assert_eq!(counters().events, 0);
        context();
        assert_eq!(counters().events, 0);
        let destroyed = CUresult::CONTEXT_IS_DESTROYED;
        assert_eq!(cu::cuEventQuery(event), destroyed);
        assert_eq!(cu::cuEventRecord(event, CUstream::NULL), destroyed);
        assert_eq!(cu::cuStreamWaitEvent(CUstream::NULL, event, 0), destroyed);
        assert_eq!(cu::cuEventDestroy_v2(event), destroyed);
        while cu::cuDevicePrimaryCtxRelease_v2(0).is_success() {}
    }
}

/// Page-locked memory is another matter: see the tests of misuse.
#[test]
fn memory_is_not_freed_while_a_copy_of_another_context_is_in_flight() {
    let _turn = turn();
    /// Frees memory on the host.
    type End = fn(CUcontext, usize) -> CUresult;
    let ends: [(&str, End); 2] = [
        ("cuMemFree", |_, ptr| cu::cuMemFree_v2(ptr as u64)),
        ("cuCtxDestroy", |context, _| cu::cuCtxDestroy_v2(context)),
    ];
    for (name, end) in ends {
        let owner = create();
        let ptr = match name {
            "cuMemFree" => {
                let mut ptr = 0;
                ok(cu::cuMemAllocManaged(&mut ptr, 1 << 16, 1));
                ptr as usize
            }
            _ => pinned(1 << 16) as usize,
        };
        let other = create();
        let (source, stream) = (alloc(1 << 16), stream());
        ok(cu::cuMemsetD8_v2(source, 0xEE, 1 << 16));
        let gate = Gate::close(stream);
        ok(cu::cuMemcpyDtoHAsync_v2(ptr as _, source, 1 << 16, stream));
        let ender = std::thread::spawn(move || (end(owner, ptr), Instant::now()));
        std::thread::sleep(Duration::from_millis(30));
        let opened = Instant::now();
        gate.open();
        let (result, ended) = ender.join().unwrap();
        assert_eq!(result, CUresult::SUCCESS, "{name}");
        assert!(ended >= opened, "{name} did not wait");
        ok(cu::cuStreamSynchronize(stream));
        ok(cu::cuCtxDestroy_v2(other));
        if name != "cuCtxDestroy" {
            ok(cu::cuCtxDestroy_v2(owner));
        }
        ok(cu::cuCtxSetCurrent(CUcontext::NULL));
    }
    assert_eq!(in_use(), 0);
}

#[test]
fn a_context_that_is_long_gone_is_known_by_its_handle() {
    let _turn = turn();
    let first = create();
    ok(cu::cuCtxDestroy_v2(first));
    for _ in 0..1000 {
        let context = create();
        event();
        ok(cu::cuCtxDestroy_v2(context));
    }
    ok(cu::cuCtxSetCurrent(first));
    let mut device = -1;
    ok(cu::cuCtxGetDevice(&mut device));
    assert_eq!(device, 0);
    assert_eq!(cu::cuCtxSynchronize(), CUresult::CONTEXT_IS_DESTROYED);
    assert_eq!(cu::cuCtxDestroy_v2(first), CUresult::CONTEXT_IS_DESTROYED);
    ok(cu::cuCtxSetCurrent(CUcontext::NULL));
    assert_eq!((counters().contexts, counters().events), (0, 0));
}

#[test]
fn access_to_a_peer_ends_with_the_peer() {
    if !is_child() {
        let output = child_with("access_to_a_peer_ends_with_the_peer", Some("devices=2"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}", output.status);
        return;
    }
    context();
    let mut peer = CUcontext::NULL;
    ok(cu::cuDevicePrimaryCtxRetain(&mut peer, 1));
    ok(cu::cuCtxEnablePeerAccess(peer, 0));
    let again = cu::cuCtxEnablePeerAccess(peer, 0);
    assert_eq!(again, CUresult::PEER_ACCESS_ALREADY_ENABLED);
    ok(cu::cuDevicePrimaryCtxReset_v2(1));
    ok(cu::cuDevicePrimaryCtxRetain(&mut peer, 1));
    let disabled = cu::cuCtxDisablePeerAccess(peer);
    assert_eq!(disabled, CUresult::PEER_ACCESS_NOT_ENABLED);
    ok(cu::cuCtxEnablePeerAccess(peer, 0));
}
