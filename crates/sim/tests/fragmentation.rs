//! Memory fragments as measured on a real GPU, scaled to the simulated size: fill the device with
//! equal blocks, free every other one, allocate one large block.

use crate::common::*;
use cuguard_sim::{Config, ConfigError, configure};
use cuguard_sys::*;

/// A small device, which is filled quickly.
fn small_card() {
    match configure(Config::new().memory(1026 << 20).context_cost(2 << 20)) {
        Ok(()) | Err(ConfigError::Running) => {}
        Err(error) => panic!("{error}"),
    }
    context();
}

/// How a program allocates and frees its blocks.
trait Allocator {
    fn take(&mut self, bytes: usize) -> Option<CUdeviceptr>;
    fn give(&mut self, ptr: CUdeviceptr);
    /// Synchronizes, so that freed memory is visible.
    fn settle(&mut self) {
        ok(cu::cuCtxSynchronize());
    }
}

struct Plain;

impl Allocator for Plain {
    fn take(&mut self, bytes: usize) -> Option<CUdeviceptr> {
        let mut ptr = 0;
        cu::cuMemAlloc_v2(&mut ptr, bytes)
            .is_success()
            .then_some(ptr)
    }
    fn give(&mut self, ptr: CUdeviceptr) {
        ok(cu::cuMemFree_v2(ptr));
    }
}

struct Pooled(CUstream);

impl Allocator for Pooled {
    fn take(&mut self, bytes: usize) -> Option<CUdeviceptr> {
        let mut ptr = 0;
        cu::cuMemAllocAsync(&mut ptr, bytes, self.0)
            .is_success()
            .then_some(ptr)
    }
    fn give(&mut self, ptr: CUdeviceptr) {
        ok(cu::cuMemFreeAsync(ptr, self.0));
    }
}

struct Row {
    filled: f64,
    freed: usize,
    free: usize,
    largest: usize,
}

/// One row of the table. `filled` is the fraction of the memory that was free at first.
fn row(allocator: &mut impl Allocator, block: usize) -> Row {
    let at_first = free_bytes();
    let mut blocks: Vec<_> = std::iter::from_fn(|| allocator.take(block)).collect();
    let filled = (blocks.len() * block) as f64 / at_first as f64;
    let mut kept = Vec::new();
    let mut freed = 0;
    for (index, ptr) in blocks.drain(..).enumerate() {
        if index % 2 == 1 {
            allocator.give(ptr);
            freed += block;
        } else {
            kept.push(ptr);
        }
    }
    allocator.settle();
    let free = free_bytes();
    // The largest block, by bisection to a quarter of a mebibyte.
    let (mut fits, mut too_large) = (0, at_first);
    while too_large - fits > MIB / 4 {
        let middle = fits + (too_large - fits) / 2;
        match allocator.take(middle) {
            Some(ptr) => {
                allocator.give(ptr);
                allocator.settle();
                fits = middle;
            }
            None => too_large = middle,
        }
    }
    for ptr in kept {
        allocator.give(ptr);
    }
    allocator.settle();
    assert_eq!(free_bytes(), at_first, "everything came back");
    Row {
        filled,
        freed,
        free,
        largest: fits,
    }
}

#[test]
fn large_blocks_leave_memory_that_can_be_had_in_one_piece() {
    let _turn = turn();
    small_card();
    for row in [
        row(&mut Plain, 64 * MIB),
        row(&mut Pooled(stream()), 64 * MIB),
    ] {
        assert!(row.filled > 0.98);
        assert!(row.largest * 100 >= row.freed * 99, "100 %");
    }
    release();
}

#[test]
fn three_mebibytes_by_cu_mem_alloc_take_two_pages_each() {
    let _turn = turn();
    small_card();
    let row = row(&mut Plain, 3 * MIB);
    assert!((0.74..0.76).contains(&row.filled), "{}", row.filled);
    // The pages are released, which are a third larger than the blocks.
    assert!((1.3..1.4).contains(&(row.free as f64 / row.freed as f64)));
    assert!(row.largest >= row.freed * 13 / 10);
    release();
}

