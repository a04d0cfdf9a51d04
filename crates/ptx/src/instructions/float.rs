//! Single and double: `add`, `sub`, `mul`, `fma`, `mad`, `div`, `neg`, `abs`, `min`, `max`, `copysign`, `testp`.

use super::action::Action;
use super::apply::{action, binary, binary_to, ternary, unary};
use super::form::{Decoded, Form};
use super::rounding::take_rounding;
use crate::machine::{LANES, Value, fused_multiply_add};
use crate::number::{self, Float, Rounding};
use crate::types::Type;

/// A single or a double.
pub(super) trait Native: Float + Value {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn quotient(self, other: Self) -> Self;
    /// NaN becomes the canonical one for singles; doubles keep theirs.
    fn tidy(self) -> Self;
    fn negated(self) -> Self;
    fn magnitude(self) -> Self;
    fn is_less(self, other: Self) -> bool;
    fn is_negative(self) -> bool;
    fn is_not_number(self) -> bool;
}

macro_rules! native {
    ($($type:ident, $tidy:expr;)*) => { $(
        impl Native for $type {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn quotient(self, other: Self) -> Self {
                self / other
            }
            #[inline(always)]
            fn tidy(self) -> Self {
                $tidy(self)
            }
            #[inline(always)]
            fn negated(self) -> Self {
                -self
            }
            #[inline(always)]
            fn magnitude(self) -> Self {
                self.abs()
            }
            #[inline(always)]
            fn is_less(self, other: Self) -> bool {
                self < other
            }
            #[inline(always)]
            fn is_negative(self) -> bool {
                self.is_sign_negative()
            }
            #[inline(always)]
            fn is_not_number(self) -> bool {
                self.is_nan()
            }
        }
    )* };
}

native! {
    f32, Float::canonical;
    f64, |own| own;
}

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    match form.last_type() {
        Some(Type::F32) => decode_as::<f32>(form),
        _ => decode_as::<f64>(form),
    }
}

/// Modifiers of arithmetic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    pub(super) rounding: Rounding,
    pub(super) flushes: bool,
    pub(super) saturates: bool,
}

impl Mode {
    pub(super) fn take(form: &mut Form<'_>) -> Self {
        let rounding = take_rounding(form).unwrap_or(Rounding::Nearest);
        let flushes = form.take("ftz");
        let saturates = form.take("sat");
        Self {
            rounding,
            flushes,
            saturates,
        }
    }

    /// An operand.
    #[inline(always)]
    pub(super) fn input<T: Float>(self, value: T) -> T {
        if self.flushes { value.flushed() } else { value }
    }

    /// A result.
    #[inline(always)]
    pub(super) fn output<T: Native>(self, value: T) -> T {
        let value = self.input(value.tidy());
        if self.saturates {
            value.saturated()
        } else {
            value
        }
    }

    fn is_plain(self) -> bool {
        self.rounding == Rounding::Nearest && !self.flushes && !self.saturates
    }
}

fn decode_as<T: Native>(form: &mut Form<'_>) -> Decoded<Action> {
    let root = form.root();
    match root {
        "min" | "max" => return extremum::<T>(form),
        "div" => return divide::<T>(form),
        "testp" => return test::<T>(form),
        _ => {}
    }
    let mode = Mode::take(form);
    let of = form.take_type()?;
    match root {
        "add" => two(form, of, mode, T::sum, number::add),
        "sub" => two(
            form,
            of,
            mode,
            |a: T, b| a.sum(b.negated()),
            |format, a, b, rounding| {
                number::add(
                    format,
                    a,
                    b ^ (format.infinity(true) & !format.infinity(false)),
                    rounding,
                )
            },
        ),
        "mul" => two(form, of, mode, T::product, number::multiply),
        "fma" | "mad" => multiply_add::<T>(form, of, mode),
        "neg" => unary(form, of, move |a: T| mode.input(a).negated()),
        "abs" => unary(form, of, move |a: T| mode.input(a).magnitude()),
        "copysign" => binary(form, of, |sign: T, value: T| {
            let value = value.magnitude();
            if sign.is_negative() {
                value.negated()
            } else {
                value
            }
        }),
        _ => Err(form.unsupported()),
    }
}

/// An operation of two operands: `nearest` on the host, `soft` for other rounding modes.
fn two<T: Native>(
    form: &Form<'_>,
    of: Type,
    mode: Mode,
    nearest: impl Fn(T, T) -> T + Copy + Send + Sync + 'static,
    soft: impl Fn(number::Format, u64, u64, Rounding) -> u64 + Copy + Send + Sync + 'static,
) -> Decoded<Action> {
    if mode.is_plain() {
        return binary(form, of, move |a: T, b: T| nearest(a, b).tidy());
    }
    if mode.rounding == Rounding::Nearest {
        return binary(form, of, move |a: T, b: T| {
            mode.output(nearest(mode.input(a), mode.input(b)))
        });
    }
    binary(form, of, move |a: T, b: T| {
        let [a, b] = [a, b].map(|own| mode.input(own).to_bits64());
        mode.output(T::from_bits64(soft(T::FORMAT, a, b, mode.rounding)))
    })
}

