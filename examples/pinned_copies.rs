//! Copies from and to pinned memory that overlap with the host's work.
//!
//!     cargo run --example pinned_copies
//!
//! What to see: two streams copy there and back while the host goes on; the borrow checker keeps
//! the buffers from being touched until each scope has waited. In the end the driver has all of
//! its memory back.

use cuguard::{Context, DeviceBuffer, PinnedBuffer, Result, Stream};

fn main() -> Result<()> {
    const LEN: usize = 1 << 20;
    let observer = Context::builder().dedicated().build()?;
    let before = observer.memory()?.free;
    let context = Context::new(0)?;
    let source = PinnedBuffer::from_slice(&context, &(0..LEN as u32).collect::<Vec<_>>())?;
    let mut halves = Vec::new();
    for _ in 0..2 {
        let stream = Stream::new(&context)?;
        let device = DeviceBuffer::<u32>::zeroed(&context, LEN / 2)?;
        let target = PinnedBuffer::<u32>::zeroed(&context, LEN / 2)?;
        halves.push((stream, device, target));
    }

    std::thread::scope(|scope| {
        for ((stream, device, target), part) in halves.iter_mut().zip(source.chunks(LEN / 2)) {
            scope.spawn(move || {
                stream.scope(|s| {
                    let from = s.bind_host(part);
                    let mut device = s.bind_mut(device)?;
                    let mut to = s.bind_host_mut(target);
                    s.upload(&mut device, &from)?;
                    s.download(&mut to, &device)
                    // `source`, `device` and `target` stay borrowed until the scope has waited.
                })
            });
        }
    });

    let back: Vec<u32> = halves
        .iter()
        .flat_map(|(_, _, target)| target.iter().copied())
        .collect();
    assert_eq!(back, *source);
    println!(
        "{LEN} numbers went to {} and back on two streams",
        context.device_name()
    );
    drop((halves, source));
    println!("alive: {} things", context.live_count());
    context.close()?;
    let left = before.saturating_sub(observer.memory()?.free);
    println!("bytes alive in the driver: {left}");
    Ok(())
}
