//! What physical memory things take, and when it comes back.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"accounting":
    contexts_cost_memory,
    destroy_returns_everything,
    release_returns_everything,
    all_free_memory_in_one_block,
    nothing_is_lost,
    small_blocks_share_pages,
    blocks_of_many_sizes,
    large_blocks_round_up,
    pages_return_when_empty,
    small_pages_belong_to_their_context,
    what_costs_nothing,
    managed_memory_costs_when_used,
}

/// Row: the first primary context costs device memory; a second context costs the same again.
fn contexts_cost_memory(c: &Case) {
    start(c);
    let first = create(c);
    let mut second = CUcontext::NULL;
    let created = taken_kib(c, |c| {
        second = create(c);
        pop(c);
    });
    let primary = taken_kib(c, |c| {
        retain(c, 0);
    });
    c.yes("a created context costs at least 2 MiB", created >= 2048);
    c.yes("the primary context costs at least 2 MiB", primary >= 2048);
    c.yes(
        "both cost the same, give or take 8 MiB",
        (created - primary).abs() <= 8192,
    );
    let back = -taken_kib(c, |c| {
        c.ok("destroy the created one", cuCtxDestroy_v2(second))
    });
    c.yes("what it cost comes back", back == created);
    let back = -taken_kib(c, |c| {
        c.ok("release the primary one", cuDevicePrimaryCtxRelease_v2(0));
    });
    c.yes("what it cost comes back", back == primary);
    c.ok("destroy the first one", cuCtxDestroy_v2(first));
}

/// Row: `cuCtxDestroy` with 1 GiB allocated succeeds and returns the gibibyte and its own cost.
fn destroy_returns_everything(c: &Case) {
    primary(c);
    let before = free_bytes(c);
    let context = create(c);
    let cost = before - free_bytes(c);
    let taken = taken_kib(c, |c| {
        alloc(c, 512 * MIB);
        for _ in 0..512 {
            alloc(c, MIB);
        }
    });
    c.same("KiB taken by 1 GiB", taken, 1 << 20);
    c.yes("the context cost memory of its own", cost > 0);
    c.ok("destroy", cuCtxDestroy_v2(context));
    c.yes("all of it came back", free_bytes(c) == before);
}

/// So does the last release of the primary context, and its reset.
fn release_returns_everything(c: &Case) {
    start(c);
    create(c);
    let before = free_bytes(c);
    for (what, reset) in [("release", false), ("reset", true)] {
        let context = retain(c, 0);
        c.require("push", cuCtxPushCurrent_v2(context));
        alloc(c, 100 * MIB);
        alloc(c, 1000);
        pop(c);
        c.yes(
            format_args!("memory is taken before {what}"),
            free_bytes(c) < before,
        );
        if reset {
            c.ok("reset", cuDevicePrimaryCtxReset_v2(0));
        } else {
            c.ok("release", cuDevicePrimaryCtxRelease_v2(0));
        }
        c.yes(
            format_args!("{what} returns all of it"),
            free_bytes(c) == before,
        );
    }
}

/// What `cuMemGetInfo` calls free can be had in one block, but for a small rest that a real driver
/// may need for itself.
fn all_free_memory_in_one_block(c: &Case) {
    primary(c);
    alloc(c, 16);
    let free = free_bytes(c);
    let most = free - 64 * MIB;
    let (mut ptr, mut other) = (0, 0);
    c.ok("allocate all but 64 MiB", cuMemAlloc_v2(&mut ptr, most));
    let left = free_bytes(c);
    c.yes("next to nothing is left", left <= 64 * MIB);
    let result = cuMemAlloc_v2(&mut other, most);
    c.expect("allocate as much again", result, Code::OUT_OF_MEMORY);
    c.ok("free it", cuMemFree_v2(ptr));
    c.yes("all of it came back", free_bytes(c) == free);
}

/// Memory allocated and freed over and over is all there in the end.
fn nothing_is_lost(c: &Case) {
    primary(c);
    alloc(c, 16);
    let before = free_bytes(c);
    for round in 0..100 {
        let sizes = [1, 700, 70_000, MIB, 3 * MIB, (round + 1) * 100_000];
        let blocks: Vec<_> = sizes.into_iter().map(|bytes| alloc(c, bytes)).collect();
        // Neither in order nor in reverse.
        for index in [3, 0, 5, 1, 4, 2] {
            free(c, blocks[index]);
        }
    }
    c.same("KiB lost", (before as i64 - free_bytes(c) as i64) / 1024, 0);
}

/// The first byte of a context takes a page of 2 MiB; blocks that fit take nothing more.
fn small_blocks_share_pages(c: &Case) {
    primary(c);
    for (what, bytes, want) in [
        ("the first byte", 1, 2048),
        ("a second byte", 1, 0),
        ("1 MiB, in the same page", MIB, 0),
        ("1 MiB more, in a new one", MIB, 2048),
        ("1 MiB more, in that one", MIB, 0),
    ] {
        let taken = taken_kib(c, |c| {
            alloc(c, bytes);
        });
        c.same(format_args!("KiB taken by {what}"), taken, want);
    }
}

