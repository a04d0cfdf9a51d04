//! An error path that would skip the free in C++: here with a panic, and with `?`.
//!
//!     cargo run --example exception_leak
//!
//! What to see: both ways out of the function leave 0 bytes behind, in the driver's own figures.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cuguard::{Context, DeviceBuffer, Error, Result, Stream};

/// Takes three things and fails before it can give them back.
fn simulate(context: &Context, steps: usize, fail: impl Fn(usize) -> Result<()>) -> Result<()> {
    let mut state = DeviceBuffer::<f64>::zeroed(context, 1 << 20)?;
    let stream = Stream::new(context)?;
    let scratch = DeviceBuffer::<f64>::zeroed(&stream, 1 << 18)?;
    for step in 0..steps {
        state.copy_from_slice(&vec![step as f64; state.len()])?;
        fail(step)?;
    }
    // In C++ the cleanup would stand here, and an exception would jump over it.
    drop((state, scratch));
    Ok(())
}

fn main() -> Result<()> {
    let observer = Context::builder().dedicated().build()?;
    let before = observer.memory()?.free;
    let context = Context::new(0)?;

    let result = simulate(&context, 10, |step| match step {
        3 => Err(Error::LengthMismatch {
            operation: "step 3",
            unit: "element",
            argument: "the source",
            actual: 2,
            resource: "the buffer",
            expected: 1,
        }),
        _ => Ok(()),
    });
    println!("with `?`:     {}", result.unwrap_err());
    println!("              {} bytes alive", context.live_bytes());

    let result = catch_unwind(AssertUnwindSafe(|| {
        simulate(&context, 10, |step| match step {
            // Like `panic!`, without its message on the terminal.
            5 => std::panic::resume_unwind(Box::new("step 5 went wrong")),
            _ => Ok(()),
        })
    }));
    let payload = result.unwrap_err();
    println!(
        "with a panic: {}",
        payload.downcast_ref::<&str>().unwrap_or(&"?")
    );
    println!("              {} bytes alive", context.live_bytes());

    context.close()?;
    let left = before.saturating_sub(observer.memory()?.free);
    println!("bytes alive in the driver: {left}");
    assert_eq!(left, 0);
    Ok(())
}
