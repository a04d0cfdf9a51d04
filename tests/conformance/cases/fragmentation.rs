//! Fill the card with equal blocks, free every other one, ask for one big block.
//!
//! The rows of the measured table: how much of the freed memory the driver calls free, and how
//! much of it can be had in one block. A page goes back only when every block in it is free, so
//! with small blocks: none.

use crate::case::Case;
use crate::driver::*;
use crate::tools::*;

cases! {"fragmentation":
    plain_64_mib.seconds(600),
    plain_3_mib.seconds(600),
    plain_1_mib.seconds(600),
    stream_ordered_64_mib.seconds(600),
    stream_ordered_3_mib.seconds(600),
}

/// Where blocks come from.
#[derive(Clone, Copy)]
enum Allocator {
    Plain,
    StreamOrdered(CUstream),
}

impl Allocator {
    fn allocate(self, bytes: usize) -> Option<CUdeviceptr> {
        let mut ptr = 0;
        let result = match self {
            Allocator::Plain => cuMemAlloc_v2(&mut ptr, bytes),
            Allocator::StreamOrdered(stream) => cuMemAllocAsync(&mut ptr, bytes, stream),
        };
        result.is_success().then_some(ptr)
    }

    fn free(self, c: &Case, ptr: CUdeviceptr) {
        match self {
            Allocator::Plain => free(c, ptr),
            Allocator::StreamOrdered(stream) => free_async(c, ptr, stream),
        }
    }

    fn settle(self, c: &Case) {
        if let Allocator::StreamOrdered(stream) = self {
            wait_for(c, stream);
        }
    }

    /// The largest block that can be had, to the MiB.
    fn largest(self, c: &Case, total: usize) -> usize {
        let (mut fits, mut too_large) = (0, total / MIB + 1);
        while fits + 1 < too_large {
            let middle = fits + (too_large - fits) / 2;
            match self.allocate(middle * MIB) {
                Some(ptr) => {
                    fits = middle;
                    self.free(c, ptr);
                    self.settle(c);
                }
                None => too_large = middle,
            }
        }
        fits * MIB
    }
}

/// How much `part` is of `whole`, in words: the exact number depends on the card.
fn share(part: usize, whole: usize) -> &'static str {
    match part * 100 / whole {
        90.. => "all of it",
        0..=5 => "next to nothing",
        _ => "some of it",
    }
}

/// Fills the card, frees every other block, and checks what can then be had.
fn fill(c: &Case, allocator: Allocator, block: usize, page_share: usize, want: &'static str) {
    let before = free_bytes(c);
    let mut blocks = Vec::new();
    while let Some(ptr) = allocator.allocate(block) {
        blocks.push(ptr);
    }
    allocator.settle(c);
    let taken = before - free_bytes(c);
    c.yes("the card is full", taken * 100 / before >= 97);
    let filled = blocks.len() * block;
    let percent = filled * 100 / taken;
    c.yes(
        format_args!("the blocks are {page_share} % of what they take"),
        percent.abs_diff(page_share) <= 2,
    );
    let left = free_bytes(c);
    let mut freed = 0;
    for &ptr in blocks.iter().skip(1).step_by(2) {
        allocator.free(c, ptr);
        freed += block;
    }
    allocator.settle(c);
    let free = free_bytes(c) - left;
    c.same(
        "of what was freed, cuMemGetInfo calls free",
        share(free, freed),
        want,
    );
    let largest = allocator.largest(c, before);
    c.same(
        "of what was freed, one block can have",
        share(largest, freed),
        want,
    );
    for &ptr in blocks.iter().step_by(2) {
        allocator.free(c, ptr);
    }
    allocator.settle(c);
    // On a large card the driver may keep a page or two for its own books.
    let back = share(free_bytes(c), before);
    c.same(
        "when all is freed, of what was free at first comes back",
        back,
        "all of it",
    );
}

fn plain(c: &Case, block: usize, page_share: usize, want: &'static str) {
    primary(c);
    alloc(c, 16);
    fill(c, Allocator::Plain, block, page_share, want);
}

fn stream_ordered(c: &Case, block: usize, want: &'static str) {
    primary(c);
    alloc(c, 16);
    let stream = independent(c);
    fill(c, Allocator::StreamOrdered(stream), block, 100, want);
}

/// Row `cuMemAlloc`, 64 MiB: all that was freed can be had in one block.
fn plain_64_mib(c: &Case) {
    plain(c, 64 * MIB, 100, "all of it");
}

/// Row `cuMemAlloc`, 3 MiB: each block takes two pages of its own, so all of it comes back.
fn plain_3_mib(c: &Case) {
    plain(c, 3 * MIB, 75, "all of it");
}

/// Row `cuMemAlloc`, 1 MiB: two blocks share a page, so nothing of what was freed can be had.
fn plain_1_mib(c: &Case) {
    plain(c, MIB, 100, "next to nothing");
}

/// Row `cuMemAllocAsync`, 64 MiB: all that was freed can be had in one block.
fn stream_ordered_64_mib(c: &Case) {
    stream_ordered(c, 64 * MIB, "all of it");
}

/// Row `cuMemAllocAsync`, 3 MiB: every chunk has a block in use, so nothing can be had.
fn stream_ordered_3_mib(c: &Case) {
    stream_ordered(c, 3 * MIB, "next to nothing");
}
