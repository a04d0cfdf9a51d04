//! A small program that leaks in four ways, and gets its report.
//!
//!     cargo run --example leak_report
//!     LEAK_REPORT=1 cargo run --example leak_report
//!
//! What to see: without LEAK_REPORT the program does its work, and one line warns of what it left.
//! With it, the report names each leak with its size, its label and the functions that made it.
//! Either way the leaks are freed when the context goes; the last line is what the driver says.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

use cuguard::{Context, DeviceBuffer, PinnedBuffer, Result, Stream};

/// A cache that remembers everything and forgets to forget.
fn remember_forever(context: &Context) -> Result<()> {
    for _ in 0..3 {
        mem::forget(DeviceBuffer::<f32>::zeroed(context, 1 << 20)?.named("activations"));
    }
    Ok(())
}

/// Two layers that own each other: neither is ever dropped.
fn layers_in_a_circle(context: &Context) -> Result<()> {
    struct Layer(DeviceBuffer<f32>, RefCell<Option<Rc<Layer>>>);
    let layer = |size| -> Result<Rc<Layer>> {
        let weights = DeviceBuffer::zeroed(context, size)?.named("weights");
        Ok(Rc::new(Layer(weights, RefCell::new(None))))
    };
    let (first, second) = (layer(1 << 18)?, layer(1 << 19)?);
    *first.1.borrow_mut() = Some(second.clone());
    *second.1.borrow_mut() = Some(first.clone());
    println!("layers of {} and {} weights", first.0.len(), second.0.len());
    Ok(())
}

/// A staging buffer that is handed out as a plain slice, for ever.
fn staging_area(context: &Context) -> Result<&'static mut [u8]> {
    let buffer = PinnedBuffer::<u8>::zeroed(context, 2 << 20)?.named("staging");
    Ok(&mut Box::leak(Box::new(buffer))[..])
}

/// Memory that a stream was to free, if only its owner had been dropped.
fn lost_on_a_stream(context: &Context) -> Result<()> {
    let stream = Stream::new(context)?;
    mem::forget(DeviceBuffer::<u64>::zeroed_on(&stream, 1 << 16)?);
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
    let (things, bytes) = (context.live_count(), context.live_bytes());
    println!("alive: {things} things, {bytes} bytes");
    context.close()?;
    let left = before.saturating_sub(observer.memory()?.free);
    println!("bytes that the driver still has of it: {left}");
    Ok(())
}
