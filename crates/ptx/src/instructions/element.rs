//! Elements of matrices, and the shapes of products.

use crate::number::{self, Bf16, F16, Float, Format, Rounding};
use crate::types::Type;

/// What an element of a matrix is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Half,
    Bf16,
    Tf32,
    Single,
    Double,
    Small(Format),
    /// With its number of bits.
    Signed(u32),
    Unsigned(u32),
}

/// The extents of a product: m times k, k times n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape([u32; 3]);

impl Shape {
    /// The shape of a name such as `m16n8k16`.
    pub(super) fn named(name: &str) -> Option<Self> {
        let (m, rest) = name.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        Some(Self([m.parse().ok()?, n.parse().ok()?, k.parse().ok()?]))
    }

    pub(super) fn extents(self) -> [u32; 3] {
        self.0
    }

    /// The shapes that `mma` has for elements of a type.
    pub(super) fn of_mma(of: Type) -> &'static [Self] {
        match of {
            Type::F16 | Type::Bf16 => &[Self([16, 8, 8]), Self([16, 8, 16])],
            Type::Tf32 => &[Self([16, 8, 4]), Self([16, 8, 8])],
            Type::F64 => &[
                Self([8, 8, 4]),
                Self([16, 8, 4]),
                Self([16, 8, 8]),
                Self([16, 8, 16]),
            ],
            Type::U8 | Type::S8 => &[Self([8, 8, 16]), Self([16, 8, 16]), Self([16, 8, 32])],
            Type::U4 | Type::S4 => &[Self([8, 8, 32]), Self([16, 8, 32]), Self([16, 8, 64])],
            Type::E4m3 | Type::E5m2 => &[Self([16, 8, 16]), Self([16, 8, 32])],
            _ => &[],
        }
    }
}

impl Element {
    pub(super) fn of(of: Type) -> Option<Self> {
        Some(match of {
            Type::F16 => Self::Half,
            Type::Bf16 => Self::Bf16,
            Type::Tf32 => Self::Tf32,
            Type::F32 => Self::Single,
            Type::F64 => Self::Double,
            Type::E4m3 => Self::Small(number::E4M3),
            Type::E5m2 => Self::Small(number::E5M2),
            Type::S8 => Self::Signed(8),
            Type::U8 => Self::Unsigned(8),
            Type::S4 => Self::Signed(4),
            Type::U4 => Self::Unsigned(4),
            Type::S32 => Self::Signed(32),
            _ => return None,
        })
    }

    pub(super) fn bits(self) -> u32 {
        match self {
            Self::Half | Self::Bf16 => 16,
            Self::Tf32 | Self::Single => 32,
            Self::Double => 64,
            Self::Small(_) => 8,
            Self::Signed(bits) | Self::Unsigned(bits) => bits,
        }
    }

    fn integer(self, bits: u64) -> i64 {
        match self {
            Self::Signed(width) => (bits << (64 - width)) as i64 >> (64 - width),
            _ => bits as i64,
        }
    }

    fn float(self, bits: u64) -> f64 {
        match self {
            Self::Half => F16(bits as u16).to_f64(),
            Self::Bf16 => Bf16(bits as u16).to_f64(),
            // The lower bits of the mantissa are ignored.
            Self::Tf32 => f32::from_bits(bits as u32 & !0x1FFF).into(),
            Self::Single => f32::from_bits(bits as u32).into(),
            Self::Double => f64::from_bits(bits),
            Self::Small(format) => f64::from_bits(number::convert(
                format,
                number::F64,
                bits,
                Rounding::Nearest,
            )),
            Self::Signed(_) | Self::Unsigned(_) => self.integer(bits) as f64,
        }
    }

    /// The sum of products and of an addend, as an element of this kind. Floating-point sums are computed in double and
    /// rounded once; those of doubles at each step.
    pub(super) fn sum_of_products(
        self,
        (a_of, b_of, c_of): (Self, Self, Self),
        pairs: impl Iterator<Item = (u64, u64)>,
        addend: u64,
        saturates: bool,
    ) -> u64 {
        match self {
            Self::Signed(_) | Self::Unsigned(_) => {
                let products = pairs.map(|(a, b)| a_of.integer(a) * b_of.integer(b));
                let sum = c_of.integer(addend) + products.sum::<i64>();
                let sum = if saturates {
                    sum.clamp(i32::MIN.into(), i32::MAX.into())
                } else {
                    sum
                };
                u64::from(sum as u32)
            }
            _ => {
                let start = c_of.float(addend);
                let sum = pairs.fold(start, |sum, (a, b)| {
                    a_of.float(a).mul_add(b_of.float(b), sum)
                });
                match self {
                    Self::Half => F16::nearest(sum).canonical().to_bits64(),
                    Self::Bf16 => Bf16::nearest(sum).canonical().to_bits64(),
                    Self::Double => sum.to_bits(),
                    _ => (sum as f32).canonical().to_bits64(),
                }
            }
        }
    }
}
