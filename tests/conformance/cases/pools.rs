//! Memory pools and stream-ordered memory: sizes, attributes, what can be freed how.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"pools":
    default_pool_at_first,
    sizes,
    reserved_in_chunks,
    blocks_side_by_side,
    high_water_marks,
    wrong_attributes,
    default_pool_is_not_destroyed,
    free_stream_ordered_twice,
    free_what_is_not_a_block,
    free_synchronously,
    free_plain_memory_on_a_stream,
    use_after_free,
    create_pool,
    allocate_from_pool,
    device_pool,
    destroyed_pool,
    whatever_is_current,
}

fn device_props(device: CUdevice) -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: virtual_memory::ALLOCATION_TYPE_PINNED,
        location: CUmemLocation {
            type_: virtual_memory::LOCATION_TYPE_DEVICE,
            id: device,
        },
        ..CUmemPoolProps::default()
    }
}

/// A pool of the first device.
pub(crate) fn pool(c: &Case) -> CUmemoryPool {
    let mut pool = CUmemoryPool::NULL;
    c.require(
        "cuMemPoolCreate",
        cuMemPoolCreate(&mut pool, &device_props(0)),
    );
    pool
}

fn device_pool_now(c: &Case) -> CUmemoryPool {
    let mut pool = CUmemoryPool::NULL;
    c.require("cuDeviceGetMemPool", cuDeviceGetMemPool(&mut pool, 0));
    pool
}

/// A device's default pool is its pool at first; it is empty, keeps nothing, and reuses freely.
fn default_pool_at_first(c: &Case) {
    use pool_attribute::*;
    primary(c);
    let (default, current) = (default_pool(c), device_pool_now(c));
    c.yes("the device's pool is the default pool", default == current);
    for (what, attribute) in [
        ("follows events", REUSE_FOLLOW_EVENT_DEPENDENCIES),
        ("reuses opportunistically", REUSE_ALLOW_OPPORTUNISTIC),
        (
            "makes streams wait for reuse",
            REUSE_ALLOW_INTERNAL_DEPENDENCIES,
        ),
    ] {
        let mut value = -1_i32;
        let result = cuMemPoolGetAttribute(default, attribute, (&raw mut value).cast());
        c.ok(what, result);
        c.same(
            format_args!("value of: {what}"),
            std::hint::black_box(value),
            1,
        );
    }
    for (what, attribute) in [
        ("release threshold", RELEASE_THRESHOLD),
        ("reserved", RESERVED_MEM_CURRENT),
        ("most reserved", RESERVED_MEM_HIGH),
        ("used", USED_MEM_CURRENT),
        ("most used", USED_MEM_HIGH),
    ] {
        c.same(what, pool_value(c, default, attribute), 0);
    }
}

/// A stream-ordered block of 0 bytes is no error; what does not fit is OUT_OF_MEMORY.
fn sizes(c: &Case) {
    primary(c);
    let stream = independent(c);
    let mut ptr = 0;
    let want = Code::OUT_OF_MEMORY;
    c.ok("0 bytes", cuMemAllocAsync(&mut ptr, 0, stream));
    c.expect("1 TiB", cuMemAllocAsync(&mut ptr, 1 << 40, stream), want);
    c.expect(
        "the largest number",
        cuMemAllocAsync(&mut ptr, usize::MAX, stream),
        want,
    );
    c.invalid(
        "into null",
        cuMemAllocAsync(std::ptr::null_mut(), 16, stream),
    );
    c.ok("1 byte after that", cuMemAllocAsync(&mut ptr, 1, stream));
    c.ok("fill it", cuMemsetD8Async(ptr, 9, 1, stream));
    wait_for(c, stream);
    c.same("what is in it", read(c, ptr, 1), vec![9]);
    c.invalid("fill two bytes", cuMemsetD8Async(ptr, 9, 2, stream));
    c.ok("free it", cuMemFreeAsync(ptr, stream));
}

/// A pool takes memory in chunks of 32 MiB, and counts as used exactly what was asked for.
fn reserved_in_chunks(c: &Case) {
    primary(c);
    let (pool, stream) = (default_pool(c), independent(c));
    for (bytes, chunks) in [
        (1, 1),
        (255, 1),
        (257, 1),
        (512, 1),
        (1000, 1),
        (4096, 1),
        (MIB, 1),
        (MIB + 1, 1),
        (2 * MIB, 1),
        (3 * MIB, 1),
        (5 * MIB + 7, 1),
        (31 * MIB, 1),
        (32 * MIB, 1),
        (33 * MIB, 2),
        (64 * MIB, 2),
        (100 * MIB, 4),
    ] {
        let mut ptr = 0;
        let taken = taken_kib(c, |c| ptr = alloc_async(c, bytes, stream));
        c.same(
            format_args!("KiB taken for {bytes} bytes"),
            taken,
            chunks * 32 * 1024,
        );
        let kib = reserved_kib(c, pool);
        c.same(
            format_args!("KiB reserved for {bytes} bytes"),
            kib,
            chunks as u64 * 32 * 1024,
        );
        c.same(
            format_args!("used for {bytes} bytes"),
            used(c, pool),
            bytes as u64,
        );
        free_async(c, ptr, stream);
        wait_for(c, stream);
    }
    c.same("reserved when all are freed", reserved_kib(c, pool), 0);
}

