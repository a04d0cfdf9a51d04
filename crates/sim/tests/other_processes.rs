//! Other processes on a device: their memory is not free until they are removed.

use crate::common::*;
use cuguard_sim::{
    Config, OtherProcess, OtherProcessError, PAGE, configure, counters, other_processes,
    set_other_processes,
};
use cuguard_sys::*;

const GIB: u64 = 1 << 30;

fn holder(bytes: u64) -> [OtherProcess; 1] {
    [OtherProcess::new(4711, "trainer", bytes)]
}

fn try_alloc(bytes: u64) -> CUresult {
    let mut ptr = 0;
    let result = cu::cuMemAlloc_v2(&mut ptr, bytes as usize);
    if result.is_success() {
        ok(cu::cuMemFree_v2(ptr));
    }
    result
}

fn free() -> u64 {
    free_bytes() as u64
}

#[test]
fn what_others_hold_is_not_free_and_comes_back() {
    let _turn = turn();
    context();
    let (free_before, used_before) = (free(), counters().device_bytes_in_use);
    let processes = [
        OtherProcess::new(4711, "trainer", GIB),
        OtherProcess::new(4712, "viewer", 1),
        OtherProcess::new(4713, "idle", 0),
    ];
    set_other_processes(0, processes).unwrap();
    assert_eq!(free(), free_before - GIB - PAGE);
    // What this process uses is unchanged.
    assert_eq!(counters().device_bytes_in_use, used_before);
    let listed = other_processes(0);
    let listed: Vec<_> = listed.iter().map(|p| (p.pid, &*p.name, p.bytes)).collect();
    let expected = [
        (4711, "trainer", GIB),
        (4712, "viewer", PAGE),
        (4713, "idle", 0),
    ];
    assert_eq!(listed, expected);
    // Exactly the free memory can be allocated.
    assert_eq!(try_alloc(free() + 1), CUresult::OUT_OF_MEMORY);
    ok(try_alloc(free()));
    // Another list replaces the first.
    set_other_processes(0, holder(2 * GIB)).unwrap();
    assert_eq!(free(), free_before - 2 * GIB);
    set_other_processes(0, []).unwrap();
    assert_eq!((free(), other_processes(0)), (free_before, Vec::new()));
    release();
}

#[test]
fn more_than_there_is_changes_nothing() {
    let _turn = turn();
    context();
    let ptr = alloc(GIB as usize);
    set_other_processes(0, holder(GIB)).unwrap();
    let free_before = free();
    let most = free_before + GIB;
    for asked in [most + 1, u64::MAX] {
        let error = set_other_processes(0, holder(asked)).unwrap_err();
        let text = error.to_string();
        let OtherProcessError::NotEnoughMemory { free, total, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((free, total), (most, 4 * GIB));
        assert!(text.contains(&most.to_string()), "{text}");
        assert!(text.contains(&total.to_string()), "{text}");
    }
    let two = [holder(u64::MAX), holder(u64::MAX)].concat();
    assert!(set_other_processes(0, two).is_err());
    assert_eq!(free(), free_before);
    assert_eq!(other_processes(0), holder(GIB));
    // All memory: no page is left.
    set_other_processes(0, holder(most)).unwrap();
    assert_eq!(free(), 0);
    assert_eq!(try_alloc(16), CUresult::OUT_OF_MEMORY);
    let mut pooled = 0;
    let result = cu::cuMemAllocAsync(&mut pooled, 16, CUstream::NULL);
    assert_eq!(result, CUresult::OUT_OF_MEMORY);
    let mut second = CUcontext::NULL;
    let result = cu::cuCtxCreate_v2(&mut second, 0, 0);
    assert_eq!(result, CUresult::OUT_OF_MEMORY);
    ok(cu::cuMemFree_v2(ptr));
    assert_eq!(free(), GIB);
    set_other_processes(0, []).unwrap();
    release();
}

#[test]
fn they_stay_when_contexts_go_and_are_the_device_s_own() {
    if !is_child() {
        return lives("they_stay_when_contexts_go_and_are_the_device_s_own");
    }
    configure(Config::new().memory(256 << 20).devices(2)).unwrap();
    assert!(other_processes(0).is_empty());
    // Before the first context, and before cuInit.
    set_other_processes(1, holder(200 << 20)).unwrap();
    assert!(configure(Config::new()).is_err(), "it runs now");
    context();
    assert_eq!(free(), (256 - 32) << 20);
    let mut second = CUcontext::NULL;
    ok(cu::cuDevicePrimaryCtxRetain(&mut second, 1));
    ok(cu::cuCtxSetCurrent(second));
    assert_eq!(free(), (256 - 32 - 200) << 20);
    ok(cu::cuDevicePrimaryCtxReset_v2(1));
    assert_eq!(other_processes(1), holder(200 << 20));
    assert!(other_processes(0).is_empty() && other_processes(2).is_empty());
    let error = set_other_processes(2, []).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the simulated GPU has no device 2; it has 2"
    );
}
