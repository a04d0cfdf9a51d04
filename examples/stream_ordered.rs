//! Many streams that allocate, use and free, without waiting for each other.
//!
//!     cargo run --example stream_ordered
//!
//! What to see: eight threads with a stream each allocate and free stream-ordered memory; the
//! pool reuses it, so what it holds at the peak is far less than what went through it. In the end
//! the driver has all of it back.

use cuguard::{Context, DeviceBuffer, ResourceKind, Result, Stream};

const THREADS: usize = 8;
const ROUNDS: usize = 50;

fn work(context: &Context, seed: u32) -> Result<u64> {
    let stream = Stream::new(context)?;
    let mut sum = 0;
    for round in 0..ROUNDS {
        let values: Vec<u32> = (0..10_000).map(|i| i ^ seed ^ round as u32).collect();
        let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, values.len())?;
        buffer.copy_from_slice(&values)?;
        let back = buffer.to_vec()?;
        assert_eq!(back, values);
        sum += back.iter().map(|value| u64::from(*value)).sum::<u64>();
        // Dropped here: freed on the stream, without waiting.
    }
    stream.synchronize()?;
    Ok(sum)
}

fn main() -> Result<()> {
    let observer = Context::builder().dedicated().build()?;
    let before = observer.memory()?.free;
    let context = Context::new(0)?;
    let sums: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let context = &context;
                scope.spawn(move || work(context, thread as u32 * 77))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"))
            .collect::<Result<_>>()
    })?;
    let totals = context.totals(ResourceKind::StreamOrdered);
    println!("{THREADS} threads, {ROUNDS} buffers each: sums {sums:?}");
    println!("went through: {} buffers of 40,000 bytes", totals.allocated);
    println!("at the peak:  {} bytes", totals.peak_bytes);
    println!("alive now:    {} bytes", totals.bytes);
    context.close()?;
    let left = before.saturating_sub(observer.memory()?.free);
    println!("bytes alive in the driver: {left}");
    Ok(())
}
