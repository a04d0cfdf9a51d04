//! A plain `cust` program: context, buffer, copy back, stream, event. `cuguard` is only the
//! driver loader, so it builds without CUDA and runs with or without a GPU.
//!
//!     cargo run --example plain_cust
//!
//! What to see: which driver is in use, the device's name, and the eight numbers that went to the
//! device and came back. In this repository the simulated GPU steps in where there is no driver
//! (and says so); with `CUGUARD_DRIVER=real` the program then ends with the reason and exit code 1.

use std::error::Error;
use std::process::ExitCode;

use cuguard::driver;
use cust::context::Context;
use cust::device::Device;
use cust::event::{Event, EventFlags};
use cust::memory::{AsyncCopyDestination, CopyDestination, DeviceBuffer, LockedBuffer};
use cust::stream::{Stream, StreamFlags};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plain_cust: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    // Not needed (`cust::init` loads the driver too), but its error says more when there is none.
    let driver = driver::load()?;
    println!("driver: {driver}");

    cust::init(cust::CudaFlags::empty())?;
    let device = Device::get_device(0)?;
    println!("device: {}", device.name()?);
    let _context = Context::new(device)?;

    // There and back with plain copies.
    let numbers: Vec<u32> = (1..=8).collect();
    let buffer = DeviceBuffer::from_slice(&numbers)?;
    let mut back = vec![0; numbers.len()];
    buffer.copy_to(&mut back)?;
    println!("copied back: {back:?}");
    check(&numbers, &back)?;

    // There and back on a stream, with events around it. Host memory must stay put while a copy
    // is in flight, hence the locked buffers.
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let start = Event::new(EventFlags::DEFAULT)?;
    let end = Event::new(EventFlags::DEFAULT)?;
    let squares: Vec<u32> = numbers.iter().map(|number| number * number).collect();
    let source = LockedBuffer::from_slice(&squares)?;
    let mut target = LockedBuffer::new(&0_u32, squares.len())?;
    let mut buffer = buffer;
    start.record(&stream)?;
    // SAFETY: all three buffers outlive the copies: the stream is waited for below in any case.
    let copies = unsafe {
        let there = buffer.async_copy_from(&source, &stream);
        there.and_then(|()| buffer.async_copy_to(&mut target, &stream))
    };
    let recorded = copies.and_then(|()| end.record(&stream));
    stream.synchronize()?;
    recorded?;
    println!("by stream:   {:?}", target.as_slice());
    let time = end.elapsed_time_f32(&start)?;
    println!("between the events: {time:.3} ms");
    check(&squares, target.as_slice())
}

fn check(sent: &[u32], received: &[u32]) -> Result<(), Box<dyn Error>> {
    if sent == received {
        Ok(())
    } else {
        Err(format!("sent {sent:?}, but received {received:?}").into())
    }
}
