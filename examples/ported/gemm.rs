//! `gemm` of Rust-CUDA: matrix products by a naive and by a tiled kernel, timed and checked. See docs/ported-programs.md;
//! the part that calls cuBLAS is the example `cublas`.
//!
//!     cargo run --release --example gemm

#[path = "support.rs"]
mod support;

use std::time::Duration;

use cuguard::driver::{DriverKind, load};
use cuguard::prelude::*;
use cuguard::scope::UncheckedKernel;
use cuguard::{LaunchConfig, Result};

const SIZES: [usize; 8] = [32, 64, 128, 256, 512, 1024, 2048, 4096];
const WARM_UPS: u32 = 2;
const RUNS: u32 = 10;
const TILE: u32 = 16;
const TOLERANCE: f64 = 0.01;

/// C = alpha A B + beta C, with the numbers of rows of A, of columns of B and of columns of A.
type Gemm<'m> = UncheckedKernel<'m, (&'m [f32], &'m [f32], &'m mut [f32], u32, u32, u32, f32, f32)>;

/// The product of two square matrices of `n` rows, and the time of one multiplication.
fn multiply(
    (context, stream): (&Context, &Stream),
    gemm: &Gemm<'_>,
    n: usize,
    a: &[f32],
    b: &[f32],
) -> Result<(Vec<f32>, Duration)> {
    assert!(a.len() == n * n && b.len() == n * n);
    let (a_gpu, b_gpu) = (
        DeviceBuffer::from_slice(context, a)?,
        DeviceBuffer::from_slice(context, b)?,
    );
    let mut c_gpu = DeviceBuffer::zeroed(context, n * n)?;
    let (begin, end) = (Event::new(context)?, Event::new(context)?);
    let (size, tiles) = (n as u32, (n as u32).div_ceil(TILE));
    let config = LaunchConfig::new((tiles, tiles), (TILE, TILE));
    stream.scope(|s| {
        let (a, b, mut c) = (s.bind(&a_gpu)?, s.bind(&b_gpu)?, s.bind_mut(&mut c_gpu)?);
        for run in 0..WARM_UPS + RUNS {
            if run == WARM_UPS {
                s.record(&begin)?;
            }
            // SAFETY: each matrix has `size` rows of `size` values; the grid covers the third, which the kernel writes.
            unsafe { gemm.launch(s, config, (&a, &b, &mut c, size, size, size, 1.0, 0.0))? };
        }
        s.record(&end)
    })?;
    Ok((c_gpu.to_vec()?, end.elapsed_since(&begin)? / RUNS))
}

/// Compares with the product that the host computes.
fn check(n: usize, a: &[f32], b: &[f32], c: &[f32]) {
    for row in 0..n {
        let mut expected = vec![0.0_f64; n];
        for (x, b) in a[row * n..][..n].iter().zip(b.chunks(n)) {
            for (sum, y) in expected.iter_mut().zip(b) {
                *sum += f64::from(*x) * f64::from(*y);
            }
        }
        for (found, expected) in c[row * n..][..n].iter().zip(expected) {
            let difference = (f64::from(*found) - expected).abs();
            let largest = f64::from(*found).abs().max(expected.abs());
            assert!(
                difference <= TOLERANCE.max(TOLERANCE * largest),
                "{found}, not {expected}"
            );
        }
    }
}

pub(crate) fn main() -> Result<()> {
    let context = Context::new(0)?;
    let module = Module::from_ptx(&context, include_str!("kernels.ptx"))?;
    let stream = Stream::new(&context)?;
    let simulated = load()?.kind() == DriverKind::Simulated;
    // The processor multiplies small matrices alone within a second.
    let sizes = if simulated { &SIZES[..2] } else { &SIZES };
    for name in ["gemm_naive", "gemm_tiled"] {
        let gemm: Gemm<'_> = module.kernel_unchecked(name)?;
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]);
        let (c, _) = multiply((&context, &stream), &gemm, 2, &a, &b)?;
        assert_eq!(c, [19.0, 22.0, 43.0, 50.0]);
        for &n in sizes {
            let (a, b) = (support::random(1, n * n), support::random(2, n * n));
            let (c, time) = multiply((&context, &stream), &gemm, n, &a, &b)?;
            println!("{name} {n}x{n}: {:.4}ms", time.as_secs_f64() * 1e3);
            if n < 1024 {
                check(n, &a, &b, &c);
            }
        }
    }
    Ok(())
}
