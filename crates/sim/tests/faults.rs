//! Faults: the right call fails, with the right error, as often as requested.

use crate::common::*;
use cuguard_sim::{Fault, clear_faults, counters, inject};
use cuguard_sys::*;

fn try_alloc(bytes: usize) -> CUresult {
    let mut ptr = 0;
    let result = cu::cuMemAlloc_v2(&mut ptr, bytes);
    if result.is_success() {
        ok(cu::cuMemFree_v2(ptr));
    }
    result
}

#[test]
fn the_nth_call_overall_fails_once() {
    let _turn = turn();
    context();
    let fault = inject(Fault::nth_call(3).returning(CUresult::LAUNCH_FAILED)).unwrap();
    ok(cu::cuCtxSynchronize());
    // Queries about the driver itself are not counted.
    let mut version = 0;
    ok(cu::cuDriverGetVersion(&mut version));
    ok(cu::cuCtxSynchronize());
    assert_eq!(cu::cuCtxSynchronize(), CUresult::LAUNCH_FAILED);
    assert_eq!(fault.fired(), 1);
    ok(cu::cuCtxSynchronize());
    release();
}

#[test]
fn the_nth_call_of_one_function_fails_and_nothing_happened() {
    let _turn = turn();
    context();
    let before = counters();
    let fault = inject(Fault::nth_call_of("cuMemAlloc_v2", 2).returning(CUresult::OUT_OF_MEMORY));
    let fault = fault.unwrap();
    ok(try_alloc(16));
    ok(cu::cuCtxSynchronize());
    assert_eq!(try_alloc(16), CUresult::OUT_OF_MEMORY);
    ok(try_alloc(16));
    assert_eq!(fault.fired(), 1);
    assert_eq!(counters().device, before.device);
    release();
}

#[test]
fn a_sticky_fault_stays_until_it_is_cleared() {
    let _turn = turn();
    context();
    let fault = inject(Fault::nth_call_of("cuMemAlloc_v2", 2).sticky()).unwrap();
    ok(try_alloc(16));
    for _ in 0..3 {
        assert_eq!(try_alloc(16), CUresult::UNKNOWN);
    }
    ok(cu::cuCtxSynchronize());
    clear_faults();
    ok(try_alloc(16));
    assert_eq!(fault.fired(), 3);
    release();
}

#[test]
fn memory_runs_out_after_so_many_bytes_of_any_kind() {
    let _turn = turn();
    context();
    inject(Fault::after_bytes(3 * MIB as u64).sticky()).unwrap();
    ok(try_alloc(MIB));
    let mut host = std::ptr::null_mut();
    ok(cu::cuMemHostAlloc(&mut host, MIB, 0));
    let mut pooled = 0;
    ok(cu::cuMemAllocAsync(&mut pooled, MIB, CUstream::NULL));
    assert_eq!(try_alloc(1), CUresult::OUT_OF_MEMORY);
    let mut managed = 0;
    assert_eq!(
        cu::cuMemAllocManaged(&mut managed, 1, 1),
        CUresult::OUT_OF_MEMORY
    );
    clear_faults();
    ok(cu::cuMemFreeHost(host));
    ok(cu::cuMemFreeAsync(pooled, CUstream::NULL));
    release();
}

#[test]
fn once_out_of_memory_by_bytes_is_once() {
    let _turn = turn();
    context();
    inject(Fault::after_bytes(10)).unwrap();
    assert_eq!(try_alloc(11), CUresult::OUT_OF_MEMORY);
    ok(try_alloc(11));
    release();
}

#[test]
fn one_allocation_fails_whatever_its_kind_or_that_and_all_later_ones() {
    let _turn = turn();
    context();
    let mut host = std::ptr::null_mut();
    let fault = inject(Fault::nth_allocation(2)).unwrap();
    ok(try_alloc(MIB));
    // What is not an allocation does not count.
    ok(cu::cuCtxSynchronize());
    assert_eq!(cu::cuMemHostAlloc(&mut host, 1, 0), CUresult::OUT_OF_MEMORY);
    ok(try_alloc(1));
    assert_eq!(fault.fired(), 1);
    let fault = Fault::nth_allocation(2).returning(CUresult::UNKNOWN);
    let fault = inject(fault.sticky()).unwrap();
    ok(cu::cuMemHostAlloc(&mut host, 1, 0));
    assert_eq!(try_alloc(1), CUresult::UNKNOWN);
    assert_eq!(try_alloc(1), CUresult::UNKNOWN);
    assert_eq!(fault.fired(), 2);
    clear_faults();
    ok(cu::cuMemFreeHost(host));
    release();
}