fn multiply_add<T: Native>(form: &Form<'_>, of: Type, mode: Mode) -> Decoded<Action> {
    if mode.is_plain() && of == Type::F32 {
        form.finish(4)?;
        let d = form.destination(0, of)?;
        let sources = [
            form.source(1, of)?,
            form.source(2, of)?,
            form.source(3, of)?,
        ];
        return Ok(action(move |warp| {
            let a = &*warp.row(sources[0]);
            let b = &*warp.row(sources[1]);
            let c = &*warp.row(sources[2]);
            let values = fused_multiply_add(a, b, c);
            warp.write(d, values);
        }));
    }
    if mode.rounding == Rounding::Nearest && of == Type::F64 {
        return ternary(form, of, |a: f64, b, c| a.mul_add(b, c));
    }
    if mode.rounding == Rounding::Nearest {
        return ternary(form, of, move |a: f32, b, c| {
            mode.output(mode.input(a).mul_add(mode.input(b), mode.input(c)))
        });
    }
    ternary(form, of, move |a: T, b, c| {
        let [a, b, c] = [a, b, c].map(|own: T| mode.input(own).to_bits64());
        mode.output(T::from_bits64(number::fma(
            T::FORMAT,
            a,
            b,
            c,
            mode.rounding,
        )))
    })
}

/// `div.rn` and its like are exact; so are `.approx` and `.full` here.
fn divide<T: Native>(form: &mut Form<'_>) -> Decoded<Action> {
    let kind = form.take_one(&[("approx", true), ("full", false)]);
    let mode = Mode::take(form);
    let of = form.take_type()?;
    if kind == Some(true) && of == Type::F32 {
        return binary(form, of, move |a: f32, b: f32| {
            mode.output(approximate_quotient(mode.input(a), mode.input(b)))
        });
    }
    two(form, of, mode, T::quotient, number::divide)
}

/// `div.approx.f32` multiplies by the reciprocal, which is zero for the largest numbers: so says the manual.
fn approximate_quotient(a: f32, b: f32) -> f32 {
    const LARGE: f32 = f32::from_bits(0x7E80_0000);
    if b.abs() > LARGE && b.is_finite() {
        return a * 0f32.copysign(b);
    }
    a / b
}

/// The other operand instead of NaN, unless `.NaN` asks for it.
pub(super) fn least<T: Native>(a: T, b: T, keeps_nan: bool) -> T {
    if a.is_not_number() || b.is_not_number() {
        let both = a.is_not_number() && b.is_not_number();
        return match () {
            () if keeps_nan || both => T::nan(),
            () if a.is_not_number() => b,
            () => a,
        };
    }
    // Zero is more than negative zero.
    let is_first = a.is_less(b) || !b.is_less(a) && a.is_negative();
    if is_first { a } else { b }
}

fn extremum<T: Native>(form: &mut Form<'_>) -> Decoded<Action> {
    let is_max = form.root() == "max";
    let flushes = form.take("ftz");
    let keeps_nan = form.take("NaN");
    let by_magnitude = form.take("xorsign") && form.take("abs");
    let of = form.take_type()?;
    let mode = Mode {
        rounding: Rounding::Nearest,
        flushes,
        saturates: false,
    };
    let choose = move |a: T, b: T| {
        let (a, b) = (mode.input(a), mode.input(b));
        match is_max {
            true => {
                let value = least(a.negated(), b.negated(), keeps_nan);
                if value.is_not_number() {
                    T::nan()
                } else {
                    value.negated()
                }
            }
            false => least(a, b, keeps_nan),
        }
    };
    if form.len() == 4 {
        return ternary(form, of, move |a: T, b, c| choose(choose(a, b), c));
    }
    if by_magnitude {
        return binary(form, of, move |a: T, b: T| {
            let value = choose(a.magnitude(), b.magnitude());
            let is_negative = a.is_negative() != b.is_negative();
            if is_negative && !value.is_not_number() {
                value.negated()
            } else {
                value
            }
        });
    }
    form.finish(3)?;
    let sources = [form.source(1, of)?, form.source(2, of)?];
    Ok(binary_to(form.destination(0, of)?, sources, choose))
}

/// `testp`: what kind of number it is.
fn test<T: Native>(form: &mut Form<'_>) -> Decoded<Action> {
    let kind = form.take_any()?;
    let of = form.take_type()?;
    form.finish(2)?;
    let infinity = T::FORMAT.infinity(false);
    let sign = T::FORMAT.infinity(true) & !infinity;
    let f: fn(u64, u64) -> bool = match kind {
        "finite" => |own, infinity| own < infinity,
        "infinite" => |own, infinity| own == infinity,
        "number" => |own, infinity| own <= infinity,
        "notanumber" => |own, infinity| own > infinity,
        // Zeros count as normal.
        "normal" => |own, infinity| own == 0 || own & infinity != 0 && own < infinity,
        "subnormal" => |own, infinity| own & infinity == 0 && own != 0,
        _ => return Err(form.unsupported()),
    };
    let p = form.predicate_destination(0)?;
    let a = form.source(1, of)?;
    Ok(action(move |warp| {
        let values = warp.read::<T>(a);
        let bits = (0..LANES).fold(0, |all, lane| {
            let magnitude = values[lane].to_bits64() & !sign;
            all | u32::from(f(magnitude, infinity)) << lane
        });
        warp.set_predicate(p, bits);
    }))
}
