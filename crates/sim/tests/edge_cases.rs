//! Details of single functions, and of fork and exit.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use crate::common::*;
use cuguard_sim::{Fault, clear_faults, counters, inject, set_sticky_error};
use cuguard_sys::*;

#[test]
fn an_allocation_that_a_fault_stops_leaves_null_behind() {
    let _turn = turn();
    context();
    let (mut ptr, mut pitch, mut host) = (7, 7, 7 as *mut c_void);
    let failing = |name: &str, call: &mut dyn FnMut() -> CUresult| {
        let fault = inject(Fault::nth_call_of(name, 1)).unwrap();
        assert_eq!(call(), CUresult::UNKNOWN, "{name}");
        assert_eq!(fault.fired(), 1);
    };
    let null = CUstream::NULL;
    failing("cuMemAlloc_v2", &mut || cu::cuMemAlloc_v2(&mut ptr, 16));
    assert_eq!(std::mem::replace(&mut ptr, 7), 0);
    failing("cuMemAllocPitch_v2", &mut || {
        cu::cuMemAllocPitch_v2(&mut ptr, &mut pitch, 16, 16, 4)
    });
    assert_eq!(std::mem::replace(&mut ptr, 7), 0);
    failing("cuMemAllocAsync", &mut || {
        cu::cuMemAllocAsync(&mut ptr, 16, null)
    });
    assert_eq!(std::mem::replace(&mut ptr, 7), 0);
    failing("cuMemAllocManaged", &mut || {
        cu::cuMemAllocManaged(&mut ptr, 16, 1)
    });
    assert_eq!(ptr, 0);
    failing("cuMemAllocHost_v2", &mut || {
        cu::cuMemAllocHost_v2(&mut host, 16)
    });
    assert!(std::mem::replace(&mut host, 7 as *mut c_void).is_null());
    failing("cuMemHostAlloc", &mut || {
        cu::cuMemHostAlloc(&mut host, 16, 0)
    });
    assert!(host.is_null());
    clear_faults();
    // Also calls that would fail for another reason.
    let mut ptr = 7;
    assert!(!cu::cuMemAllocPitch_v2(&mut ptr, &mut pitch, 16, 16, 3).is_success());
    assert_eq!(ptr, 0);
    release();
}

#[test]
fn questions_about_pointers_need_no_alignment() {
    let _turn = turn();
    context();
    let ptr = alloc(16);
    let mut answer = 0u64;
    let (mut attributes, mut places) = ([0u32; 2], [0usize; 2]);
    let (at, place): (*mut u32, *mut *mut c_void) = (
        attributes.as_mut_ptr().wrapping_byte_add(1),
        places.as_mut_ptr().wrapping_byte_add(1).cast(),
    );
    // SAFETY: both are within their arrays.
    unsafe {
        at.write_unaligned(pointer_attribute::RANGE_SIZE);
        place.write_unaligned((&raw mut answer).cast());
    }
    ok(cu::cuPointerGetAttributes(1, at, place, ptr));
    assert_eq!(std::hint::black_box(answer), 16);
    release();
}

#[test]
fn a_pool_with_wishes_that_are_not_simulated_is_refused() {
    let _turn = turn();
    context();
    let mut plain = CUmemPoolProps {
        allocType: virtual_memory::ALLOCATION_TYPE_PINNED,
        ..Default::default()
    };
    plain.location.type_ = virtual_memory::LOCATION_TYPE_DEVICE;
    let mut reserved = plain;
    reserved.reserved[0] = 1;
    let rdma = CUmemPoolProps {
        gpuDirectRDMACapable: 1,
        ..plain
    };
    // A file descriptor, a fabric handle: the device's attributes say that there are none.
    let shared = [1, 8].map(|handle| CUmemPoolProps {
        handleTypes: handle,
        ..plain
    });
    let mut pool = CUmemoryPool::NULL;
    for props in [reserved, rdma, shared[0], shared[1]] {
        let result = cu::cuMemPoolCreate(&mut pool, &props);
        assert_eq!(result, CUresult::INVALID_VALUE, "{props:?}");
    }
    ok(cu::cuMemPoolCreate(&mut pool, &plain));
    ok(cu::cuMemPoolDestroy(pool));
    release();
}

