//! Formats of floating-point numbers, and rounding to them.

/// A binary format with a sign, an exponent and a mantissa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Bits of the mantissa that are stored.
    pub(crate) mantissa: u32,
    pub(crate) exponent: u32,
    /// Whether the largest exponent has numbers, and there is no infinity: `e4m3`.
    pub(crate) is_finite: bool,
}

const fn format(mantissa: u32, exponent: u32) -> Format {
    Format {
        mantissa,
        exponent,
        is_finite: false,
    }
}

pub(crate) const F16: Format = format(10, 5);
pub(crate) const BF16: Format = format(7, 8);
pub(crate) const TF32: Format = format(10, 8);
pub(crate) const F32: Format = format(23, 8);
pub(crate) const F64: Format = format(52, 11);
pub(crate) const E5M2: Format = format(2, 5);
pub(crate) const E4M3: Format = Format {
    mantissa: 3,
    exponent: 4,
    is_finite: true,
};

/// How a result that is not representable is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// `.rn`: to nearest, ties to even.
    Nearest,
    /// `.rna`: to nearest, ties away from zero.
    Away,
    /// `.rz`
    Zero,
    /// `.rm`
    Down,
    /// `.rp`
    Up,
}

/// A number taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    Nan,
    Infinity,
    Zero,
    /// `mantissa * 2^exponent`
    Finite {
        mantissa: u64,
        exponent: i32,
    },
}

impl Format {
    pub(super) fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    fn exponent_mask(self) -> u64 {
        (1 << self.exponent) - 1
    }

    fn mantissa_mask(self) -> u64 {
        (1 << self.mantissa) - 1
    }

    pub(super) fn sign_bit(self) -> u64 {
        1 << (self.mantissa + self.exponent)
    }

    /// The canonical NaN.
    pub(crate) fn nan(self) -> u64 {
        match self {
            F64 => 0x7FF8_0000_0000_0000,
            _ => self.sign_bit() - 1,
        }
    }

    pub(crate) fn infinity(self, is_negative: bool) -> u64 {
        let sign = if is_negative { self.sign_bit() } else { 0 };
        sign | self.exponent_mask() << self.mantissa
    }

    /// The largest finite number.
    pub(crate) fn largest(self, is_negative: bool) -> u64 {
        let sign = if is_negative { self.sign_bit() } else { 0 };
        if self.is_finite {
            return sign | (self.sign_bit() - 2);
        }
        sign | (self.infinity(false) - 1)
    }

    /// The sign, and the rest.
    pub(super) fn unpack(self, bits: u64) -> (bool, Parts) {
        let is_negative = bits & self.sign_bit() != 0;
        let exponent = bits >> self.mantissa & self.exponent_mask();
        let mantissa = bits & self.mantissa_mask();
        let parts = if self.is_finite && bits & (self.sign_bit() - 1) == self.sign_bit() - 1 {
            Parts::Nan
        } else if exponent == self.exponent_mask() && !self.is_finite {
            if mantissa == 0 {
                Parts::Infinity
            } else {
                Parts::Nan
            }
        } else if exponent == 0 && mantissa == 0 {
            Parts::Zero
        } else {
            let (mantissa, exponent) = match exponent {
                0 => (mantissa, 1),
                exponent => (mantissa | 1 << self.mantissa, exponent as i32),
            };
            Parts::Finite {
                mantissa,
                exponent: exponent - self.bias() - self.mantissa as i32,
            }
        };
        (is_negative, parts)
    }

    /// Rounds `mantissa * 2^exponent`, whose lowest bit is also set if it stands for bits below.
    pub(super) fn round(
        self,
        is_negative: bool,
        mantissa: u128,
        exponent: i32,
        rounding: Rounding,
    ) -> u64 {
        let sign = if is_negative { self.sign_bit() } else { 0 };
        if mantissa == 0 {
            return sign;
        }
        let top = 127 - mantissa.leading_zeros() as i32;
        // The exponent of the last bit that is kept: of a normal number, or of a subnormal one.
        let least = 1 - self.bias() - self.mantissa as i32;
        let last = (exponent + top - self.mantissa as i32).max(least);
        let drop = last - exponent;
        let (mut kept, half, rest) = if drop <= 0 {
            // Nothing is lost: the number has at most as many bits as the format.
            (mantissa << -drop, false, false)
        } else if drop > 127 {
            (0, false, true)
        } else {
            let half = mantissa >> (drop - 1) & 1 != 0;
            let rest = mantissa & ((1 << (drop - 1)) - 1) != 0;
            (mantissa >> drop, half, rest)
        };
        let up = match rounding {
            Rounding::Nearest => half && (rest || kept & 1 != 0),
            Rounding::Away => half,
            Rounding::Zero => false,
            Rounding::Down => is_negative && (half || rest),
            Rounding::Up => !is_negative && (half || rest),
        };
        kept += u128::from(up);
        let mut exponent = last;
        if kept >> (self.mantissa + 1) != 0 {
            kept >>= 1;
            exponent += 1;
        }
        let is_normal = kept >> self.mantissa != 0;
        let stored = if is_normal { exponent - least + 1 } else { 0 };
        let greatest = self.exponent_mask() as i32 - i32::from(!self.is_finite);
        let bits = (stored as u64) << self.mantissa | kept as u64 & self.mantissa_mask();
        if stored > greatest || self.is_finite && bits >= self.sign_bit() - 1 {
            let to_largest = match rounding {
                Rounding::Nearest | Rounding::Away => false,
                Rounding::Zero => true,
                Rounding::Down => !is_negative,
                Rounding::Up => is_negative,
            };
            return match to_largest || self.is_finite {
                true => self.largest(is_negative),
                false => self.infinity(is_negative),
            };
        }
        sign | bits
    }
}
