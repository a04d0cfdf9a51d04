//! Fused multiply-add of all lanes.

use super::lanes::{LANES, Lanes};

/// `a * b + c` of singles, rounded once. NaN becomes the canonical one.
#[inline(always)]
pub(crate) fn fused_multiply_add(a: &Lanes<u32>, b: &Lanes<u32>, c: &Lanes<u32>) -> Lanes<f32> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has both features.
        return unsafe { with_fma(a, b, c) };
    }
    each(a, b, c)
}

/// Compiled for processors that have the instruction, which nearly all have: the host's library computes it slowly.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_fma(a: &Lanes<u32>, b: &Lanes<u32>, c: &Lanes<u32>) -> Lanes<f32> {
    each(a, b, c)
}

#[inline(always)]
fn each(a: &[u32; LANES], b: &[u32; LANES], c: &[u32; LANES]) -> Lanes<f32> {
    // No closure: one would be compiled without the features of the processor.
    let mut values = [0.0; LANES];
    for lane in 0..LANES {
        let (a, b) = (f32::from_bits(a[lane]), f32::from_bits(b[lane]));
        let bits = a.mul_add(b, f32::from_bits(c[lane])).to_bits();
        // By integers, as in `Float::canonical`.
        let is_nan = bits & 0x7FFF_FFFF > 0x7F80_0000;
        values[lane] = f32::from_bits(if is_nan { 0x7FFF_FFFF } else { bits });
    }
    values
}