/// 256 blocks of one size after 16 bytes that begin a page: each is rounded up to 512 bytes, and
/// lies within one page if it is smaller than a page.
fn blocks_of_many_sizes(c: &Case) {
    primary(c);
    alloc(c, 16);
    alloc(c, PAGE);
    for (bytes, want) in [
        (1, 0),
        (256, 0),
        (512, 0),
        (513, 0),
        (1024, 0),
        (4096, 0),
        (65_536, 16_384),
        (100_000, 24_576),
        (262_144, 65_536),
        (262_145, 73_728),
        (524_288, 131_072),
        (700_000, 260_096),
        (1_048_576, 262_144),
        (1_048_577, 522_240),
        (1_572_864, 522_240),
        (2_097_151, 524_288),
    ] {
        take_and_return(c, bytes, want);
    }
}

/// Blocks of a page and more take whole pages of their own.
fn large_blocks_round_up(c: &Case) {
    primary(c);
    alloc(c, 16);
    alloc(c, PAGE);
    for (bytes, want) in [
        (2_097_152, 524_288),
        (2_097_153, 1_048_576),
        (3_145_728, 1_048_576),
        (5_242_880, 1_572_864),
        (10_485_760, 2_621_440),
    ] {
        take_and_return(c, bytes, want);
    }
}

/// Expects 256 blocks of `bytes` to take `want` KiB, and to return them.
fn take_and_return(c: &Case, bytes: usize, want: i64) {
    let before = free_bytes(c);
    let mut blocks = Vec::new();
    let taken = taken_kib(c, |c| blocks.extend((0..256).map(|_| alloc(c, bytes))));
    c.same(
        format_args!("KiB taken by 256 blocks of {bytes} bytes"),
        taken,
        want,
    );
    for ptr in blocks {
        free(c, ptr);
    }
    let back = free_bytes(c) == before;
    c.yes(format_args!("256 blocks of {bytes} bytes come back"), back);
}

/// A page goes back to the device when the last block in it is freed, and not before.
fn pages_return_when_empty(c: &Case) {
    primary(c);
    alloc(c, 16);
    alloc(c, MIB);
    let (mut one, mut two) = (0, 0);
    let taken = taken_kib(c, |c| {
        one = alloc(c, MIB);
        two = alloc(c, MIB);
    });
    c.same("KiB taken by two blocks that share a page", taken, 2048);
    let back = -taken_kib(c, |c| free(c, one));
    c.same("KiB back when the first is freed", back, 0);
    let back = -taken_kib(c, |c| free(c, two));
    c.same("KiB back when the second is freed", back, 2048);
    let mut large = 0;
    let taken = taken_kib(c, |c| large = alloc(c, 3 * MIB));
    c.same("KiB taken by 3 MiB", taken, 4096);
    let back = -taken_kib(c, |c| free(c, large));
    c.same("KiB back when it is freed", back, 4096);
}

/// A context does not use the room in another one's pages.
fn small_pages_belong_to_their_context(c: &Case) {
    primary(c);
    alloc(c, 16);
    create(c);
    let taken = taken_kib(c, |c| {
        alloc(c, 16);
    });
    c.same(
        "KiB taken by the first byte in another context",
        taken,
        2048,
    );
    pop(c);
    let taken = taken_kib(c, |c| {
        alloc(c, 16);
    });
    c.same("KiB taken by a second one in the first context", taken, 0);
}

/// Events, pinned and registered memory, and managed memory that no kernel used take no device
/// memory.
fn what_costs_nothing(c: &Case) {
    primary(c);
    alloc(c, 16);
    let taken = taken_kib(c, |c| {
        for _ in 0..1000 {
            event(c, 0);
        }
    });
    c.same("KiB taken by 1000 events", taken, 0);
    let taken = taken_kib(c, |c| {
        pinned(c, 64 * MIB);
    });
    c.same("KiB taken by 64 MiB of pinned memory", taken, 0);
    let taken = taken_kib(c, |c| {
        managed(c, 64 * MIB);
    });
    c.same("KiB taken by 64 MiB of managed memory", taken, 0);
    let p = pages(4 * MIB);
    let taken = taken_kib(c, |c| {
        c.require("register", cuMemHostRegister_v2(p.cast(), 4 * MIB, 0));
    });
    c.same("KiB taken by 4 MiB of registered memory", taken, 0);
}

/// Managed memory takes device memory once the device writes to it, and returns it.
fn managed_memory_costs_when_used(c: &Case) {
    primary(c);
    alloc(c, 16);
    let ptr = managed(c, 64 * MIB);
    let taken = taken_kib(c, |c| {
        c.ok("fill", cuMemsetD8_v2(ptr, 1, 64 * MIB));
        synchronize(c);
    });
    c.yes("it takes at least its size", taken >= 64 * 1024);
    // How much a real driver takes and keeps for its own books is its affair.
    let back = -taken_kib(c, |c| c.ok("free", cuMemFree_v2(ptr)));
    c.yes("at least its size comes back", back >= 64 * 1024);
}
