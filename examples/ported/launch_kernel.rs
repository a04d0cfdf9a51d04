//! `03-launch-kernel` of cudarc: the sine of some numbers. See docs/ported-programs.md.
//!
//!     cargo run --example launch_kernel

use cuguard::prelude::*;
use cuguard::scope::Len;
use cuguard::{LaunchConfig, Result};

pub(crate) fn main() -> Result<()> {
    let context = Context::new(0)?;
    let stream = Stream::default_stream(&context)?;
    let module = Module::from_ptx(&context, include_str!("kernels.ptx"))?;
    // SAFETY: sin_kernel(to, from, count) writes to[i] = sin(from[i]) for all i < count with any grid, and nothing else.
    let sin = unsafe { module.kernel::<(&mut [f32], &[f32], Len<u32>)>("sin_kernel")? };

    let a_host = [1.0_f32, 2.0, 3.0];
    let a_gpu = DeviceBuffer::from_slice(&context, &a_host)?;
    let mut b_gpu = a_gpu.try_clone()?;
    let config = LaunchConfig::for_elements(sin.function(), a_gpu.len())?;
    stream.scope(|s| sin.launch(s, config, (&mut s.bind_mut(&mut b_gpu)?, &s.bind(&a_gpu)?)))?;

    let (found, expected) = (b_gpu.to_vec()?, a_host.map(f32::sin));
    println!("Found {found:?}");
    println!("Expected {expected:?}");
    assert_eq!(a_gpu.to_vec()?, a_host);
    // The kernel uses the fast sine of the hardware.
    assert!(
        found
            .iter()
            .zip(expected)
            .all(|(found, sine)| (found - sine).abs() < 1e-5)
    );
    Ok(())
}