#[test]
fn one_mebibyte_by_cu_mem_alloc_frees_half_the_card_and_gives_nothing() {
    let _turn = turn();
    small_card();
    let row = row(&mut Plain, MIB);
    assert!(row.filled > 0.99);
    assert!(row.free <= 3 * MIB, "no page came back: {}", row.free);
    // Half the device was freed, and not even 1 % of that can be allocated as one block.
    assert!(
        row.largest * 100 <= row.freed,
        "{} of {}",
        row.largest,
        row.freed
    );
    release();
}

#[test]
fn three_mebibytes_from_the_default_pool_free_half_the_card_and_give_nothing() {
    let _turn = turn();
    small_card();
    let row = row(&mut Pooled(stream()), 3 * MIB);
    assert!(row.filled > 0.99);
    assert!(row.free <= 5 * MIB, "no chunk came back: {}", row.free);
    assert!(
        row.largest <= 3 * MIB,
        "a hole is as large as a block: {}",
        row.largest
    );
    release();
}

/// A caching allocator like PyTorch's: blocks between 1 and 10 MiB come from segments of 20 MiB,
/// smaller ones from segments of 2 MiB, and a segment is freed only when all of it is free.
#[derive(Default)]
struct Caching {
    /// Segment → (size, end of the used part, live blocks).
    segments: Vec<(CUdeviceptr, usize, usize, usize)>,
    holes: Vec<(CUdeviceptr, usize)>,
    sizes: std::collections::HashMap<CUdeviceptr, usize>,
}

impl Allocator for Caching {
    fn take(&mut self, bytes: usize) -> Option<CUdeviceptr> {
        let segment = match bytes {
            small if small <= MIB => 2 * MIB,
            medium if medium < 10 * MIB => 20 * MIB,
            large => large.next_multiple_of(2 * MIB),
        };
        let hole = self.holes.iter().position(|(_, size)| *size == bytes);
        let ptr = if let Some(hole) = hole {
            self.holes.swap_remove(hole).0
        } else {
            let fits = |s: &&mut (u64, usize, usize, usize)| s.1 == segment && s.2 + bytes <= s.1;
            if let Some(open) = self.segments.iter_mut().find(fits) {
                open.2 += bytes;
                open.0 + (open.2 - bytes) as u64
            } else {
                let base = Plain.take(segment)?;
                self.segments.push((base, segment, bytes, 0));
                base
            }
        };
        let owner = |s: &&mut (u64, usize, usize, usize)| (s.0..s.0 + s.1 as u64).contains(&ptr);
        self.segments.iter_mut().find(owner)?.3 += 1;
        self.sizes.insert(ptr, bytes);
        Some(ptr)
    }

    fn give(&mut self, ptr: CUdeviceptr) {
        let bytes = self.sizes.remove(&ptr).unwrap();
        self.holes.push((ptr, bytes));
        let owner = |s: &&mut (u64, usize, usize, usize)| (s.0..s.0 + s.1 as u64).contains(&ptr);
        self.segments.iter_mut().find(owner).unwrap().3 -= 1;
    }

    fn settle(&mut self) {
        let holes = &mut self.holes;
        self.segments.retain(|(base, size, _, alive)| {
            if *alive == 0 {
                Plain.give(*base);
                holes.retain(|(ptr, _)| !(*base..*base + *size as u64).contains(ptr));
            }
            *alive > 0
        });
    }
}

#[test]
fn a_caching_allocator_returns_none_of_what_was_freed() {
    let _turn = turn();
    small_card();
    let mut allocator = Caching::default();
    let at_first = free_bytes();
    let sizes = [9 * MIB, 3 * MIB, MIB / 2];
    let blocks: Vec<_> = (0..).map_while(|i| allocator.take(sizes[i % 3])).collect();
    let in_use = free_bytes();
    let mut freed = 0;
    for ptr in blocks.iter().skip(1).step_by(2) {
        freed += allocator.sizes[ptr];
        allocator.give(*ptr);
    }
    allocator.settle();
    assert!(freed > at_first / 3, "{freed}");
    assert!(
        free_bytes() - in_use < freed / 20,
        "of {freed} freed, {}",
        free_bytes() - in_use
    );
    for ptr in blocks.iter().step_by(2) {
        allocator.give(*ptr);
    }
    allocator.settle();
    assert_eq!(free_bytes(), at_first);
    release();
}
