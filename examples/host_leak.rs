//! A pinned buffer that is forgotten: host memory that the driver keeps locked.
//!
//!     cargo run --example host_leak
//!     LEAK_REPORT=1 cargo run --example host_leak
//!
//! What to see: the forgotten buffer is named at teardown as pinned memory; the driver lets go of
//! it, and the slice that was made of it stays readable all the same.

use cuguard::{Context, PinnedBuffer, ResourceKind, Result};

fn leaky_frame_buffer(context: &Context) -> Result<&'static [u8]> {
    let frame = PinnedBuffer::from_slice(context, &vec![7u8; 8 << 20])?.with_label("frame");
    Ok(&Box::leak(Box::new(frame))[..])
}

fn main() -> Result<()> {
    let observer = Context::builder().dedicated().build()?;
    let before = observer.memory()?.free;
    let context = Context::new(0)?;
    let frame = leaky_frame_buffer(&context)?;
    let pinned = context.totals(ResourceKind::Pinned);
    println!("pinned: {} buffer, {} bytes", pinned.count, pinned.bytes);
    context.close()?;
    // It is no longer registered with the driver: it is ordinary memory.
    println!("still readable: {:?}...", &frame[..4]);
    let left = before.saturating_sub(observer.memory()?.free);
    println!("bytes alive in the driver: {left}");
    Ok(())
}
