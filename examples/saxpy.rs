//! A kernel: y = a x + y.
//!
//!     cargo run --example saxpy
//!
//! What to see: upload, kernel and download over the same buffers in one scope, and the largest
//! error against the same sum on the host: 0. In the end the driver has all of its memory back.

use cuguard::{Context, DeviceBuffer, Module, Result, Stream};

fn saxpy(context: &Context, a: f32, x: &[f32], y: &[f32]) -> Result<Vec<f32>> {
    let module = Module::from_ptx(context, include_str!("../kernels/saxpy.ptx"))?;
    let kernel = module.function("saxpy")?;
    let stream = Stream::new(context)?;
    let mut device_x = DeviceBuffer::<f32>::zeroed(context, x.len())?;
    let mut device_y = DeviceBuffer::<f32>::zeroed(context, y.len())?;
    let mut sum = vec![0.0; y.len()];
    stream.scope(|s| {
        let (host_x, host_y, mut host_sum) =
            (s.bind_host(x), s.bind_host(y), s.bind_host_mut(&mut sum));
        let (mut x, mut y) = (s.bind_mut(&mut device_x)?, s.bind_mut(&mut device_y)?);
        s.upload(&mut x, &host_x)?;
        s.upload(&mut y, &host_y)?;
        let count = x.len() as u64;
        // SAFETY: these are the kernel's parameters, and it stays within `count` values of each.
        unsafe { s.launch(&kernel, (256, 256), &[&a, &x, &y, &count])? };
        s.download(&mut host_sum, &y)
    })?;
    Ok(sum)
}

fn main() -> Result<()> {
    let observer = Context::builder().dedicated().build()?;
    let before = observer.memory()?.free;
    let context = Context::new(0)?;
    let x: Vec<f32> = (0..1 << 20).map(|i| i as f32).collect();
    let y = vec![1.0; x.len()];
    let sum = saxpy(&context, 2.0, &x, &y)?;
    let errors = x
        .iter()
        .zip(&sum)
        .map(|(x, sum)| (2.0 * x + 1.0 - sum).abs());
    let largest = errors.fold(0.0, f32::max);
    println!("on {}: largest error {largest}", context.device_name());
    assert_eq!(largest, 0.0);
    context.close()?;
    let left = before.saturating_sub(observer.memory()?.free);
    println!("bytes alive in the driver: {left}");
    Ok(())
}
