//! Arithmetic on integers, for what the host's floating-point unit does not do: directed rounding, small formats.

use super::format::{Format, Parts, Rounding};

/// Shifts right; the lowest bit becomes set if bits are lost.
fn shift_right(mantissa: u128, by: i32) -> u128 {
    match by {
        0 => mantissa,
        1..=127 => {
            let lost = mantissa & ((1 << by) - 1) != 0;
            mantissa >> by | u128::from(lost)
        }
        _ => u128::from(mantissa != 0),
    }
}

/// A number with its sign, `mantissa * 2^exponent`.
#[derive(Clone, Copy, Debug)]
struct Number {
    is_negative: bool,
    mantissa: u128,
    exponent: i32,
}

impl Number {
    /// The same number with its highest bit at 125.
    fn normalized(self) -> Self {
        let by = self.mantissa.leading_zeros() as i32 - 2;
        Self {
            mantissa: self.mantissa << by.max(0),
            exponent: self.exponent - by.max(0),
            ..self
        }
    }
}

/// The sum of two numbers that are not zero, rounded.
fn sum(of: Format, a: Number, b: Number, rounding: Rounding) -> u64 {
    let (a, b) = (a.normalized(), b.normalized());
    let (large, small) = if a.exponent >= b.exponent {
        (a, b)
    } else {
        (b, a)
    };
    let shifted = shift_right(small.mantissa, large.exponent - small.exponent);
    let (is_negative, mantissa) = if large.is_negative == small.is_negative {
        (large.is_negative, large.mantissa + shifted)
    } else if large.mantissa >= shifted {
        (large.is_negative, large.mantissa - shifted)
    } else {
        (small.is_negative, shifted - large.mantissa)
    };
    if mantissa == 0 {
        return zero(of, rounding == Rounding::Down);
    }
    of.round(is_negative, mantissa, large.exponent, rounding)
}

fn zero(of: Format, is_negative: bool) -> u64 {
    if is_negative { of.sign_bit() } else { 0 }
}

/// `a * b + c`, rounded once.
pub(crate) fn fma(of: Format, a: u64, b: u64, c: u64, rounding: Rounding) -> u64 {
    let ((a_sign, a), (b_sign, b), (c_sign, c)) = (of.unpack(a), of.unpack(b), of.unpack(c));
    let sign = a_sign != b_sign;
    let product = match (a, b) {
        (Parts::Nan, _) | (_, Parts::Nan) => return of.nan(),
        (Parts::Infinity, Parts::Zero) | (Parts::Zero, Parts::Infinity) => return of.nan(),
        (Parts::Infinity, _) | (_, Parts::Infinity) => {
            return match c {
                Parts::Nan => of.nan(),
                Parts::Infinity if c_sign != sign => of.nan(),
                _ => of.infinity(sign),
            };
        }
        (Parts::Zero, _) | (_, Parts::Zero) => None,
        (
            Parts::Finite {
                mantissa: a,
                exponent: i,
            },
            Parts::Finite {
                mantissa: b,
                exponent: j,
            },
        ) => Some(Number {
            is_negative: sign,
            mantissa: u128::from(a) * u128::from(b),
            exponent: i + j,
        }),
    };
    let addend = match c {
        Parts::Nan => return of.nan(),
        Parts::Infinity => return of.infinity(c_sign),
        Parts::Zero => None,
        Parts::Finite { mantissa, exponent } => Some(Number {
            is_negative: c_sign,
            mantissa: mantissa.into(),
            exponent,
        }),
    };
    match (product, addend) {
        (Some(product), Some(addend)) => sum(of, product, addend, rounding),
        (Some(own), None) | (None, Some(own)) => {
            of.round(own.is_negative, own.mantissa, own.exponent, rounding)
        }
        (None, None) if sign == c_sign => zero(of, sign),
        (None, None) => zero(of, rounding == Rounding::Down),
    }
}

/// The bits of one.
fn one(of: Format) -> u64 {
    (of.bias() as u64) << of.mantissa
}

pub(crate) fn add(of: Format, a: u64, b: u64, rounding: Rounding) -> u64 {
    fma(of, a, one(of), b, rounding)
}

pub(crate) fn multiply(of: Format, a: u64, b: u64, rounding: Rounding) -> u64 {
    // A zero with the sign of the product does not change it.
    let sign = (a ^ b) & of.sign_bit();
    fma(of, a, b, sign, rounding)
}

pub(crate) fn divide(of: Format, a: u64, b: u64, rounding: Rounding) -> u64 {
    let ((a_sign, a), (b_sign, b)) = (of.unpack(a), of.unpack(b));
    let sign = a_sign != b_sign;
    match (a, b) {
        (Parts::Nan, _) | (_, Parts::Nan) => of.nan(),
        (Parts::Infinity, Parts::Infinity) | (Parts::Zero, Parts::Zero) => of.nan(),
        (Parts::Infinity, _) | (_, Parts::Zero) => of.infinity(sign),
        (Parts::Zero, _) | (_, Parts::Infinity) => zero(of, sign),
        (
            Parts::Finite {
                mantissa: a,
                exponent: i,
            },
            Parts::Finite {
                mantissa: b,
                exponent: j,
            },
        ) => {
            let (by_a, by_b) = (a.leading_zeros(), b.leading_zeros());
            let dividend = u128::from(a << by_a) << 63;
            let divisor = u128::from(b << by_b);
            let quotient = ((dividend / divisor) << 1) | u128::from(dividend % divisor != 0);
            let exponent = (i - by_a as i32) - (j - by_b as i32) - 64;
            of.round(sign, quotient, exponent, rounding)
        }
    }
}

