//! Out of memory: a pool has it and does not use it.
//!
//!     cargo run --example oom_hoarded_pool
//!
//! What to see: the verdict "memory pools have ... that they do not use". Stream-ordered memory comes
//! from a pool, which takes it from the device in large pieces; every other block is freed, but as
//! long as one block of a piece is in use, the pool keeps the whole piece.

use cuguard::{Context, DeviceBuffer, Error, Result, Stream};

const BLOCK: usize = 3 << 20;

fn main() -> Result<()> {
    let context = Context::new(0)?;
    let stream = Stream::new(&context)?;
    let rest = context.memory()?.free as usize - (1 << 30);
    // SAFETY: never read.
    let data = unsafe { DeviceBuffer::<u8>::uninitialized(&context, rest)? }.with_label("data");
    let mut blocks: Vec<_> = (0..300)
        .map_while(|_| DeviceBuffer::<u8>::zeroed(&stream, BLOCK).ok())
        .enumerate()
        .collect();
    println!("{} blocks of 3 MiB", blocks.len());
    blocks.retain(|(index, _)| index % 2 == 0);
    stream.synchronize()?;
    println!(
        "{} of them are left, and {} bytes are free",
        blocks.len(),
        context.memory()?.free
    );
    match DeviceBuffer::<u8>::zeroed(&context, 400 << 20) {
        Err(Error::OutOfMemory(why)) => print!("{}", why.to_text()),
        other => panic!("memory should have run out: {other:?}"),
    }
    drop((data, blocks, stream));
    context.close()
}
