//! Out of memory with half of the card free, and how a pool avoids it.
//!
//!     cargo run --example no_fragmentation
//!
//! What to see: the program fills the device with blocks of 1 MiB, frees every other one, and asks for one block of 90 % of what it
//! freed. With `cuMemAlloc` that fails: each page of 2 MiB keeps one block. With a pool it succeeds: half-empty pages are merged, no
//! address changes, and every block still has its contents.

use std::time::Instant;

use cuguard::report::ByteSize;
use cuguard::{Context, DeviceBuffer, Error, Pool, Result};

const BLOCK: usize = 1 << 20;

/// Fills the device but for some pages, frees every other block, and asks for 90 % of what was freed.
fn run(context: &Context) -> Result<()> {
    // Something is left for the driver itself.
    let room = (context.memory()?.free as usize).saturating_sub(64 << 20);
    let mut blocks = Vec::new();
    for number in 0..room / BLOCK {
        let mut block = DeviceBuffer::<u32>::zeroed(context, BLOCK / 4)?;
        block.slice_mut(0..1)?.copy_from_slice(&[number as u32])?;
        blocks.push(Some(block));
    }
    let filled = (blocks.len() * BLOCK) as u64;
    blocks
        .iter_mut()
        .step_by(2)
        .for_each(|block| drop(block.take()));
    let freed = filled / 2;
    let want = freed / 100 * 90;
    println!(
        "  filled {} with blocks of 1 MiB, freed {}, wanted: one block of {}",
        ByteSize(filled),
        ByteSize(freed),
        ByteSize(want)
    );
    let begin = Instant::now();
    // SAFETY: nothing reads it.
    let large = unsafe { DeviceBuffer::<u8>::uninitialized(context, want as usize) };
    let took = begin.elapsed();
    for (number, block) in blocks.iter().enumerate() {
        if let Some(block) = block {
            let seen = block.slice(0..1)?.to_vec()?;
            assert_eq!(seen, [number as u32], "every block has its contents");
        }
    }
    match &large {
        Ok(_) => println!("  allocated, after {took:.2?}; all other blocks are unchanged"),
        Err(Error::OutOfMemory(why)) => println!("  failed: {why}"),
        Err(_) => {}
    }
    large.map(drop)
}

fn main() -> Result<()> {
    println!("cuMemAlloc:");
    let context = Context::new(0)?;
    assert!(matches!(run(&context), Err(Error::OutOfMemory(_))));
    context.close()?;

    println!("a pool for all buffers of the context:");
    let context = Context::builder().pool(Pool::builder()).build()?;
    run(&context)?;
    context.close()
}