pub(crate) fn square_root(of: Format, a: u64, rounding: Rounding) -> u64 {
    match of.unpack(a) {
        (is_negative, Parts::Zero) => zero(of, is_negative),
        (true, _) | (_, Parts::Nan) => of.nan(),
        (false, Parts::Infinity) => of.infinity(false),
        (false, Parts::Finite { mantissa, exponent }) => {
            // 124 bits or so with an even exponent have a root of 62.
            let mut by = u128::from(mantissa).leading_zeros() as i32 - 3;
            by -= (exponent - by).rem_euclid(2);
            let radicand = u128::from(mantissa) << by;
            let root = radicand.isqrt();
            let rest = radicand != root * root;
            of.round(
                false,
                root << 1 | u128::from(rest),
                (exponent - by) / 2 - 1,
                rounding,
            )
        }
    }
}

/// Converts between formats.
pub(crate) fn convert(from: Format, to: Format, bits: u64, rounding: Rounding) -> u64 {
    match from.unpack(bits) {
        (_, Parts::Nan) => to.nan(),
        (is_negative, Parts::Infinity) if to.is_finite => to.largest(is_negative),
        (is_negative, Parts::Infinity) => to.infinity(is_negative),
        (is_negative, Parts::Zero) => zero(to, is_negative),
        (is_negative, Parts::Finite { mantissa, exponent }) => {
            to.round(is_negative, mantissa.into(), exponent, rounding)
        }
    }
}

/// Converts an integer.
pub(crate) fn from_integer(to: Format, value: i128, rounding: Rounding) -> u64 {
    if value == 0 {
        return 0;
    }
    to.round(value < 0, value.unsigned_abs(), 0, rounding)
}

#[cfg(test)]
mod tests {
    use super::super::format::{F32, F64};
    use super::*;

    /// A generator of numbers of all magnitudes.
    fn numbers() -> impl FnMut() -> u64 {
        let mut state = 1u64;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 29
        }
    }

    fn same32(found: u64, expected: f32, what: &str) {
        let expected = if expected.is_nan() {
            0x7FFF_FFFF
        } else {
            expected.to_bits()
        };
        assert_eq!(found, u64::from(expected), "{what}");
    }

    #[test]
    fn to_nearest_as_the_host_computes() {
        let mut next = numbers();
        for round in 0..200_000 {
            // Half of them close together, so that sums cancel.
            let close = |bits: u32| {
                if round % 2 == 0 {
                    bits & 0x81FF_FFFF | 0x3E00_0000
                } else {
                    bits
                }
            };
            let [a, b, c] = [next(), next(), next()].map(|bits| close((bits >> 20) as u32));
            let [x, y, z] = [a, b, c].map(f32::from_bits);
            let [a, b, c] = [a, b, c].map(u64::from);
            let nearest = Rounding::Nearest;
            same32(fma(F32, a, b, c, nearest), x.mul_add(y, z), "fma");
            same32(add(F32, a, b, nearest), x + y, "add");
            same32(multiply(F32, a, b, nearest), x * y, "multiply");
            same32(divide(F32, a, b, nearest), x / y, "divide");
            same32(square_root(F32, a, nearest), x.sqrt(), "square root");
            let (x, y) = (next(), next());
            let (p, q) = (f64::from_bits(x), f64::from_bits(y));
            let same = |found: u64, expected: f64| {
                assert!(
                    found == expected.to_bits()
                        || expected.is_nan() && f64::from_bits(found).is_nan()
                );
            };
            same(fma(F64, x, y, a, nearest), p.mul_add(q, f64::from_bits(a)));
            same(divide(F64, x, y, nearest), p / q);
            same(square_root(F64, x, nearest), p.sqrt());
            same32(convert(F64, F32, x, nearest), p as f32, "convert");
            let value = (x as i64 >> (y % 64)).into();
            same32(
                from_integer(F32, value, nearest),
                value as i64 as f32,
                "from integer",
            );
        }
    }

    #[test]
    fn directed_rounding_brackets_the_exact_result() {
        let mut next = numbers();
        for _ in 0..50_000 {
            let [a, b] = [next(), next()].map(|bits| bits >> 20 & 0xFFFF_FFFF);
            let [x, y] = [a, b].map(|bits| f64::from(f32::from_bits(bits as u32)));
            // The product of two singles is exact in double.
            let exact = x * y;
            let round = |rounding| f64::from(f32::from_bits(multiply(F32, a, b, rounding) as u32));
            if exact.is_nan() {
                assert!(round(Rounding::Up).is_nan());
                continue;
            }
            let (down, up) = (round(Rounding::Down), round(Rounding::Up));
            assert!(down <= exact && exact <= up, "{down:e} {exact:e} {up:e}");
            let zero = round(Rounding::Zero);
            assert_eq!(zero, if exact < 0.0 { up } else { down });
            let gap = (down as f32).next_up();
            assert!(down == up || up as f32 == gap, "{down:e} {up:e}");
        }
        assert_eq!(
            add(F32, one(F32), one(F32) | 1 << 31, Rounding::Down),
            1 << 31
        );
        assert_eq!(add(F32, one(F32), one(F32) | 1 << 31, Rounding::Zero), 0);
    }
}
