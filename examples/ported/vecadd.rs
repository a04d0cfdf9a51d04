//! `vecadd` of Rust-CUDA: the sum of two vectors. See docs/ported-programs.md.
//!
//!     cargo run --example vecadd

#[path = "support.rs"]
mod support;

use cuguard::prelude::*;
use cuguard::scope::Len;
use cuguard::{LaunchConfig, Result};

const COUNT: usize = 100_000;

pub(crate) fn main() -> Result<()> {
    let (lhs, rhs) = (support::random(1, COUNT), support::random(2, COUNT));
    let context = Context::new(0)?;
    let module = Module::from_ptx(&context, include_str!("kernels.ptx"))?;
    // SAFETY: vecadd(a, b, c, count) writes c[i] = a[i] + b[i] for all i < count with any grid, and accesses nothing else.
    let vecadd = unsafe { module.kernel::<(&[f32], &[f32], &mut [f32], Len<u64>)>("vecadd")? };
    let stream = Stream::new(&context)?;
    let lhs_gpu = DeviceBuffer::from_slice(&context, &lhs)?;
    let rhs_gpu = DeviceBuffer::from_slice(&context, &rhs)?;
    let mut out_gpu = DeviceBuffer::zeroed(&context, COUNT)?;
    let config = LaunchConfig::for_elements(vecadd.function(), COUNT)?;
    let (blocks, threads) = (config.grid()[0], config.block()[0]);
    println!("using {blocks} blocks and {threads} threads per block");

    stream.scope(|s| {
        let (lhs, rhs, mut out) = (
            s.bind(&lhs_gpu)?,
            s.bind(&rhs_gpu)?,
            s.bind_mut(&mut out_gpu)?,
        );
        vecadd.launch(s, config, (&lhs, &rhs, &mut out))
    })?;

    let out = out_gpu.to_vec()?;
    println!("{} + {} = {}", lhs[0], rhs[0], out[0]);
    let sums = lhs.iter().zip(&rhs).map(|(a, b)| a + b);
    assert!(sums.eq(out), "the sums of the host");
    Ok(())
}