/// Chunks lie side by side, and a block may lie across two of them. A freed block is reused.
fn blocks_side_by_side(c: &Case) {
    primary(c);
    let (pool, stream) = (default_pool(c), independent(c));
    let (mut blocks, mut steps, mut reserved) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..24 {
        let ptr = alloc_async(c, 3 * MIB, stream);
        blocks.push(ptr);
        steps.push((ptr.wrapping_sub(blocks[0])) / MIB as u64);
        reserved.push(reserved_kib(c, pool) / 1024);
    }
    let every_third: Vec<u64> = (0..24).map(|index| index * 3).collect();
    c.same("MiB from the first block", steps, every_third);
    let want: Vec<u64> = (1..=24_u64)
        .map(|count| (count * 3).div_ceil(32) * 32)
        .collect();
    c.same("MiB reserved", reserved, want);
    for &ptr in blocks.iter().skip(1).step_by(2) {
        free_async(c, ptr, stream);
    }
    wait_for(c, stream);
    c.same(
        "KiB reserved, every other block freed",
        reserved_kib(c, pool),
        96 * 1024,
    );
    c.same("used then", used(c, pool), 36 * MIB as u64);
    let again = alloc_async(c, 3 * MIB, stream);
    c.yes(
        "a new block takes the place of a freed one",
        blocks[1..].contains(&again),
    );
    c.same("KiB reserved then", reserved_kib(c, pool), 96 * 1024);
    free_async(c, again, stream);
    for &ptr in blocks.iter().step_by(2) {
        free_async(c, ptr, stream);
    }
    wait_for(c, stream);
    c.same("KiB reserved when all are freed", reserved_kib(c, pool), 0);
}

/// The marks of the most that was reserved and used stay until they are set back to 0.
fn high_water_marks(c: &Case) {
    use pool_attribute::{RESERVED_MEM_HIGH, USED_MEM_HIGH};
    primary(c);
    let (pool, stream) = (default_pool(c), independent(c));
    let ptr = alloc_async(c, 40 * MIB, stream);
    free_async(c, ptr, stream);
    wait_for(c, stream);
    c.same("reserved", reserved_kib(c, pool), 0);
    c.same(
        "most reserved",
        pool_value(c, pool, RESERVED_MEM_HIGH),
        64 * MIB as u64,
    );
    c.same(
        "most used",
        pool_value(c, pool, USED_MEM_HIGH),
        40 * MIB as u64,
    );
    c.invalid(
        "set the most reserved to 5",
        set_pool_value(pool, RESERVED_MEM_HIGH, 5),
    );
    c.ok(
        "set the most reserved to 0",
        set_pool_value(pool, RESERVED_MEM_HIGH, 0),
    );
    c.ok(
        "set the most used to 0",
        set_pool_value(pool, USED_MEM_HIGH, 0),
    );
    c.same(
        "most reserved then",
        pool_value(c, pool, RESERVED_MEM_HIGH),
        0,
    );
    c.same("most used then", pool_value(c, pool, USED_MEM_HIGH), 0);
}

/// What a pool holds cannot be set, and attributes that do not exist fail.
fn wrong_attributes(c: &Case) {
    use pool_attribute::*;
    primary(c);
    let pool = default_pool(c);
    c.invalid(
        "set reserved",
        set_pool_value(pool, RESERVED_MEM_CURRENT, 5),
    );
    c.invalid("set used", set_pool_value(pool, USED_MEM_CURRENT, 5));
    c.invalid("set attribute 99", set_pool_value(pool, 99, 5));
    let mut value = 0_u64;
    let place: *mut c_void = (&raw mut value).cast();
    c.invalid("read attribute 99", cuMemPoolGetAttribute(pool, 99, place));
    let null = std::ptr::null_mut();
    c.invalid(
        "read into null",
        cuMemPoolGetAttribute(pool, RELEASE_THRESHOLD, null),
    );
    let result = cuMemPoolGetAttribute(CUmemoryPool::NULL, RELEASE_THRESHOLD, place);
    c.invalid("read from no pool", result);
    c.ok(
        "set the threshold",
        set_pool_value(pool, RELEASE_THRESHOLD, 12345),
    );
    c.same(
        "the threshold then",
        pool_value(c, pool, RELEASE_THRESHOLD),
        12345,
    );
}

