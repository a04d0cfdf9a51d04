//! Pools of host and managed memory, and batches of copies: what is in flight, what is counted.

use crate::common::*;
use cuguard_sim::{counters, misuses};
use cuguard_sys::*;

fn location(type_: u32) -> CUmemLocation {
    CUmemLocation { type_, id: 0 }
}

fn pool(allocation_type: u32, location_type: u32) -> CUmemoryPool {
    let props = CUmemPoolProps {
        allocType: allocation_type,
        location: location(location_type),
        ..CUmemPoolProps::default()
    };
    let mut pool = CUmemoryPool::NULL;
    ok(cu::cuMemPoolCreate(&mut pool, &props));
    pool
}

fn host_pool() -> CUmemoryPool {
    pool(mem_allocation_type::PINNED, mem_location_type::HOST)
}

fn allocate_from(pool: CUmemoryPool, bytes: usize, stream: CUstream) -> CUdeviceptr {
    let mut ptr = 0;
    ok(cu::cuMemAllocFromPoolAsync(&mut ptr, bytes, pool, stream));
    ptr
}

/// Gives a device access to a pool, or revokes it.
fn set_access(pool: CUmemoryPool, device: CUdevice, flags: u32) {
    let mut access = CUmemAccessDesc {
        location: location(mem_location_type::DEVICE),
        flags,
    };
    access.location.id = device;
    ok(cu::cuMemPoolSetAccess(pool, &access, 1));
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

/// Memory that is freed and allocated again on a stream keeps its contents for the work before.
fn earlier_work_sees_the_old_data(pool: CUmemoryPool) {
    let (stream, target) = (stream(), alloc(4));
    let first = allocate_from(pool, 4096, stream);
    ok(cu::cuMemsetD32Async(first, 0x1111_1111, 1024, stream));
    ok(cu::cuStreamSynchronize(stream));
    let gate = Gate::close(stream);
    ok(cu::cuMemcpyAsync(target, first, 4, stream));
    ok(cu::cuMemFreeAsync(first, stream));
    let second = allocate_from(pool, 4096, stream);
    assert_eq!(first, second, "freed memory is reused on its stream");
    gate.open();
    ok(cu::cuStreamSynchronize(stream));
    assert_eq!(read(target), 0x1111_1111);
    // SAFETY: memory of this test, whose allocation is complete.
    let new = unsafe { (second as *const u32).read_volatile() };
    assert_eq!(new, 0xA5A5_A5A5, "new memory is filled");
    ok(cu::cuMemFreeAsync(second, stream));
    ok(cu::cuMemFree_v2(target));
    ok(cu::cuMemPoolDestroy(pool));
}

#[test]
fn an_allocation_does_not_change_what_earlier_work_reads() {
    let _turn = turn();
    context();
    let host = host_pool();
    set_access(host, 0, mem_access_flags::READWRITE);
    earlier_work_sees_the_old_data(host);
    earlier_work_sees_the_old_data(pool(
        mem_allocation_type::MANAGED,
        mem_location_type::DEVICE,
    ));
    release();
}

#[test]
fn host_memory_freed_before_its_stream_allocates_it_is_not_filled_later() {
    let _turn = turn();
    context();
    let (pool, slow, other) = (host_pool(), stream(), stream());
    let gate = Gate::close(slow);
    let first = allocate_from(pool, 4096, slow);
    ok(cu::cuMemFree_v2(first));
    let second = allocate_from(pool, 4096, other);
    ok(cu::cuStreamSynchronize(other));
    // SAFETY: memory of this test, whose allocation is complete.
    unsafe { (second as *mut u8).write_volatile(7) };
    gate.open();
    ok(cu::cuStreamSynchronize(slow));
    // SAFETY: as above.
    assert_eq!(unsafe { (second as *const u8).read_volatile() }, 7);
    ok(cu::cuMemFreeAsync(second, other));
    ok(cu::cuMemPoolDestroy(pool));
    release();
}

/// Runs a test in a child process with these settings.
fn in_child(name: &str, setting: &str, test: impl FnOnce()) {
    if is_child() {
        return test();
    }
    let output = child_with(name, Some(setting));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
}

/// Returns the misuse that a call, which must fail, is.
#[track_caller]
fn misuse_of(call: impl FnOnce() -> CUresult) -> String {
    let before = misuses().len();
    assert_eq!(call(), CUresult::INVALID_VALUE);
    let mut seen = misuses().split_off(before);
    assert_eq!(seen.len(), 1, "{seen:?}");
    seen.remove(0)
}

#[test]
fn freed_memory_of_a_host_pool_is_known_as_freed() {
    let name = "freed_memory_of_a_host_pool_is_known_as_freed";
    in_child(name, "misuse=error", || {
        context();
        let (pool, stream, target) = (host_pool(), stream(), alloc(4096));
        let kept = allocate_from(pool, 4096, stream);
        let ptr = allocate_from(pool, 4096, stream);
        ok(cu::cuStreamSynchronize(stream));
        ok(cu::cuMemcpyHtoD_v2(target, ptr as *const _, 4096));
        ok(cu::cuMemFreeAsync(ptr, stream));
        ok(cu::cuStreamSynchronize(stream));
        let copy = || cu::cuMemcpyHtoD_v2(target, ptr as *const _, 4096);
        let text = misuse_of(copy);
        assert!(text.contains("pool"), "{text}");
        let register = || cu::cuMemHostRegister_v2(ptr as *mut _, 4096, 0);
        misuse_of(register);
        assert_eq!(allocate_from(pool, 4096, stream), ptr);
        ok(cu::cuStreamSynchronize(stream));
        ok(copy());
        for ptr in [ptr, kept] {
            ok(cu::cuMemFreeAsync(ptr, stream));
        }
        ok(cu::cuStreamSynchronize(stream));
        ok(cu::cuMemPoolDestroy(pool));
        let text = misuse_of(copy);
        assert!(text.contains("freed"), "{text}");
        misuse_of(register);
    });
}

#[test]
fn memory_of_a_destroyed_pool_faults() {
    let name = "memory_of_a_destroyed_pool_faults";
    if !is_child() {
        use std::os::unix::process::ExitStatusExt;
        let status = child(name).status;
        assert_eq!(status.signal(), Some(11), "{status}");
        return;
    }
    context();
    let (pool, stream) = (host_pool(), stream());
    let ptr = allocate_from(pool, 4096, stream);
    ok(cu::cuStreamSynchronize(stream));
    ok(cu::cuMemPoolDestroy(pool));
    ok(cu::cuMemFree_v2(ptr));
    // SAFETY: a use after free, which ends the process.
    unsafe { (ptr as *mut u8).write_volatile(1) };
}

#[test]
fn each_device_has_access_of_its_own_to_a_host_pool() {
    let name = "each_device_has_access_of_its_own_to_a_host_pool";
    in_child(name, "devices=2", || {
        ok(cu::cuInit(0));
        let mut contexts = [CUcontext::NULL; 2];
        for (device, context) in (0..).zip(&mut contexts) {
            ok(cu::cuDevicePrimaryCtxRetain(context, device));
        }
        ok(cu::cuCtxSetCurrent(contexts[1]));
        let (pool, stream) = (host_pool(), stream());
        let before = allocate_from(pool, 4096, stream);
        set_access(pool, 1, mem_access_flags::READWRITE);
        let after = allocate_from(pool, 4096, stream);
        ok(cu::cuStreamSynchronize(stream));
        // The access of another device changes nothing.
        set_access(pool, 0, mem_access_flags::NONE);
        let fill = |ptr| cu::cuMemsetD8_v2(ptr, 1, 4096);
        let range = |ptr| {
            let (mut base, mut size) = (0, 0);
            cu::cuMemGetAddressRange_v2(&mut base, &mut size, ptr)
        };
        let device_pointer = |ptr| {
            let mut out = 0_u64;
            let which = pointer_attribute::DEVICE_POINTER;
            cu::cuPointerGetAttribute((&raw mut out).cast(), which, ptr)
        };
        for ptr in [before, after] {
            ok(fill(ptr));
            ok(range(ptr));
            ok(device_pointer(ptr));
        }
        ok(cu::cuCtxSetCurrent(contexts[0]));
        for ptr in [before, after] {
            assert_eq!(fill(ptr), CUresult::INVALID_VALUE);
            assert_eq!(range(ptr), CUresult::NOT_FOUND);
            assert_eq!(device_pointer(ptr), CUresult::INVALID_VALUE);
        }
    });
}

#[test]
fn pools_that_are_not_used_need_no_addresses() {
    let name = "pools_that_are_not_used_need_no_addresses";
    if !is_child() {
        let test = child_command(name);
        let script = "ulimit -v 30000000 && exec \"$0\" \"$@\"";
        let mut limited = std::process::Command::new("sh");
        limited.args(["-c", script]).arg(test.get_program());
        let output = limited.args(test.get_args()).env("CHILD", "1").output();
        let output = output.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}", output.status);
        return;
    }
    context();
    let stream = stream();
    let pools: Vec<_> = (0..5000).map(|_| host_pool()).collect();
    // More than fit with all the addresses that a pool would like.
    let used = pools.iter().take(40);
    let blocks: Vec<_> = used.map(|pool| allocate_from(*pool, MIB, stream)).collect();
    ok(cu::cuStreamSynchronize(stream));
    for block in blocks {
        ok(cu::cuMemFreeAsync(block, stream));
    }
    for pool in pools {
        ok(cu::cuMemPoolDestroy(pool));
    }
    release();
}

