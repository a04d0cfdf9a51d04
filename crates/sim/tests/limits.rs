//! The limits of the simulated GPU, and what exceeds them.

use std::collections::HashSet;

use crate::common::*;
use cuguard_sim::{Config, ConfigError, configure, counters};
use cuguard_sys::*;

#[test]
fn sixty_four_devices_have_addresses_of_their_own() {
    if !is_child() {
        return lives("sixty_four_devices_have_addresses_of_their_own");
    }
    let refused = |config| matches!(configure(config), Err(ConfigError::TooLarge { .. }));
    assert!(refused(Config::new().devices(65)));
    assert!(refused(Config::new().memory(1 << 47)));
    assert!(refused(Config::new().context_cost(u64::MAX)));
    configure(Config::new().memory(1 << 46).devices(64)).unwrap();
    ok(cu::cuInit(0));
    let mut seen = HashSet::new();
    for device in 0..64 {
        let mut context = CUcontext::NULL;
        ok(cu::cuDevicePrimaryCtxRetain(&mut context, device));
        ok(cu::cuCtxSetCurrent(context));
        let mut of = -1;
        ok(cu::cuCtxGetDevice(&mut of));
        assert_eq!(of, device);
        for ptr in [alloc(16), alloc(4 * MIB), alloc_async(1000, CUstream::NULL)] {
            assert!(seen.insert(ptr), "{ptr:#x} on device {device}");
            assert!(ptr > 1 << 48 && ptr < 1 << 63);
            let mut of = -1;
            let attribute = pointer_attribute::DEVICE_ORDINAL;
            ok(cu::cuPointerGetAttribute(
                (&raw mut of).cast(),
                attribute,
                ptr,
            ));
            assert_eq!(of, device);
        }
    }
}

fn pool() -> CUmemoryPool {
    let mut props = CUmemPoolProps {
        allocType: virtual_memory::ALLOCATION_TYPE_PINNED,
        ..Default::default()
    };
    props.location.type_ = virtual_memory::LOCATION_TYPE_DEVICE;
    let mut pool = CUmemoryPool::NULL;
    ok(cu::cuMemPoolCreate(&mut pool, &props));
    pool
}

#[test]
fn a_thousand_pools_leave_addresses_for_everything_else() {
    let _turn = turn();
    context();
    let pools: Vec<_> = (0..1000).map(|_| pool()).collect();
    let mut ptr = 0;
    ok(cu::cuMemAllocFromPoolAsync(
        &mut ptr,
        1000,
        pools[999],
        CUstream::NULL,
    ));
    ok(cu::cuMemFreeAsync(ptr, CUstream::NULL));
    ok(cu::cuMemFree_v2(alloc(64 * MIB)));
    for pool in pools {
        ok(cu::cuMemPoolDestroy(pool));
    }
    ok(cu::cuCtxSynchronize());
    assert_eq!(counters().pools, 0);
    release();
}

#[test]
fn twenty_thousand_streams_are_used_and_kept() {
    let _turn = turn();
    context();
    let ptr = alloc(16);
    let streams: Vec<_> = (0..20_000).map(|_| stream()).collect();
    for stream in &streams {
        ok(cu::cuMemsetD8Async(ptr, 1, 16, *stream));
    }
    ok(cu::cuCtxSynchronize());
    eventually("the threads go home", || threads() < 10);
    for stream in &streams[..100] {
        ok(cu::cuMemsetD8Async(ptr, 2, 16, *stream));
        ok(cu::cuStreamSynchronize(*stream));
    }
    assert_eq!(counters().streams, 20_000);
    release();
    assert_eq!(counters().streams, 0);
}

#[test]
fn a_stream_that_waits_for_another_takes_no_thread() {
    let _turn = turn();
    context();
    let (first, event, ptr) = (stream(), event(), alloc(16));
    let gate = Gate::close(first);
    ok(cu::cuEventRecord(event, first));
    let before = threads();
    let streams: Vec<_> = (0..1000).map(|_| stream()).collect();
    for stream in &streams {
        ok(cu::cuStreamWaitEvent(*stream, event, 0));
        ok(cu::cuMemsetD8Async(ptr, 1, 16, *stream));
    }
    assert!(threads() < before + 20, "{} threads", threads());
    assert_eq!(cu::cuStreamQuery(streams[999]), CUresult::NOT_READY);
    gate.open();
    ok(cu::cuCtxSynchronize());
    ok(cu::cuStreamQuery(streams[999]));
    release();
}

#[test]
fn hundreds_of_host_functions_wait_at_once() {
    let _turn = turn();
    context();
    let streams: Vec<_> = (0..300).map(|_| stream()).collect();
    let gates: Vec<_> = streams.iter().map(|stream| Gate::close(*stream)).collect();
    let free = stream();
    ok(cu::cuMemsetD8Async(alloc(16), 1, 16, free));
    ok(cu::cuStreamSynchronize(free));
    drop(gates);
    ok(cu::cuCtxSynchronize());
    release();
}

unsafe extern "C" {
    fn getrlimit(resource: i32, limit: *mut [u64; 2]) -> i32;
    fn setrlimit(resource: i32, limit: *const [u64; 2]) -> i32;
}

