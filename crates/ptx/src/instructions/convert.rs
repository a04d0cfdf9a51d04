//! `cvt` between scalar types.

use super::action::Action;
use super::apply::unary_to;
use super::conversion::Modifiers;
use super::form::{Decoded, Form};
use super::rounding::integral;
use super::{convert_packed, number_types};
use crate::machine::{Destination, Source, Value};
use crate::number::{Bf16, F16, Float, Rounding, from_integer};
use crate::types::Type;
use number_types::Whole;

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    if form.take("pack") {
        return convert_packed::decode_pack(form);
    }
    let modifiers = Modifiers::take(form);
    let to = form.take_type()?;
    let from = form.take_type()?;
    if convert_packed::is_packed(to, from) {
        return convert_packed::decode(form, modifiers, to, from);
    }
    if modifiers.relu || modifiers.is_finite {
        return convert_packed::decode_special(form, modifiers, to, from);
    }
    form.finish(2)?;
    let d = form.wide_destination(0, to)?;
    let a = form.wide_source(1, from)?;
    match from {
        Type::U8 | Type::B8 => from_whole::<u8>(form, d, a, modifiers, to),
        Type::S8 => from_whole::<i8>(form, d, a, modifiers, to),
        Type::U16 | Type::B16 => from_whole::<u16>(form, d, a, modifiers, to),
        Type::S16 => from_whole::<i16>(form, d, a, modifiers, to),
        Type::U32 | Type::B32 => from_whole::<u32>(form, d, a, modifiers, to),
        Type::S32 => from_whole::<i32>(form, d, a, modifiers, to),
        Type::U64 | Type::B64 => from_whole::<u64>(form, d, a, modifiers, to),
        Type::S64 => from_whole::<i64>(form, d, a, modifiers, to),
        Type::F16 => from_float::<F16>(form, d, a, modifiers, to),
        Type::Bf16 => from_float::<Bf16>(form, d, a, modifiers, to),
        Type::F32 => from_float::<f32>(form, d, a, modifiers, to),
        Type::F64 => from_float::<f64>(form, d, a, modifiers, to),
        _ => Err(form.unsupported()),
    }
}

fn from_whole<A: Whole>(
    form: &Form<'_>,
    d: Destination,
    a: Source,
    modifiers: Modifiers,
    to: Type,
) -> Decoded<Action> {
    let saturates = modifiers.saturates;
    Ok(match to {
        Type::U8 | Type::B8 => whole::<A, u8>(d, a, saturates),
        Type::S8 => whole::<A, i8>(d, a, saturates),
        Type::U16 | Type::B16 => whole::<A, u16>(d, a, saturates),
        Type::S16 => whole::<A, i16>(d, a, saturates),
        Type::U32 | Type::B32 => whole::<A, u32>(d, a, saturates),
        Type::S32 => whole::<A, i32>(d, a, saturates),
        Type::U64 | Type::B64 => whole::<A, u64>(d, a, saturates),
        Type::S64 => whole::<A, i64>(d, a, saturates),
        Type::F16 => whole_to_float::<A, F16>(d, a, modifiers),
        Type::Bf16 => whole_to_float::<A, Bf16>(d, a, modifiers),
        Type::F32 => whole_to_float::<A, f32>(d, a, modifiers),
        Type::F64 => whole_to_float::<A, f64>(d, a, modifiers),
        _ => return Err(form.unsupported()),
    })
}

fn whole<A: Whole, D: Whole>(d: Destination, a: Source, saturates: bool) -> Action {
    if saturates {
        return unary_to(d, a, |a: A| D::saturating(a.wide()));
    }
    unary_to(d, a, |a: A| D::from_long(a.to_long()))
}

