//! Out of memory: more than the device has.
//!
//!     cargo run --example oom_too_large
//!
//! What to see: the verdict "larger than the device", and what helps.

use cuguard::{Context, DeviceBuffer, Error, Result};

fn main() -> Result<()> {
    let context = Context::new(0)?;
    let total = context.memory()?.total as usize;
    match DeviceBuffer::<u8>::zeroed(&context, total + (1 << 30)) {
        Err(Error::OutOfMemory(why)) => print!("{}", why.to_text()),
        other => panic!("memory should have run out: {other:?}"),
    }
    context.close()
}