/// The default pool stays.
fn default_pool_is_not_destroyed(c: &Case) {
    primary(c);
    let pool = default_pool(c);
    c.invalid("destroy the default pool", cuMemPoolDestroy(pool));
    c.invalid("destroy no pool", cuMemPoolDestroy(CUmemoryPool::NULL));
    let ptr = alloc_async(c, 16, CUstream::NULL);
    c.ok("it still works", cuMemFreeAsync(ptr, CUstream::NULL));
}

/// A stream-ordered block is freed once, before and after the stream got there.
fn free_stream_ordered_twice(c: &Case) {
    primary(c);
    let (pool, stream) = (default_pool(c), independent(c));
    let ptr = alloc_async(c, 1, stream);
    c.ok("free", cuMemFreeAsync(ptr, stream));
    c.same("used then", used(c, pool), 0);
    c.invalid("free again at once", cuMemFreeAsync(ptr, stream));
    wait_for(c, stream);
    c.invalid(
        "free again after the stream was waited for",
        cuMemFreeAsync(ptr, stream),
    );
    c.invalid("free again synchronously", cuMemFree_v2(ptr));
}

/// Null is no error; anything that is not the start of a block is INVALID_VALUE.
fn free_what_is_not_a_block(c: &Case) {
    primary(c);
    let stream = independent(c);
    c.ok("null", cuMemFreeAsync(0, stream));
    c.invalid("an address made up", cuMemFreeAsync(0x1234, stream));
    let p = pinned(c, 100);
    c.invalid("pinned memory", cuMemFreeAsync(p.addr() as u64, stream));
    let shared = managed(c, 100);
    c.expect(
        "managed memory",
        cuMemFreeAsync(shared, stream),
        Code::NOT_SUPPORTED,
    );
    let ptr = alloc_async(c, 4096, stream);
    c.invalid("a block at 256", cuMemFreeAsync(ptr + 256, stream));
    c.ok("the block", cuMemFreeAsync(ptr, stream));
}

/// `cuMemFree` frees a stream-ordered block and its chunk at once; the pool's count of used bytes
/// does not notice.
fn free_synchronously(c: &Case) {
    primary(c);
    let (pool, stream) = (default_pool(c), independent(c));
    let ptr = alloc_async(c, MIB, stream);
    wait_for(c, stream);
    c.ok("cuMemFree", cuMemFree_v2(ptr));
    c.same("KiB reserved", reserved_kib(c, pool), 0);
    c.same("used", used(c, pool), MIB as u64);
    synchronize(c);
    c.same(
        "used after the context was waited for",
        used(c, pool),
        MIB as u64,
    );
    c.invalid("cuMemFree again", cuMemFree_v2(ptr));
    c.invalid("cuMemFreeAsync", cuMemFreeAsync(ptr, stream));
}

/// `cuMemFreeAsync` frees what `cuMemAlloc` allocated.
fn free_plain_memory_on_a_stream(c: &Case) {
    primary(c);
    let stream = independent(c);
    let mut ptr = 0;
    let taken = taken_kib(c, |c| {
        ptr = alloc(c, 64 * MIB);
        c.ok("cuMemFreeAsync", cuMemFreeAsync(ptr, stream));
        wait_for(c, stream);
    });
    c.same("KiB that did not come back", taken, 0);
    c.invalid("cuMemFree", cuMemFree_v2(ptr));
    c.invalid("cuMemFreeAsync again", cuMemFreeAsync(ptr, stream));
}

/// A freed block is not an address, before and after the stream got there.
fn use_after_free(c: &Case) {
    primary(c);
    let stream = independent(c);
    let ptr = alloc_async(c, 4096, stream);
    free_async(c, ptr, stream);
    let data = [0_u8; 16];
    let result = cuMemcpyHtoDAsync_v2(ptr, data.as_ptr().cast(), 16, stream);
    c.invalid("copy to it", result);
    c.invalid("fill it", cuMemsetD8Async(ptr, 1, 16, stream));
    wait_for(c, stream);
    c.invalid(
        "fill it after the stream was waited for",
        cuMemsetD8Async(ptr, 1, 16, stream),
    );
    c.invalid("fill it synchronously", cuMemsetD8_v2(ptr, 1, 16));
    c.ok("nothing is broken", cuCtxSynchronize());
}

/// A pool is made of pinned memory on a device that is there.
fn create_pool(c: &Case) {
    primary(c);
    let mut pool = CUmemoryPool::NULL;
    let nothing = CUmemPoolProps::default();
    c.invalid("of nothing", cuMemPoolCreate(&mut pool, &nothing));
    let nowhere = CUmemPoolProps {
        allocType: virtual_memory::ALLOCATION_TYPE_PINNED,
        ..nothing
    };
    c.invalid("nowhere", cuMemPoolCreate(&mut pool, &nowhere));
    c.invalid(
        "on device 7777",
        cuMemPoolCreate(&mut pool, &device_props(7777)),
    );
    c.ok("on device 0", cuMemPoolCreate(&mut pool, &device_props(0)));
    c.same("KiB reserved", reserved_kib(c, pool), 0);
    c.same("used", used(c, pool), 0);
    c.ok("destroy", cuMemPoolDestroy(pool));
}