fn whole_to_float<A: Whole, D: Float + Value>(
    d: Destination,
    a: Source,
    modifiers: Modifiers,
) -> Action {
    let rounding = modifiers.rounding.unwrap_or(Rounding::Nearest);
    let saturates = modifiers.saturates;
    let saturate = move |value: D| if saturates { value.saturated() } else { value };
    // What a double holds exactly is rounded once.
    if size_of::<A>() <= 4 {
        return unary_to(d, a, move |a: A| saturate(D::rounded(a.to_f64(), rounding)));
    }
    if rounding == Rounding::Nearest && D::FORMAT.mantissa >= 23 {
        return unary_to(d, a, move |a: A| {
            saturate(if D::FORMAT.mantissa == 23 {
                D::nearest(a.to_f32().into())
            } else {
                D::nearest(a.to_f64())
            })
        });
    }
    unary_to(d, a, move |a: A| {
        saturate(D::from_bits64(from_integer(D::FORMAT, a.wide(), rounding)))
    })
}

fn from_float<A: Float + Value>(
    form: &Form<'_>,
    d: Destination,
    a: Source,
    modifiers: Modifiers,
    to: Type,
) -> Decoded<Action> {
    Ok(match to {
        Type::U8 => float_to_whole::<A, u8>(d, a, modifiers),
        Type::S8 => float_to_whole::<A, i8>(d, a, modifiers),
        Type::U16 => float_to_whole::<A, u16>(d, a, modifiers),
        Type::S16 => float_to_whole::<A, i16>(d, a, modifiers),
        Type::U32 => float_to_whole::<A, u32>(d, a, modifiers),
        Type::S32 => float_to_whole::<A, i32>(d, a, modifiers),
        Type::U64 => float_to_whole::<A, u64>(d, a, modifiers),
        Type::S64 => float_to_whole::<A, i64>(d, a, modifiers),
        Type::F16 => float::<A, F16>(d, a, modifiers),
        Type::Bf16 => float::<A, Bf16>(d, a, modifiers),
        Type::F32 => float::<A, f32>(d, a, modifiers),
        Type::F64 => float::<A, f64>(d, a, modifiers),
        Type::Tf32 => convert_packed::tf32(form, d, a, modifiers)?,
        _ => return Err(form.unsupported()),
    })
}

/// Whether it is `.f32`, of which alone `.ftz` flushes subnormal numbers.
fn is_single<T: Float>() -> bool {
    T::FORMAT.mantissa == 23
}

/// What does not fit becomes the least or greatest integer.
fn float_to_whole<A: Float + Value, D: Whole>(
    d: Destination,
    a: Source,
    modifiers: Modifiers,
) -> Action {
    let rounding = modifiers.to_integral.unwrap_or(Rounding::Zero);
    let flushes = modifiers.flushes && is_single::<A>();
    let is_wide = A::FORMAT.mantissa == 52 || size_of::<D>() == 8;
    // NaN is zero, or where 64 bits are involved the highest bit.
    let nan = if is_wide {
        1 << (8 * size_of::<D>() - 1)
    } else {
        0
    };
    unary_to(d, a, move |a: A| {
        let value = if flushes { a.flushed() } else { a }.to_f64();
        if value.is_nan() {
            return D::from_long(nan);
        }
        D::of_f64(integral(value, rounding))
    })
}

fn float<A: Float + Value, D: Float + Value>(
    d: Destination,
    a: Source,
    modifiers: Modifiers,
) -> Action {
    let Modifiers {
        rounding,
        to_integral,
        flushes,
        saturates,
        ..
    } = modifiers;
    let is_same = A::FORMAT == D::FORMAT;
    // To halves no operand is flushed: GPUs round a subnormal one up and down as any other.
    let is_narrower = D::FORMAT.mantissa < 23;
    let flushes_result = flushes && is_single::<D>();
    let flushes = flushes && is_single::<A>() && !is_narrower;
    unary_to(d, a, move |a: A| {
        let a = if flushes { a.flushed() } else { a };
        let mut value = a.to_f64();
        if let Some(rounding) = to_integral {
            value = integral(value, rounding);
        }
        let result = match value.is_nan() {
            true if is_same && !saturates => D::from_bits64(a.to_bits64()),
            true => D::nan(),
            false => D::rounded(value, rounding.unwrap_or(Rounding::Nearest)),
        };
        let result = if flushes_result {
            result.flushed()
        } else {
            result
        };
        if saturates {
            result.saturated()
        } else {
            result
        }
    })
}
