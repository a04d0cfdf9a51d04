//! Races: memory that is used before its allocation, or freed while it is in use. A real driver does
//! not detect them, the simulation does. And correct programs that look similar.

use std::ffi::c_void;
use std::sync::Once;

use crate::common::*;
use cuguard_sim::{Config, Misuse, configure, misuses};
use cuguard_sys::*;

/// A context, with misuse recorded.
fn noting() -> CUcontext {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| configure(Config::new().misuse(Misuse::Error)).unwrap());
    context()
}

/// The misuse that `what` causes.
fn seen(what: impl FnOnce()) -> Vec<String> {
    let before = misuses().len();
    what();
    misuses().split_off(before)
}

/// New pages of the host.
fn map(len: usize) -> *mut c_void {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, where the system likes.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at
}

#[track_caller]
fn one(seen: &[String], words: &[&str]) {
    assert_eq!(seen.len(), 1, "{seen:?}");
    for word in words {
        assert!(seen[0].contains(word), "{word}: {seen:?}");
    }
}

#[track_caller]
fn none(seen: &[String]) {
    assert!(seen.is_empty(), "{seen:?}");
}

#[test]
fn use_on_another_stream_before_the_allocation() {
    let _turn = turn();
    noting();
    let (a, b) = (stream(), stream());
    let gate = Gate::close(a);
    let ptr = alloc_async(512, a);
    let plain = alloc(512);
    let refused = CUresult::INVALID_VALUE;
    for call in [
        &|| cu::cuMemsetD8Async(ptr, 1, 512, b) as CUresult,
        &|| cu::cuMemcpyDtoDAsync_v2(plain, ptr, 10, b),
        &|| cu::cuMemcpyDtoDAsync_v2(ptr, plain, 10, b),
        &|| cu::cuMemsetD8_v2(ptr, 1, 512),
        &|| cu::cuMemFreeAsync(ptr, b),
    ] as [&dyn Fn() -> CUresult; 5]
    {
        let seen = seen(|| assert_eq!(call(), refused));
        one(&seen, &[&format!("{ptr:#x}"), "before its allocation"]);
    }
    gate.open();
    ok(cu::cuStreamSynchronize(a));
    none(&seen(|| {
        ok(cu::cuMemsetD8Async(ptr, 1, 512, b));
        ok(cu::cuStreamSynchronize(b));
        ok(cu::cuMemFreeAsync(ptr, b));
    }));
    release();
}

#[test]
fn what_comes_after_the_allocation_is_in_order() {
    let _turn = turn();
    noting();
    let (a, b, c) = (stream(), stream(), stream());
    let (first, second) = (event(), event());
    let seen = seen(|| {
        let gate = Gate::close(a);
        let ptr = alloc_async(512, a);
        ok(cu::cuMemsetD8Async(ptr, 1, 512, a));
        // Ordered by two events, though the second stream has not used the memory itself.
        ok(cu::cuEventRecord(first, a));
        ok(cu::cuStreamWaitEvent(b, first, 0));
        ok(cu::cuEventRecord(second, b));
        ok(cu::cuStreamWaitEvent(c, second, 0));
        ok(cu::cuMemsetD8Async(ptr, 2, 512, c));
        // Freed on the first stream after the last use on the third.
        ok(cu::cuEventRecord(second, c));
        ok(cu::cuStreamWaitEvent(a, second, 0));
        ok(cu::cuMemFreeAsync(ptr, a));
        // The block is used again on its own stream.
        let again = alloc_async(512, a);
        assert_eq!(again, ptr);
        ok(cu::cuMemsetD8Async(again, 3, 512, a));
        ok(cu::cuMemFreeAsync(again, a));
        gate.open();
        ok(cu::cuCtxSynchronize());
    });
    none(&seen);
    release();
}