#[test]
fn success_breaks_nothing() {
    let _turn = turn();
    context();
    set_sticky_error(CUresult::SUCCESS);
    ok(cu::cuCtxSynchronize());
    release();
    if is_child() {
        set_sticky_error(CUresult::ILLEGAL_ADDRESS);
        set_sticky_error(CUresult::SUCCESS);
        let mut context = CUcontext::NULL;
        let result = cu::cuDevicePrimaryCtxRetain(&mut context, 0);
        assert_eq!(result, CUresult::ILLEGAL_ADDRESS, "there is no way back");
    } else {
        lives("success_breaks_nothing");
    }
}

#[test]
fn a_running_machine_does_not_care_for_its_environment() {
    if !is_child() {
        return lives("a_running_machine_does_not_care_for_its_environment");
    }
    ok(cu::cuInit(0));
    // SAFETY: no other thread of this process reads the environment.
    unsafe { std::env::set_var("CUGUARD_SIM", "rubbish") };
    ok(cu::cuInit(0));
}

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(code: i32) -> !;
    fn alarm(seconds: u32) -> u32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
}

#[test]
fn a_forked_child_is_answered_whoever_held_a_lock() {
    if !is_child() {
        return lives("a_forked_child_is_answered_whoever_held_a_lock");
    }
    context();
    std::thread::spawn(|| {
        loop {
            std::hint::black_box(counters());
            let _ = inject(Fault::nth_call(u64::MAX));
            let _ = cuguard_sim::misuses();
            clear_faults();
        }
    });
    for _ in 0..100 {
        // SAFETY: the child calls only what is allowed after a fork of a process with threads.
        let status = unsafe {
            let process = fork();
            if process == 0 {
                alarm(60);
                let alive = counters().contexts;
                let refused = cu::cuCtxSynchronize() == CUresult::NOT_INITIALIZED;
                clear_faults();
                _exit(i32::from(alive != 0 || !refused));
            }
            let mut status = 0;
            waitpid(process, &mut status, 0);
            status
        };
        assert_eq!(status, 0, "the child hung, or was answered wrongly");
    }
    // The thread above never ends.
    std::process::exit(0);
}

/// The longest call of another thread while 128 MiB are copied, and how long the copy takes.
fn longest_call_beside_a_copy(ptr: CUdeviceptr, stream: CUstream) -> (Duration, Duration) {
    let source = vec![1u8; 128 * MIB];
    let copier = std::thread::spawn(move || {
        // From pageable memory: the source is read before the call returns.
        let start = Instant::now();
        ok(cu::cuMemcpyHtoDAsync_v2(
            ptr,
            source.as_ptr().cast(),
            128 * MIB,
            stream,
        ));
        start.elapsed()
    });
    let mut longest = Duration::ZERO;
    while !copier.is_finished() {
        let start = Instant::now();
        let mut count = 0;
        ok(cu::cuDeviceGetCount(&mut count));
        longest = longest.max(start.elapsed());
        std::thread::sleep(Duration::from_micros(200));
    }
    (longest, copier.join().unwrap())
}

#[test]
fn a_long_copy_holds_nobody_else_up() {
    let _turn = turn();
    context();
    let (ptr, stream) = (alloc(128 * MIB), stream());
    // On a busy machine a thread may be preempted for that long. A lock that is held makes all attempts fail.
    let mut attempts = (0..5).map(|_| longest_call_beside_a_copy(ptr, stream));
    let is_free = attempts.any(|(longest, copied)| longest < copied / 2);
    assert!(is_free, "calls wait for the copy");
    ok(cu::cuStreamSynchronize(stream));
    ok(cu::cuMemFree_v2(ptr));
    release();
}
