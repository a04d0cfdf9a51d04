//! A program that leaks in four ways, and its leak report.
//!
//!     cargo run --example leak_report
//!     LEAK_REPORT=1 cargo run --example leak_report
//!
//! Without LEAK_REPORT, the program runs and one line on stderr says how much leaked. With it, the
//! report has the size, the label and the stack trace of each leak. Either way the leaks are freed when
//! the context is closed: the last line is the memory that the driver still has allocated.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

use cuguard::{Context, DeviceBuffer, PinnedBuffer, Result, Stream};

/// A cache that is never emptied.
fn remember_forever(context: &Context) -> Result<()> {
    for _ in 0..3 {
        mem::forget(DeviceBuffer::<f32>::zeroed(context, 1 << 20)?.with_label("activations"));
    }
    Ok(())
}

/// A reference cycle: two layers that own each other are never dropped.
fn layers_in_a_circle(context: &Context) -> Result<()> {
    struct Layer(DeviceBuffer<f32>, RefCell<Option<Rc<Layer>>>);
    let layer = |size| -> Result<Rc<Layer>> {
        let weights = DeviceBuffer::zeroed(context, size)?.with_label("weights");
        Ok(Rc::new(Layer(weights, RefCell::new(None))))
    };
    let (first, second) = (layer(1 << 18)?, layer(1 << 19)?);
    *first.1.borrow_mut() = Some(second.clone());
    *second.1.borrow_mut() = Some(first.clone());
    println!("layers of {} and {} weights", first.0.len(), second.0.len());
    Ok(())
}

/// A staging buffer leaked to get a `'static` slice.
fn staging_area(context: &Context) -> Result<&'static mut [u8]> {
    let buffer = PinnedBuffer::<u8>::zeroed(context, 2 << 20)?.with_label("staging");
    Ok(&mut Box::leak(Box::new(buffer))[..])
}

/// Stream-ordered memory whose owner is forgotten.
fn lost_on_a_stream(context: &Context) -> Result<()> {
    let stream = Stream::new(context)?;
    mem::forget(DeviceBuffer::<u64>::zeroed(&stream, 1 << 16)?);
    Ok(())
}

fn main() -> Result<()> {
    let observer = Context::builder().dedicated().build()?;
    let before = observer.memory()?.free;
    let context = Context::new(0)?;
    let numbers = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    println!("on {}: {:?}", context.device_name(), numbers.to_vec()?);
    remember_forever(&context)?;
    layers_in_a_circle(&context)?;
    staging_area(&context)?[0] = 1;
    lost_on_a_stream(&context)?;
    drop(numbers);
    let (count, bytes) = (context.live_count(), context.live_bytes());
    println!("live: {count} resources, {bytes} bytes");
    context.close()?;
    let left = before.saturating_sub(observer.memory()?.free);
    println!("bytes still allocated after the close: {left}");
    Ok(())
}