#[test]
fn the_default_stream_orders_what_blocking_streams_allocate() {
    let _turn = turn();
    noting();
    let (mut blocking, mut other) = (CUstream::NULL, CUstream::NULL);
    ok(cu::cuStreamCreate(&mut blocking, 0));
    ok(cu::cuStreamCreate(&mut other, 0));
    let seen = seen(|| {
        let gate = Gate::close(blocking);
        let ptr = alloc_async(512, blocking);
        // The default stream waits for every blocking stream, and they wait for it.
        ok(cu::cuMemsetD8Async(ptr, 1, 512, CUstream::NULL));
        ok(cu::cuMemsetD8Async(ptr, 1, 512, other));
        ok(cu::cuMemsetD8Async(ptr, 1, 512, CUstream::PER_THREAD));
        let opener = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(30));
            gate.open();
        });
        // A synchronous function is work on the default stream too.
        ok(cu::cuMemsetD8_v2(ptr, 1, 512));
        opener.join().unwrap();
        ok(cu::cuMemFreeAsync(ptr, CUstream::NULL));
        ok(cu::cuCtxSynchronize());
    });
    none(&seen);
    release();
}

#[test]
fn a_free_on_a_stream_while_another_uses_the_memory() {
    let _turn = turn();
    noting();
    let (a, b) = (stream(), stream());
    for ptr in [alloc_async(512, a), alloc(512)] {
        let gate = Gate::close(b);
        ok(cu::cuMemsetD8Async(ptr, 2, 512, b));
        let seen = seen(|| {
            ok(cu::cuMemFreeAsync(ptr, a));
            ok(cu::cuStreamSynchronize(a));
        });
        one(
            &seen,
            &[&format!("512 bytes at {ptr:#x}"), "freed on a stream"],
        );
        gate.open();
        ok(cu::cuStreamSynchronize(b));
    }
    release();
}

#[test]
fn a_free_at_once_of_stream_ordered_memory_in_use() {
    let _turn = turn();
    noting();
    let stream = stream();
    let ptr = alloc_async(512, stream);
    let gate = Gate::close(stream);
    ok(cu::cuMemsetD8Async(ptr, 2, 512, stream));
    let seen = seen(|| assert_eq!(cu::cuMemFree_v2(ptr), CUresult::INVALID_VALUE));
    one(&seen, &[&format!("{ptr:#x}"), "freed at once"]);
    gate.open();
    ok(cu::cuStreamSynchronize(stream));
    ok(cu::cuMemFree_v2(ptr));
    release();
}

const SIZE: usize = 2 << 20;

/// Physical memory, mapped at two addresses.
fn mapped_twice() -> [u64; 2] {
    let mut base = 0;
    ok(cu::cuMemAddressReserve(&mut base, 2 * SIZE, 0, 0, 0));
    let mut prop = CUmemAllocationProp {
        type_: virtual_memory::ALLOCATION_TYPE_PINNED,
        ..Default::default()
    };
    prop.location.type_ = virtual_memory::LOCATION_TYPE_DEVICE;
    let mut handle = 0;
    ok(cu::cuMemCreate(&mut handle, SIZE, &prop, 0));
    let both = [base, base + SIZE as u64];
    for at in both {
        ok(cu::cuMemMap(at, SIZE, 0, handle, 0));
    }
    ok(cu::cuMemRelease(handle));
    let desc = CUmemAccessDesc {
        location: prop.location,
        flags: virtual_memory::ACCESS_READWRITE,
    };
    ok(cu::cuMemSetAccess(base, 2 * SIZE, &desc, 1));
    both
}

#[test]
fn unmapping_memory_in_use() {
    let _turn = turn();
    noting();
    let ([used, idle], stream) = (mapped_twice(), stream());
    let gate = Gate::close(stream);
    ok(cu::cuMemsetD8Async(used, 1, 100, stream));
    none(&seen(|| ok(cu::cuMemUnmap(idle, SIZE))));
    let seen = seen(|| assert_eq!(cu::cuMemUnmap(used, SIZE), CUresult::INVALID_VALUE));
    one(&seen, &[&format!("{used:#x}"), "unmapped"]);
    gate.open();
    ok(cu::cuStreamSynchronize(stream));
    ok(cu::cuMemUnmap(used, SIZE));
    ok(cu::cuMemAddressFree(used, 2 * SIZE));
    release();
}

