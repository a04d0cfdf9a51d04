//! A context that is never closed, and a reset that is not enough.
//!
//!     cargo run --example context_leak
//!     LEAK_REPORT=1 cargo run --example context_leak
//!
//! What to see: a forgotten context keeps its memory and its own cost. A reset of the device takes
//! the buffers away, but not the stream-ordered memory, which belongs to the device; and the
//! forgotten context goes on counting as a holder, so the next one does not go either. In the end 0
//! bytes are alive in the driver. With LEAK_REPORT=1 the context that was never closed is named when
//! the process ends.

use std::mem;

use cuguard::driver::api;
use cuguard::{Context, DeviceBuffer, Result, Stream};

fn main() -> Result<()> {
    let observer = Context::builder().dedicated().build()?;
    let before = observer.memory()?.free;
    let taken = || -> Result<String> {
        let bytes = before.saturating_sub(observer.memory()?.free);
        Ok(format!("{:6.1} MiB taken", bytes as f64 / (1 << 20) as f64))
    };

    // A leaked context, with a buffer and stream-ordered memory in it.
    let forgotten = Context::new(0)?;
    let buffer = DeviceBuffer::<u8>::zeroed(&forgotten, 64 << 20)?;
    let stream = Stream::new(&forgotten)?;
    let pooled = DeviceBuffer::<u8>::zeroed(&stream, 64 << 20)?;
    stream.synchronize()?;
    println!("{}  a context with two buffers of 64 MiB", taken()?);
    let address = pooled.into_raw();
    mem::forget((forgotten, buffer, stream));
    println!("{}  forgotten", taken()?);

    // The usual reaction. SAFETY: nothing uses the primary context any more.
    let code = unsafe { api::cuDevicePrimaryCtxReset_v2(0) };
    println!("{}  after a reset of the device ({code})", taken()?);

    // The stream-ordered memory is still there, and can be freed in any context of the device.
    let bound = observer.make_current()?;
    // SAFETY: `into_raw` released the block above; nothing else frees it.
    let code = unsafe { api::cuMemFree_v2(address) };
    drop(bound);
    println!(
        "{}  after its stream-ordered memory was freed ({code})",
        taken()?
    );

    // And this is all it takes.
    let context = Context::new(0)?;
    let _buffer = DeviceBuffer::<u8>::zeroed(&context, 64 << 20)?;
    println!("{}  another context with a buffer of 64 MiB", taken()?);
    context.close()?;
    println!(
        "{}  closed; but the forgotten one still counts as a holder",
        taken()?
    );

    // SAFETY: releases what the leaked context retained, which nothing uses any more.
    let code = unsafe { api::cuDevicePrimaryCtxRelease_v2(0) };
    println!("{}  after a release in its name ({code})", taken()?);
    let left = before.saturating_sub(observer.memory()?.free);
    println!("bytes alive in the driver: {left}");
    Ok(())
}