/// A created pool has its own memory, and the default pool does not notice.
fn allocate_from_pool(c: &Case) {
    primary(c);
    let (default, pool, stream) = (default_pool(c), pool(c), independent(c));
    let mut ptr = 0;
    c.ok(
        "allocate",
        cuMemAllocFromPoolAsync(&mut ptr, MIB, pool, stream),
    );
    c.same("KiB reserved", reserved_kib(c, pool), 32 * 1024);
    c.same("used", used(c, pool), MIB as u64);
    c.same(
        "KiB reserved by the default pool",
        reserved_kib(c, default),
        0,
    );
    c.ok("fill", cuMemsetD8Async(ptr, 4, MIB, stream));
    wait_for(c, stream);
    c.same("what is in it", read(c, ptr, 2), vec![4, 4]);
    c.ok("free", cuMemFreeAsync(ptr, stream));
    wait_for(c, stream);
    c.same("KiB reserved then", reserved_kib(c, pool), 0);
    let result = cuMemAllocFromPoolAsync(&mut ptr, 16, CUmemoryPool::NULL, stream);
    c.invalid("allocate from no pool", result);
    c.ok("destroy", cuMemPoolDestroy(pool));
}

/// A device's pool can be replaced: that is where `cuMemAllocAsync` then takes its memory.
fn device_pool(c: &Case) {
    primary(c);
    let (default, pool, stream) = (default_pool(c), pool(c), independent(c));
    c.ok("set", cuDeviceSetMemPool(0, pool));
    c.yes("it is the device's pool", device_pool_now(c) == pool);
    c.yes(
        "the default pool is still the default",
        default_pool(c) == default,
    );
    alloc_async(c, MIB, stream);
    c.same("used there", used(c, pool), MIB as u64);
    c.same("used in the default pool", used(c, default), 0);
    c.ok("destroy it", cuMemPoolDestroy(pool));
    c.yes(
        "the default pool is the device's again",
        device_pool_now(c) == default,
    );
}

/// Blocks outlive their pool; the last one that is freed gives its memory back.
fn destroyed_pool(c: &Case) {
    primary(c);
    let (pool, stream) = (pool(c), independent(c));
    let (mut one, mut two) = (0, 0);
    c.require(
        "allocate",
        cuMemAllocFromPoolAsync(&mut one, MIB, pool, stream),
    );
    c.require(
        "allocate",
        cuMemAllocFromPoolAsync(&mut two, MIB, pool, stream),
    );
    c.ok("destroy", cuMemPoolDestroy(pool));
    c.ok("fill a block", cuMemsetD8Async(one, 3, MIB, stream));
    wait_for(c, stream);
    c.same("what is in it", read(c, one, 2), vec![3, 3]);
    let given_back = -taken_kib(c, |c| {
        c.ok("free one", cuMemFreeAsync(one, stream));
        c.ok("free the other", cuMemFreeAsync(two, stream));
        wait_for(c, stream);
    });
    c.same("KiB that came back", given_back, 32 * 1024);
}

/// Stream-ordered memory goes by its stream: it is allocated, cleared and freed there whatever
/// context is current, and where none is.
fn whatever_is_current(c: &Case) {
    let context = primary(c);
    let (default, stream) = (default_pool(c), independent(c));
    let pair = |what: &str| {
        let mut ptr = 0;
        let code = cuMemAllocAsync(&mut ptr, MIB, stream);
        c.ok(format_args!("allocate with {what} current"), code);
        let code = cuMemsetD8Async(ptr, 1, MIB, stream);
        c.ok(format_args!("clear with {what} current"), code);
        let code = cuMemFreeAsync(ptr, stream);
        c.ok(format_args!("free with {what} current"), code);
        let code = cuMemAllocFromPoolAsync(&mut ptr, MIB, default, stream);
        c.ok(format_args!("from a pool with {what} current"), code);
        let code = cuMemFreeAsync(ptr, stream);
        c.ok(format_args!("free that with {what} current"), code);
        let code = cuStreamSynchronize(stream);
        c.ok(format_args!("wait with {what} current"), code);
    };
    pair("its own context");
    let other = create(c);
    pair("another context");
    c.yes("the other one still is", current(c) == other);
    crate::host::on_another_thread(|| pair("no context"));
    c.ok("destroy the other one", cuCtxDestroy_v2(other));
    c.ok("back to the first", cuCtxSetCurrent(context));
    c.same("used in the end", used(c, default), 0);
}
