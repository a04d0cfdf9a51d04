//! When a pool gives memory back, and who may reuse it before.

use std::time::Duration;

use crate::case::Case;
use crate::driver::*;
use crate::host::Gate;
use crate::tools::*;

cases! {"pool_release":
    at_stream_synchronise,
    at_event_synchronise,
    at_context_synchronise,
    not_by_itself,
    not_by_another_stream,
    whole_chunks,
    threshold,
    trim,
    trim_waits_for_the_stream,
    reuse_on_the_same_stream,
    no_reuse_while_blocked,
    one_gibibyte_comes_back,
}

/// Allocates and frees 1 MiB on `stream`, which is not waited for.
fn use_once(c: &Case, stream: CUstream) {
    let ptr = alloc_async(c, MIB, stream);
    free_async(c, ptr, stream);
}

/// Freed memory goes back to the device when its stream is waited for.
fn at_stream_synchronise(c: &Case) {
    primary(c);
    let (pool, stream) = (default_pool(c), independent(c));
    let before = free_bytes(c);
    use_once(c, stream);
    c.same("KiB reserved when freed", reserved_kib(c, pool), 32 * 1024);
    c.same("used when freed", used(c, pool), 0);
    c.ok("wait for the stream", cuStreamSynchronize(stream));
    c.same("KiB reserved then", reserved_kib(c, pool), 0);
    c.yes("the device has it back", free_bytes(c) == before);
}

/// An event recorded after the free, and waited for, does it too.
fn at_event_synchronise(c: &Case) {
    primary(c);
    let (pool, stream, event) = (default_pool(c), independent(c), event(c, 0));
    use_once(c, stream);
    c.ok("record", cuEventRecord(event, stream));
    c.ok("wait for the event", cuEventSynchronize(event));
    c.same("KiB reserved then", reserved_kib(c, pool), 0);
}

/// The whole context, waited for, does it too.
fn at_context_synchronise(c: &Case) {
    primary(c);
    let (pool, stream) = (default_pool(c), independent(c));
    use_once(c, stream);
    c.ok("wait for the context", cuCtxSynchronize());
    c.same("KiB reserved then", reserved_kib(c, pool), 0);
}

/// Neither time nor a query gives memory back.
fn not_by_itself(c: &Case) {
    primary(c);
    let (pool, stream) = (default_pool(c), independent(c));
    use_once(c, stream);
    // The result depends on the progress of the stream; the query must change nothing.
    let _ = cuStreamQuery(stream);
    std::thread::sleep(Duration::from_millis(100));
    c.ok("the stream is done", cuStreamQuery(stream));
    c.same("KiB reserved", reserved_kib(c, pool), 32 * 1024);
    wait_for(c, stream);
}

/// Another stream, waited for, releases nothing.
fn not_by_another_stream(c: &Case) {
    primary(c);
    let (pool, stream, other) = (default_pool(c), independent(c), independent(c));
    use_once(c, stream);
    c.ok("wait for another stream", cuStreamSynchronize(other));
    c.same("KiB reserved", reserved_kib(c, pool), 32 * 1024);
    c.ok("wait for the stream", cuStreamSynchronize(stream));
    c.same("KiB reserved then", reserved_kib(c, pool), 0);
}

/// A chunk of 32 MiB goes back when no block lies in it any more, not even in part.
fn whole_chunks(c: &Case) {
    primary(c);
    let (pool, stream) = (default_pool(c), independent(c));
    let blocks: Vec<_> = (0..3).map(|_| alloc_async(c, 20 * MIB, stream)).collect();
    c.same(
        "KiB reserved for three blocks of 20 MiB",
        reserved_kib(c, pool),
        64 * 1024,
    );
    free_async(c, blocks[1], stream);
    wait_for(c, stream);
    c.same(
        "KiB reserved without the middle one",
        reserved_kib(c, pool),
        64 * 1024,
    );
    free_async(c, blocks[0], stream);
    wait_for(c, stream);
    c.same(
        "KiB reserved without the first one too",
        reserved_kib(c, pool),
        32 * 1024,
    );
    free_async(c, blocks[2], stream);
    wait_for(c, stream);
    c.same(
        "KiB reserved without the last one too",
        reserved_kib(c, pool),
        0,
    );
}

/// A pool keeps what its threshold allows.
fn threshold(c: &Case) {
    primary(c);
    let (pool, stream) = (default_pool(c), independent(c));
    let result = set_pool_value(pool, pool_attribute::RELEASE_THRESHOLD, 1 << 40);
    c.ok("set the threshold to 1 TiB", result);
    let ptr = alloc_async(c, 10 * MIB, stream);
    free_async(c, ptr, stream);
    wait_for(c, stream);
    c.same(
        "KiB reserved after the stream was waited for",
        reserved_kib(c, pool),
        32 * 1024,
    );
    synchronize(c);
    c.same(
        "KiB reserved after the context was",
        reserved_kib(c, pool),
        32 * 1024,
    );
    c.ok("trim to 0", cuMemPoolTrimTo(pool, 0));
    c.same("KiB reserved then", reserved_kib(c, pool), 0);
}