#[test]
fn what_makes_no_sense_is_refused_with_words() {
    let _turn = turn();
    let refused = |fault| inject(fault).unwrap_err().to_string();
    assert!(refused(Fault::nth_call(0)).contains("from 1"));
    assert!(refused(Fault::nth_allocation(0)).contains("from 1"));
    assert!(refused(Fault::nth_call_of("cuMemAlloc", 1)).contains("`cuMemAlloc`"));
    // No call counts as one of theirs.
    assert!(refused(Fault::nth_call_of("cuMemcpy_ptds", 1)).contains("`cuMemcpy_ptds`"));
    assert!(refused(Fault::nth_call_of("cuStreamDestroy", 1)).contains("`cuStreamDestroy`"));
    assert!(refused(Fault::nth_call(1).returning(CUresult::SUCCESS)).contains("CUDA_SUCCESS"));
}

/// A code that means a dead context is returned when nothing is in flight, as by a driver.
#[test]
fn an_error_that_means_a_dead_context_comes_when_the_work_is_done() {
    let _turn = turn();
    context();
    let (device, stream) = (alloc(16), stream());
    let target = pinned(16);
    ok(cu::cuMemsetD8_v2(device, 9, 16));
    for code in [CUresult::CONTEXT_IS_DESTROYED, CUresult::LAUNCH_FAILED] {
        let gate = Gate::close(stream);
        ok(cu::cuMemcpyDtoHAsync_v2(target.cast(), device, 16, stream));
        for function in ["cuStreamQuery", "cuStreamSynchronize"] {
            inject(Fault::nth_call_of(function, 1).returning(code).sticky()).unwrap();
        }
        assert_eq!(cu::cuStreamQuery(stream), CUresult::NOT_READY);
        let opener = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            gate.open();
        });
        assert_eq!(cu::cuStreamSynchronize(stream), code);
        // SAFETY: pinned above, and the copy is done.
        assert_eq!(unsafe { target.cast::<u8>().read() }, 9);
        assert_eq!(cu::cuStreamQuery(stream), code);
        opener.join().unwrap();
        clear_faults();
    }
}

/// A call that waits while the device stops fails, also where the device works again when it returns.
#[test]
fn work_that_a_fault_drops_does_not_count_as_done() {
    let _turn = turn();
    context();
    let mut current = CUcontext::NULL;
    ok(cu::cuCtxGetCurrent(&mut current));
    let device = alloc(16);
    ok(cu::cuMemsetD8_v2(device, 9, 16));
    // The synchronous copy comes after it.
    let mut blocking = CUstream::NULL;
    ok(cu::cuStreamCreate(&mut blocking, 0));
    let gate = Gate::close(blocking);
    let before = counters().calls_of("cuMemcpyDtoH_v2");
    let copier = std::thread::spawn(move || {
        ok(cu::cuCtxSetCurrent(current));
        let mut target = [0_u8; 16];
        let code = cu::cuMemcpyDtoH_v2(target.as_mut_ptr().cast(), device, 16);
        (code, target[0])
    });
    eventually("the copy begins", || {
        counters().calls_of("cuMemcpyDtoH_v2") > before
    });
    // It has been counted, and is about to wait.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let lost = Fault::nth_call(1).returning(CUresult::LAUNCH_FAILED);
    inject(lost.sticky()).unwrap();
    assert_eq!(cu::cuCtxSynchronize(), CUresult::LAUNCH_FAILED);
    clear_faults();
    gate.open();
    let (code, byte) = copier.join().unwrap();
    // Where the thread was held up, the copy was submitted after the stop, and is done.
    let expected = match byte {
        0 => CUresult::LAUNCH_FAILED,
        _ => CUresult::SUCCESS,
    };
    assert_eq!(code, expected, "{byte}");
    ok(cu::cuStreamDestroy_v2(blocking));
}
