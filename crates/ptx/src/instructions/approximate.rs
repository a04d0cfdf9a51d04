//! `rcp`, `sqrt`, `rsqrt`, `sin`, `cos`, `lg2`, `ex2`, `tanh`.
//!
//! The approximations are the exact results rounded once, which is within the bounds of the manual.

use super::action::Action;
use super::apply::{unary, unary_to};
use super::float::{Mode, Native};
use super::form::{Decoded, Form};
use crate::machine::Value;
use crate::number::{self, Bf16, F16, Float, Rounding};
use crate::types::Type;

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    let is_approximate = form.take("approx");
    let mode = Mode::take(form);
    let of = form.take_type()?;
    let root = form.root();
    match (of, root) {
        (Type::F32, "rcp") => exact::<f32>(form, of, mode, |a| 1.0 / a, reciprocal),
        (Type::F32, "sqrt") => exact::<f32>(form, of, mode, f32::sqrt, number::square_root),
        (Type::F64, "rcp" | "rsqrt") if is_approximate => coarse(form, of),
        (Type::F64, "rcp") => exact::<f64>(form, of, mode, |a| 1.0 / a, reciprocal),
        (Type::F64, "sqrt") => exact::<f64>(form, of, mode, f64::sqrt, number::square_root),
        (Type::F32, _) => {
            let f = function(root).ok_or_else(|| form.unsupported())?;
            unary(form, of, move |a: f32| {
                mode.output(f(mode.input(a).into()) as f32)
            })
        }
        (Type::F16, "ex2" | "tanh") => half::<F16>(form, of, mode),
        (Type::Bf16, "ex2" | "tanh") => half::<Bf16>(form, of, mode),
        (Type::F16x2, "ex2" | "tanh") => pair::<F16>(form, of, mode),
        (Type::Bf16x2, "ex2" | "tanh") => pair::<Bf16>(form, of, mode),
        _ => Err(form.unsupported()),
    }
}

fn function(root: &str) -> Option<fn(f64) -> f64> {
    Some(match root {
        "rsqrt" => |a| 1.0 / a.sqrt(),
        "sin" => f64::sin,
        "cos" => f64::cos,
        "lg2" => f64::log2,
        "ex2" => f64::exp2,
        "tanh" => f64::tanh,
        _ => return None,
    })
}

fn reciprocal(of: number::Format, a: u64, rounding: Rounding) -> u64 {
    let one = number::from_integer(of, 1, Rounding::Nearest);
    number::divide(of, one, a, rounding)
}

fn exact<T: Native>(
    form: &Form<'_>,
    of: Type,
    mode: Mode,
    nearest: impl Fn(T) -> T + Copy + Send + Sync + 'static,
    soft: impl Fn(number::Format, u64, Rounding) -> u64 + Copy + Send + Sync + 'static,
) -> Decoded<Action> {
    if mode.rounding == Rounding::Nearest {
        return unary(form, of, move |a: T| mode.output(nearest(mode.input(a))));
    }
    unary(form, of, move |a: T| {
        let bits = soft(T::FORMAT, mode.input(a).to_bits64(), mode.rounding);
        mode.output(T::from_bits64(bits))
    })
}

/// `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`, which compute with the upper halves of doubles.
fn coarse(form: &Form<'_>, of: Type) -> Decoded<Action> {
    let is_root = form.root() == "rsqrt";
    unary(form, of, move |a: f64| {
        let upper = |own: f64| f64::from_bits(own.to_bits() & !0xFFFF_FFFF);
        let a = upper(a).flushed();
        upper(if is_root { 1.0 / a.sqrt() } else { 1.0 / a }).flushed()
    })
}

/// `.ftz` flushes operands and results.
fn of_half<T: Float>(a: T, f: fn(f64) -> f64, mode: Mode) -> T {
    let flush = |own: T| if mode.flushes { own.flushed() } else { own };
    flush(T::nearest(f(flush(a).to_f64())).canonical())
}

fn half<T: Float + Value>(form: &Form<'_>, of: Type, mode: Mode) -> Decoded<Action> {
    let f = function(form.root()).ok_or_else(|| form.unsupported())?;
    unary(form, of, move |a: T| of_half(a, f, mode))
}

fn pair<T: Float>(form: &Form<'_>, of: Type, mode: Mode) -> Decoded<Action> {
    let f = function(form.root()).ok_or_else(|| form.unsupported())?;
    form.finish(2)?;
    let (d, a) = (form.destination(0, of)?, form.source(1, of)?);
    let one = move |bits: u32| {
        let value = T::from_bits64(u64::from(bits & 0xFFFF));
        of_half(value, f, mode).to_bits64() as u32
    };
    Ok(unary_to(d, a, move |a: u32| one(a >> 16) << 16 | one(a)))
}