/// A trim gives chunks back as long as at least so many bytes stay; blocks in use stay anyway.
fn trim(c: &Case) {
    primary(c);
    let (pool, stream) = (default_pool(c), independent(c));
    let threshold = pool_attribute::RELEASE_THRESHOLD;
    c.require("threshold", set_pool_value(pool, threshold, 1 << 40));
    let ptr = alloc_async(c, 10 * MIB, stream);
    let freed = alloc_async(c, 40 * MIB, stream);
    free_async(c, freed, stream);
    wait_for(c, stream);
    c.same(
        "KiB reserved, 10 MiB in use, 40 MiB freed",
        reserved_kib(c, pool),
        64 * 1024,
    );
    for (bytes, what, want) in [
        (1 << 30, "1 GiB", 64 * 1024),
        (50 * MIB, "50 MiB", 64 * 1024),
        (0, "0", 32 * 1024),
    ] {
        c.ok(format_args!("trim to {what}"), cuMemPoolTrimTo(pool, bytes));
        c.same("KiB reserved then", reserved_kib(c, pool), want);
    }
    c.same("used", used(c, pool), 10 * MIB as u64);
    c.ok(
        "the block in use is intact",
        cuMemsetD8_v2(ptr, 1, 10 * MIB),
    );
    free_async(c, ptr, stream);
}

/// A trim releases nothing that was freed on a stream nobody waited for.
fn trim_waits_for_the_stream(c: &Case) {
    primary(c);
    let (pool, stream) = (default_pool(c), independent(c));
    let threshold = pool_attribute::RELEASE_THRESHOLD;
    c.require("threshold", set_pool_value(pool, threshold, 1 << 40));
    use_once(c, stream);
    c.ok("trim at once", cuMemPoolTrimTo(pool, 0));
    c.same("KiB reserved then", reserved_kib(c, pool), 32 * 1024);
    wait_for(c, stream);
    c.same(
        "KiB reserved after the stream was waited for",
        reserved_kib(c, pool),
        32 * 1024,
    );
    c.ok("trim again", cuMemPoolTrimTo(pool, 0));
    c.same("KiB reserved then", reserved_kib(c, pool), 0);
}

/// On its own stream a freed block is reused at once.
fn reuse_on_the_same_stream(c: &Case) {
    primary(c);
    let stream = independent(c);
    let old = alloc_async(c, MIB, stream);
    free_async(c, old, stream);
    let new = alloc_async(c, MIB, stream);
    c.yes("the address is the same", old == new);
    c.ok("it can be used", cuMemsetD8Async(new, 1, MIB, stream));
    c.ok("it can be freed", cuMemFreeAsync(new, stream));
    wait_for(c, stream);
}

/// While the stream is held up before the free, its own later work may reuse the block, another
/// stream may not.
fn no_reuse_while_blocked(c: &Case) {
    primary(c);
    let (pool, stream, other) = (default_pool(c), independent(c), independent(c));
    let (gate, result) = Gate::close(stream);
    c.require("cuLaunchHostFunc", result);
    let old = alloc_async(c, MIB, stream);
    free_async(c, old, stream);
    c.same("used", used(c, pool), 0);
    let elsewhere = alloc_async(c, MIB, other);
    c.yes("another stream gets another address", elsewhere != old);
    free_async(c, elsewhere, other);
    let again = alloc_async(c, MIB, stream);
    c.yes("the stream gets the same address", again == old);
    c.ok("it can be freed", cuMemFreeAsync(again, stream));
    gate.open();
    wait_for(c, stream);
    wait_for(c, other);
    c.same("KiB reserved in the end", reserved_kib(c, pool), 0);
}

/// A gibibyte in a thousand blocks comes back to the last byte.
fn one_gibibyte_comes_back(c: &Case) {
    primary(c);
    let (pool, stream) = (default_pool(c), independent(c));
    let before = free_bytes(c);
    let blocks: Vec<_> = (0..1024).map(|_| alloc_async(c, MIB, stream)).collect();
    c.same("KiB reserved", reserved_kib(c, pool), 1 << 20);
    for ptr in blocks {
        free_async(c, ptr, stream);
    }
    wait_for(c, stream);
    c.same("KiB reserved then", reserved_kib(c, pool), 0);
    c.yes("the device has it back", free_bytes(c) == before);
}
