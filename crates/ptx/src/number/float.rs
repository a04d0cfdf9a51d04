//! What instructions need of every format.

use super::format::{self, Format, Rounding};
use super::half::{Bf16, F16};
use super::soft;

/// A floating-point number.
pub(crate) trait Float: Copy + Send + Sync + 'static {
    const FORMAT: Format;
    fn from_bits64(bits: u64) -> Self;
    fn to_bits64(self) -> u64;
    /// The same number, exactly.
    fn to_f64(self) -> f64;
    /// The number nearest to a double.
    fn nearest(value: f64) -> Self;

    /// Rounds a double.
    fn rounded(value: f64, rounding: Rounding) -> Self {
        if rounding == Rounding::Nearest {
            return Self::nearest(value);
        }
        Self::from_bits64(soft::convert(
            format::F64,
            Self::FORMAT,
            value.to_bits(),
            rounding,
        ))
    }

    /// NaN becomes the canonical one.
    #[inline(always)]
    fn canonical(self) -> Self {
        // By integers: which NaN a floating-point operation returns is unspecified in Rust, so that the compiler may
        // remove the choice between two of them.
        let bits = self.to_bits64();
        let infinity = Self::FORMAT.infinity(false);
        let sign = Self::FORMAT.infinity(true) & !infinity;
        let is_nan = bits & !sign > infinity;
        Self::from_bits64(if is_nan { Self::FORMAT.nan() } else { bits })
    }

    fn nan() -> Self {
        Self::from_bits64(Self::FORMAT.nan())
    }

    /// Subnormal numbers become zero, with their sign.
    fn flushed(self) -> Self {
        let bits = self.to_bits64();
        let sign = bits & Self::FORMAT.infinity(true) & !Self::FORMAT.infinity(false);
        if bits & Self::FORMAT.infinity(false) == 0 {
            Self::from_bits64(sign)
        } else {
            self
        }
    }

    /// Clamped to the range from 0 to 1; NaN becomes 0.
    fn saturated(self) -> Self {
        let value = self.to_f64();
        match value {
            _ if value > 1.0 => Self::nearest(1.0),
            _ if value > 0.0 => self,
            _ => Self::from_bits64(0),
        }
    }
}

macro_rules! native {
    ($($type:ident, $format:ident;)*) => { $(
        impl Float for $type {
            const FORMAT: Format = format::$format;
            #[inline(always)]
            fn from_bits64(bits: u64) -> Self {
                Self::from_bits(bits as _)
            }
            #[inline(always)]
            fn to_bits64(self) -> u64 {
                self.to_bits().into()
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn nearest(value: f64) -> Self {
                value as Self
            }
        }
    )* };
}

native! {
    f32, F32;
    f64, F64;
}

macro_rules! halves {
    ($($type:ident, $format:ident;)*) => { $(
        impl Float for $type {
            const FORMAT: Format = format::$format;
            #[inline(always)]
            fn from_bits64(bits: u64) -> Self {
                Self(bits as u16)
            }
            #[inline(always)]
            fn to_bits64(self) -> u64 {
                self.0.into()
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self.to_f32().into()
            }
            #[inline(always)]
            fn nearest(value: f64) -> Self {
                let single = value as f32;
                // Rounding twice matters only where the first is inexact.
                if f64::from(single) == value || value.is_nan() {
                    return Self::from_f32(single);
                }
                Self::from_f64(value)
            }
        }
    )* };
}

halves! {
    F16, F16;
    Bf16, BF16;
}
