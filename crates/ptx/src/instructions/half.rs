//! Arithmetic on `f16`, `bf16` and pairs of them: `add`, `sub`, `mul`, `fma`, `neg`, `abs`, `min`, `max`.

use super::action::Action;
use super::apply::{binary_to, ternary_to, unary_to};
use super::form::{Decoded, Form};
use crate::number::{Bf16, F16, Float};
use crate::types::Type;

/// A number of 16 bits that is computed with as a single.
trait Small: Float {
    fn single(self) -> f32;
    fn of_single(value: f32) -> Self;
    fn fused(self, b: Self, c: Self) -> Self;
}

macro_rules! small {
    ($($type:ident)*) => { $(
        impl Small for $type {
            #[inline(always)]
            fn single(self) -> f32 {
                self.to_f32()
            }
            #[inline(always)]
            fn of_single(value: f32) -> Self {
                Self::from_f32(value)
            }
            #[inline(always)]
            fn fused(self, b: Self, c: Self) -> Self {
                self.fma(b, c)
            }
        }
    )* };
}

small! { F16 Bf16 }

pub(super) fn is_half(of: Option<Type>) -> bool {
    matches!(
        of,
        Some(Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2)
    )
}

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    match form.last_type() {
        Some(Type::F16 | Type::F16x2) => decode_as::<F16>(form),
        _ => decode_as::<Bf16>(form),
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Mode {
    flushes: bool,
    saturates: bool,
    relu: bool,
}

impl Mode {
    #[inline(always)]
    fn input<T: Small>(self, value: T) -> T {
        if self.flushes { value.flushed() } else { value }
    }

    #[inline(always)]
    fn output<T: Small>(self, value: T) -> T {
        let value = self.input(value);
        if self.saturates {
            return value.saturated();
        }
        let is_negative = value.single().is_sign_negative() && !value.single().is_nan();
        if self.relu && is_negative {
            T::from_bits64(0)
        } else {
            value
        }
    }
}

fn decode_as<T: Small>(form: &mut Form<'_>) -> Decoded<Action> {
    let root = form.root();
    if matches!(root, "min" | "max") {
        return extremum::<T>(form);
    }
    form.take("rn");
    let mode = Mode {
        flushes: form.take("ftz"),
        saturates: form.take("sat"),
        relu: form.take("relu"),
    };
    let of = form.take_type()?;
    let sign = T::FORMAT.infinity(true) & !T::FORMAT.infinity(false);
    let single = move |f: fn(f32, f32) -> f32| {
        move |a: T, b: T| {
            mode.output(T::of_single(f(
                mode.input(a).single(),
                mode.input(b).single(),
            )))
        }
    };
    match root {
        "add" => two(form, of, single(|a, b| a + b)),
        "sub" => two(form, of, single(|a, b| a - b)),
        "mul" => two(form, of, single(|a, b| a * b)),
        "fma" => three(form, of, move |a: T, b, c| {
            mode.output(mode.input(a).fused(mode.input(b), mode.input(c)))
        }),
        "neg" => one(form, of, move |a: T| {
            T::from_bits64(mode.input(a).to_bits64() ^ sign)
        }),
        "abs" => one(form, of, move |a: T| {
            T::from_bits64(mode.input(a).to_bits64() & !sign)
        }),
        _ => Err(form.unsupported()),
    }
}

fn extremum<T: Small>(form: &mut Form<'_>) -> Decoded<Action> {
    let is_max = form.root() == "max";
    let flushes = form.take("ftz");
    let keeps_nan = form.take("NaN");
    let by_magnitude = form.take("xorsign") && form.take("abs");
    let of = form.take_type()?;
    let mode = Mode {
        flushes,
        ..Mode::default()
    };
    let sign = T::FORMAT.infinity(true) & !T::FORMAT.infinity(false);
    two(form, of, move |a: T, b: T| {
        let (a, b) = (mode.input(a), mode.input(b));
        let negative = (a.to_bits64() ^ b.to_bits64()) & sign;
        let [x, y] = [a, b].map(|own| match by_magnitude {
            true => T::from_bits64(own.to_bits64() & !sign),
            false => own,
        });
        let (p, q) = (x.single(), y.single());
        let is_first = match is_max {
            _ if p.is_nan() && q.is_nan() => return T::nan(),
            _ if keeps_nan && (p.is_nan() || q.is_nan()) => return T::nan(),
            _ if p.is_nan() || q.is_nan() => q.is_nan(),
            false => p < q || p == q && p.is_sign_negative(),
            true => p > q || p == q && p.is_sign_positive(),
        };
        let chosen = if is_first { x } else { y };
        // The sign of a NaN counts too.
        match by_magnitude {
            true => T::from_bits64(chosen.to_bits64() | negative),
            false => chosen,
        }
    })
}

fn is_pair(of: Type) -> bool {
    of.bits() == 32
}

/// Applies a function to each half.
#[inline(always)]
fn halves<T: Small, const N: usize>(values: [u32; N], f: impl Fn([T; N]) -> T) -> u32 {
    let low = f(values.map(|own| T::from_bits64((own & 0xFFFF).into())));
    let high = f(values.map(|own| T::from_bits64((own >> 16).into())));
    (high.to_bits64() as u32) << 16 | low.to_bits64() as u32
}

fn low<T: Small>(bits: u32) -> T {
    T::from_bits64((bits & 0xFFFF).into())
}

fn one<T: Small>(
    form: &Form<'_>,
    of: Type,
    f: impl Fn(T) -> T + Copy + Send + Sync + 'static,
) -> Decoded<Action> {
    form.finish(2)?;
    let (d, a) = (form.destination(0, of)?, form.source(1, of)?);
    Ok(match is_pair(of) {
        true => unary_to(d, a, move |a: u32| halves([a], |[a]| f(a))),
        false => unary_to(d, a, move |a: u32| f(low(a)).to_bits64() as u32),
    })
}

fn two<T: Small>(
    form: &Form<'_>,
    of: Type,
    f: impl Fn(T, T) -> T + Copy + Send + Sync + 'static,
) -> Decoded<Action> {
    form.finish(3)?;
    let d = form.destination(0, of)?;
    let sources = [form.source(1, of)?, form.source(2, of)?];
    Ok(match is_pair(of) {
        true => binary_to(d, sources, move |a: u32, b: u32| {
            halves([a, b], |[a, b]| f(a, b))
        }),
        false => binary_to(d, sources, move |a: u32, b: u32| {
            f(low(a), low(b)).to_bits64() as u32
        }),
    })
}

fn three<T: Small>(
    form: &Form<'_>,
    of: Type,
    f: impl Fn(T, T, T) -> T + Copy + Send + Sync + 'static,
) -> Decoded<Action> {
    form.finish(4)?;
    let d = form.destination(0, of)?;
    let sources = [
        form.source(1, of)?,
        form.source(2, of)?,
        form.source(3, of)?,
    ];
    Ok(match is_pair(of) {
        true => ternary_to(d, sources, move |a: u32, b: u32, c: u32| {
            halves([a, b, c], |[a, b, c]| f(a, b, c))
        }),
        false => ternary_to(d, sources, move |a: u32, b: u32, c: u32| {
            f(low(a), low(b), low(c)).to_bits64() as u32
        }),
    })
}
