//! Out of memory: a program that keeps more with each step.
//!
//!     cargo run --example oom_leak
//!
//! What to see: the verdict "the context's own data", with the line that grows: `train` keeps the
//! loss of each step, and with it a buffer that is not needed any more. The weights, which are as
//! large, are there from the beginning and are not blamed.

use cuguard::{Context, DeviceBuffer, Error, Result};

/// What a step leaves behind.
struct Step {
    _loss: f32,
    _activations: DeviceBuffer<u8>,
}

fn train(context: &Context, history: &mut Vec<Step>, bytes: usize) -> Result<()> {
    // SAFETY: never read.
    let activations =
        unsafe { DeviceBuffer::uninitialized(context, bytes)? }.with_label("activations");
    history.push(Step {
        _loss: 0.5,
        _activations: activations, // only the loss was wanted
    });
    Ok(())
}

fn main() -> Result<()> {
    let context = Context::new(0)?;
    let bytes = context.memory()?.free as usize / 50;
    // Not cleared, as a simulated GPU would take as much of the host. SAFETY: never read.
    let weights =
        unsafe { DeviceBuffer::<u8>::uninitialized(&context, bytes * 20)? }.with_label("weights");
    let mut history = Vec::new();
    let error = loop {
        if let Err(error) = train(&context, &mut history, bytes) {
            break error;
        }
        if history.len() == 2 {
            // What is there after the first steps should be all there is.
            context.mark_oom_baseline();
        }
    };
    println!("step {} failed", history.len() + 1);
    match error {
        Error::OutOfMemory(why) => print!("{}", why.to_text()),
        other => return Err(other),
    }
    drop((weights, history));
    context.close()
}
