//! A small program that leaks in four ways, and gets its report.
//!
//!     cargo run --example leak_report
//!     LEAK_REPORT=1 cargo run --example leak_report
//!     LEAK_REPORT=json cargo run --example leak_report
//!     LEAK_REPORT=1,exitcode=23 cargo run --example leak_report
//!
//! What to see: without LEAK_REPORT the program does its work, and one line warns of what it left.
//! With it, the report names each leak with its size, its label and the functions below that made
//! it. Either way the leaks are freed when the context goes: the last line says what the driver has.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

use cuguard::{Context, DeviceBuffer, PinnedBuffer, Result, Stream};

/// A cache that remembers everything and forgets to forget.
fn remember_forever(context: &Context) -> Result<()> {
    for _ in 0..3 {
        let activations = DeviceBuffer::<f32>::zeroed(context, 1 << 20)?.named("activations");
        mem::forget(activations);
    }
    Ok(())
}

struct Layer {
    _weights: DeviceBuffer<f32>,
    next: RefCell<Option<Rc<Layer>>>,
}

/// Two layers that own each other: neither is ever dropped.
fn layers_in_a_circle(context: &Context) -> Result<()> {
    let layer = |size| -> Result<Rc<Layer>> {
        Ok(Rc::new(Layer {
            _weights: DeviceBuffer::zeroed(context, size)?.named("weights"),
            next: RefCell::new(None),
        }))
    };
    let (first, second) = (layer(1 << 18)?, layer(1 << 19)?);
    *first.next.borrow_mut() = Some(second.clone());
    *second.next.borrow_mut() = Some(first.clone());
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

fn run() -> Result<()> {
    // Looks at the device from outside.
    let observer = Context::builder().own().build()?;
    let before = observer.memory()?.free;

    let context = Context::new(0)?;
    let numbers = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    println!("on {}: {:?}", context.device_name(), numbers.to_vec()?);
    remember_forever(&context)?;
    layers_in_a_circle(&context)?;
    staging_area(&context)?[0] = 1;
    lost_on_a_stream(&context)?;
    drop(numbers);
    println!(
        "alive: {} things, {} bytes",
        context.live_count(),
        context.live_bytes()
    );
    context.close()?;

    let lost = before - observer.memory()?.free;
    println!("bytes that the driver still has of it: {lost}");
    Ok(())
}

/// Without LEAK_REPORT, cuguard warns through the `log` crate. Real programs have a logger; this is
/// the smallest one.
struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        eprintln!("{}: {}", record.level(), record.args());
    }
    fn flush(&self) {}
}

fn main() {
    let _ = log::set_logger(&Stderr).map(|()| log::set_max_level(log::LevelFilter::Warn));
    if let Err(error) = run() {
        eprintln!("leak_report: {error}");
        std::process::exit(1);
    }
}
