//! Out of memory with half of it free: small blocks keep whole pages.
//!
//!     cargo run --example oom_fragmented
//!
//! What to see: the verdict "fragmentation", with the line that made the blocks. The driver gives
//! memory out in pages of 2 MiB. Two blocks of 1 MiB share a page; every other one is freed, so
//! every page is half empty, and none goes back to the device.

use cuguard::{Context, DeviceBuffer, Error, Result};

const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 1024;

fn main() -> Result<()> {
    let context = Context::new(0)?;
    // All but a gibibyte is in good use.
    let rest = context.memory()?.free as usize - BLOCKS * BLOCK;
    // SAFETY: never read.
    let data = unsafe { DeviceBuffer::<u8>::uninitialized(&context, rest)? }.with_label("data");
    let mut blocks: Vec<_> = (0..BLOCKS)
        .map_while(|_| DeviceBuffer::<u8>::zeroed(&context, BLOCK).ok())
        .enumerate()
        .collect();
    println!("{} blocks of 1 MiB", blocks.len());
    blocks.retain(|(index, _)| index % 2 == 0);
    println!(
        "{} of them are left, and {} bytes are free",
        blocks.len(),
        context.memory()?.free
    );
    match DeviceBuffer::<u8>::zeroed(&context, 256 << 20) {
        Err(Error::OutOfMemory(why)) => print!("{}", why.to_text()),
        other => panic!("memory should have run out: {other:?}"),
    }
    drop((data, blocks));
    context.close()
}