#[test]
fn an_attribute_with_an_absurd_size_is_an_error() {
    let _turn = turn();
    context();
    let (mut ptr, mut data) = (0, [0_i32; 4]);
    ok(cu::cuMemAllocManaged(
        &mut ptr,
        4096,
        flags::MEM_ATTACH_GLOBAL,
    ));
    let which = mem_range_attribute::ACCESSED_BY;
    let mut get = |size| {
        let data = data.as_mut_ptr().cast();
        cu::cuMemRangeGetAttribute(data, size, which, ptr, 4096)
    };
    assert_eq!(get(usize::MAX - 3), CUresult::INVALID_VALUE);
    ok(get(16));
    assert_eq!(data, [-2; 4]);
    ok(cu::cuMemFree_v2(ptr));
    release();
}

#[test]
fn a_full_device_does_not_trim_host_pools() {
    let _turn = turn();
    context();
    let (pool, stream) = (host_pool(), stream());
    let mut keep = u64::MAX;
    let threshold = pool_attribute::RELEASE_THRESHOLD;
    ok(cu::cuMemPoolSetAttribute(
        pool,
        threshold,
        (&raw mut keep).cast(),
    ));
    let ptr = allocate_from(pool, MIB, stream);
    ok(cu::cuMemFreeAsync(ptr, stream));
    ok(cu::cuStreamSynchronize(stream));
    let reserved = || {
        let mut bytes = 0_u64;
        let which = pool_attribute::RESERVED_MEM_CURRENT;
        let out = (&raw mut bytes).cast();
        ok(cu::cuMemPoolGetAttribute(pool, which, out));
        bytes
    };
    let before = reserved();
    assert!(before > 0);
    let mut device = 0;
    let full = cu::cuMemAlloc_v2(&mut device, free_bytes() + 2 * MIB);
    assert_eq!(full, CUresult::OUT_OF_MEMORY);
    assert_eq!(reserved(), before);
    ok(cu::cuMemPoolDestroy(pool));
    release();
}