#[test]
fn access_is_set_by_all_descriptions_or_none() {
    let _turn = turn();
    noting();
    let [base, _] = mapped_twice();
    let describe = |flags| {
        let mut desc = CUmemAccessDesc {
            flags,
            ..Default::default()
        };
        desc.location.type_ = virtual_memory::LOCATION_TYPE_DEVICE;
        desc
    };
    let wrong = [describe(0), describe(77)];
    let result = cu::cuMemSetAccess(base, 2 * SIZE, wrong.as_ptr(), 2);
    assert_eq!(result, CUresult::INVALID_VALUE);
    ok(cu::cuMemsetD8_v2(base, 1, 16));
    ok(cu::cuMemUnmap(base, 2 * SIZE));
    ok(cu::cuMemAddressFree(base, 2 * SIZE));
    release();
}

#[test]
fn a_copy_to_or_from_freed_host_memory() {
    let _turn = turn();
    noting();
    let (device, host) = (alloc(10_000), pinned(10_000));
    let mut managed = 0;
    ok(cu::cuMemAllocManaged(&mut managed, 10_000, 1));
    ok(cu::cuMemFreeHost(host));
    ok(cu::cuMemFree_v2(managed));
    let refused = CUresult::INVALID_VALUE;
    for freed in [host, managed as *mut _] {
        let seen = seen(|| {
            assert_eq!(cu::cuMemcpyDtoH_v2(freed, device, 10_000), refused);
            let stream = stream();
            let inside = freed.wrapping_byte_add(5000);
            let result = cu::cuMemcpyHtoDAsync_v2(device, inside, 10, stream);
            assert_eq!(result, refused);
            assert_eq!(cu::cuMemHostRegister_v2(freed, 4096, 0), refused);
        });
        assert_eq!(seen.len(), 3, "{seen:?}");
        assert!(seen.iter().all(|line| line.ends_with("was freed")));
    }
    release();
}

#[test]
fn host_memory_freed_while_registered() {
    let _turn = turn();
    noting();
    let seen = seen(|| {
        // Mapped, not from the heap: which addresses an allocator reuses depends on its threads. The
        // system maps the pages of the next allocation where these were, unless another thread is
        // faster.
        for _ in 0..100 {
            let own = map(4 * MIB);
            let result = cu::cuMemHostRegister_v2(own, 4 * MIB, 0);
            if result == CUresult::HOST_MEMORY_ALREADY_REGISTERED {
                // Kept, so that the next mapping has another address.
                continue;
            }
            ok(result);
            // SAFETY: mapped above; only its registration is left, which is what this tests.
            assert_eq!(unsafe { libc::munmap(own, 4 * MIB) }, 0);
            let mut out = std::ptr::null_mut();
            let result = cu::cuMemHostAlloc(&mut out, 4 * MIB, 0);
            if result == CUresult::INVALID_VALUE {
                assert!(out.is_null());
                return;
            }
            ok(result);
        }
    });
    one(&seen, &["4194304 bytes", "freed while registered"]);
    // The stale registration was removed.
    let host = pinned(4 * MIB);
    ok(cu::cuMemFreeHost(host));
    release();
}

#[test]
fn a_thousand_lines_are_kept_and_all_cases_are_counted() {
    if !is_child() {
        return lives("a_thousand_lines_are_kept_and_all_cases_are_counted");
    }
    noting();
    for _ in 0..1500 {
        let _ = cu::cuStreamQuery(CUstream(0xdead_beef));
    }
    assert_eq!(misuses().len(), 1000);
    assert_eq!(cuguard_sim::counters().misuses, 1500);
}
