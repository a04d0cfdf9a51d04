//! Numbers of 16 bits.

use super::format::{self, Rounding};
use super::soft;

/// A half: `f16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct F16(pub(crate) u16);

/// `bf16`: a single without its lower half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bf16(pub(crate) u16);

/// The sum, whose last bit is odd if it is inexact: rounding it again is as rounding the exact sum once.
#[inline(always)]
fn sum_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let other = sum - a;
    let error = (a - (sum - other)) + (b - other);
    if error == 0.0 || !sum.is_finite() || sum.to_bits() & 1 != 0 {
        return sum;
    }
    let away = (error > 0.0) == (sum > 0.0);
    let bits = sum.to_bits();
    f64::from_bits(if away { bits + 1 } else { bits - 1 })
}

impl F16 {
    #[inline(always)]
    pub(crate) fn to_f32(self) -> f32 {
        let bits = u32::from(self.0);
        let sign = (bits & 0x8000) << 16;
        let rest = bits & 0x7FFF;
        let magnitude = if rest >= 0x7C00 {
            // Infinity and NaN.
            f32::from_bits(rest << 13 | 0x7F80_0000)
        } else {
            // The exponent's bias is 112 less; subnormals become normal.
            f32::from_bits(rest << 13) * f32::from_bits(0x7780_0000)
        };
        f32::from_bits(magnitude.to_bits() | sign)
    }

    #[inline(always)]
    pub(crate) fn from_f64(value: f64) -> Self {
        // A double has enough bits that the rest does not matter where it is exact or odd.
        let bits = soft::convert(format::F64, format::F16, value.to_bits(), Rounding::Nearest);
        Self(bits as u16)
    }

    pub(crate) fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let sign = (bits >> 16 & 0x8000) as u16;
        let rest = bits & 0x7FFF_FFFF;
        if rest > 0x7F80_0000 {
            return Self(0x7FFF);
        }
        if rest >= 0x477F_F000 {
            return Self(sign | 0x7C00);
        }
        if rest < 0x3880_0000 {
            // Adding a half aligns the bits of a subnormal, rounded as is right.
            let shifted = f32::from_bits(rest) + 0.5;
            return Self(sign | (shifted.to_bits() - 0.5f32.to_bits()) as u16);
        }
        let odd = rest >> 13 & 1;
        let rounded = rest - 0x3800_0000 + 0xFFF + odd;
        Self(sign | (rounded >> 13) as u16)
    }

    pub(crate) fn fma(self, b: Self, c: Self) -> Self {
        let product = f64::from(self.to_f32()) * f64::from(b.to_f32());
        Self::from_f64(sum_to_odd(product, c.to_f32().into()))
    }
}

impl Bf16 {
    #[inline(always)]
    pub(crate) fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    #[inline(always)]
    pub(crate) fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        if value.is_nan() {
            return Self(0x7FFF);
        }
        let odd = bits >> 16 & 1;
        Self(((bits + 0x7FFF + odd) >> 16) as u16)
    }

    pub(crate) fn from_f64(value: f64) -> Self {
        let bits = soft::convert(
            format::F64,
            format::BF16,
            value.to_bits(),
            Rounding::Nearest,
        );
        Self(bits as u16)
    }

    pub(crate) fn fma(self, b: Self, c: Self) -> Self {
        let product = f64::from(self.to_f32()) * f64::from(b.to_f32());
        Self::from_f64(sum_to_odd(product, c.to_f32().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_agree_with_those_on_integers() {
        for bits in 0..=u16::MAX {
            let wide =
                soft::convert(format::F16, format::F32, bits.into(), Rounding::Nearest) as u32;
            let found = F16(bits).to_f32();
            assert!(
                found.to_bits() == wide || found.is_nan() && wide == 0x7FFF_FFFF,
                "{bits:x}"
            );
            if !found.is_nan() {
                assert_eq!(F16::from_f32(found).0, bits);
                assert_eq!(F16::from_f64(found.into()).0, bits);
            }
            if !Bf16(bits).to_f32().is_nan() {
                assert_eq!(Bf16::from_f32(Bf16(bits).to_f32()).0, bits);
            }
        }
        let mut bits = 0u32;
        for _ in 0..1_000_000 {
            bits = bits.wrapping_add(0x0001_0c47).rotate_left(1);
            let value = f32::from_bits(bits);
            let to = |of| soft::convert(format::F32, of, bits.into(), Rounding::Nearest) as u16;
            assert_eq!(F16::from_f32(value).0, to(format::F16), "{value:e}");
            assert_eq!(Bf16::from_f32(value).0, to(format::BF16), "{value:e}");
        }
    }

    #[test]
    fn fma_rounds_once() {
        let mut state = 1u64;
        for _ in 0..300_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let [a, b, c] = [state >> 16, state >> 32, state >> 48].map(|bits| bits as u16);
            let exact = |of| soft::fma(of, a.into(), b.into(), c.into(), Rounding::Nearest) as u16;
            assert_eq!(F16(a).fma(F16(b), F16(c)).0, exact(format::F16));
            assert_eq!(Bf16(a).fma(Bf16(b), Bf16(c)).0, exact(format::BF16));
        }
    }
}