/// The limit of a process's address space.
const RLIMIT_AS: i32 = 9;

#[test]
fn where_no_thread_is_to_be_had_the_call_says_so() {
    if !is_child() {
        return lives("where_no_thread_is_to_be_had_the_call_says_so");
    }
    context();
    let (ptr, stream) = (alloc(16), stream());
    let mut before = [0; 2];
    // SAFETY: reads and sets a limit of this process.
    let limit = |soft| unsafe {
        assert_eq!(getrlimit(RLIMIT_AS, &mut before), 0);
        assert_eq!(setrlimit(RLIMIT_AS, &[soft, before[1]]), 0);
        before[0]
    };
    let mut limit = limit;
    let as_it_was = limit(1 << 20);
    let result = cu::cuMemsetD8Async(ptr, 1, 16, stream);
    let recorded = cu::cuLaunchHostFunc(stream, Some(nothing), std::ptr::null_mut());
    limit(as_it_was);
    assert_eq!(result, CUresult::OPERATING_SYSTEM);
    assert_eq!(recorded, CUresult::OPERATING_SYSTEM);
    ok(cu::cuStreamQuery(stream));
    ok(cu::cuMemsetD8Async(ptr, 1, 16, stream));
    ok(cu::cuStreamSynchronize(stream));
    release();
}

unsafe extern "C" fn nothing(_: *mut std::ffi::c_void) {}

#[test]
fn memory_that_the_host_does_not_have_is_not_counted_as_used() {
    if !is_child() {
        return lives("memory_that_the_host_does_not_have_is_not_counted_as_used");
    }
    configure(Config::new().memory(64 << 30)).unwrap();
    context();
    // SAFETY: sets a limit of this process.
    assert_eq!(unsafe { setrlimit(RLIMIT_AS, &[8 << 30; 2]) }, 0);
    let in_use = counters().device_bytes_in_use;
    let (mut ptr, mut pool, mut used) = (1, CUmemoryPool::NULL, 1u64);
    let result = cu::cuMemAllocAsync(&mut ptr, 16 << 30, CUstream::NULL);
    assert_eq!((result, ptr), (CUresult::OUT_OF_MEMORY, 0));
    ok(cu::cuDeviceGetMemPool(&mut pool, 0));
    let attribute = pool_attribute::USED_MEM_CURRENT;
    ok(cu::cuMemPoolGetAttribute(
        pool,
        attribute,
        (&raw mut used).cast(),
    ));
    assert_eq!((used, counters().device_bytes_in_use), (0, in_use));
}

#[test]
fn hostile_lengths_of_host_memory_are_refused() {
    let _turn = turn();
    context();
    let mut own = vec![0u8; 1 << 16];
    for len in [1 << 44, 1 << 47, 1 << 50, 1 << 62, usize::MAX / 2] {
        let result = cu::cuMemHostRegister_v2(own.as_mut_ptr().cast(), len, 0);
        assert_eq!(result, CUresult::INVALID_VALUE, "{len:#x}");
    }
    release();
}

/// Calls that once iterated over all ranges, which took minutes here.
#[test]
fn calls_beside_thousands_of_blocks_and_pending_frees() {
    let _turn = turn();
    context();
    let (stream, busy) = (stream(), stream());
    let before = free_bytes();
    let blocks: Vec<_> = (0..30_000).map(|_| alloc(512)).collect();
    let freed: Vec<_> = (0..10_000).map(|_| alloc_async(512, busy)).collect();
    let gate = Gate::close(busy);
    for ptr in freed {
        ok(cu::cuMemFreeAsync(ptr, busy));
    }
    for _ in 0..10_000 {
        free_bytes();
        ok(cu::cuMemFree_v2(alloc_async(512, stream)));
    }
    gate.open();
    ok(cu::cuStreamSynchronize(busy));
    // Waits for all contexts of the device, so not behind the gate.
    for _ in 0..1000 {
        ok(cu::cuCtxDestroy_v2(create()));
    }
    for ptr in blocks {
        ok(cu::cuMemFree_v2(ptr));
    }
    ok(cu::cuCtxSynchronize());
    assert_eq!(free_bytes(), before);
    release();
}

/// The most that this process had of the machine's memory.
fn peak_resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<u64>().unwrap() << 10
}

/// An entry for each row would take gibibytes.
#[test]
fn millions_of_rows_are_a_few_numbers() {
    if !is_child() {
        return lives("millions_of_rows_are_a_few_numbers");
    }
    context();
    let ptr = alloc(64 * MIB);
    let before = peak_resident();
    ok(cu::cuMemsetD2D8_v2(ptr, 1, 7, 1, 64 * MIB));
    ok(cu::cuMemsetD2D8_v2(ptr, 16, 9, 1, 4 * MIB));
    let grown = peak_resident().saturating_sub(before);
    assert!(grown < 128 << 20, "{grown} bytes for 64 MiB");
    let mut seen = [0u8; 17];
    ok(cu::cuMemcpyDtoH_v2(seen.as_mut_ptr().cast(), ptr, 17));
    assert_eq!(seen, [9, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 9]);
    release();
}
