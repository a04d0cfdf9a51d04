//! `cvt` to and from pairs of small numbers, and to `tf32`; `cvt.pack`.

use super::action::Action;
use super::apply::{binary_to, ternary_to, unary_to};
use super::conversion::Modifiers;
use super::form::{Decoded, Form};
use crate::machine::{Destination, Source};
use crate::number::{self, BF16, E4M3, E5M2, F32, Format, HALF, Rounding, TF32, convert};
use crate::types::Type;

/// The format of each half of a pair.
fn pair_format(of: Type) -> Option<Format> {
    Some(match of {
        Type::F16x2 => HALF,
        Type::Bf16x2 => BF16,
        Type::E4m3x2 => E4M3,
        Type::E5m2x2 => E5M2,
        _ => return None,
    })
}

pub(super) fn is_packed(to: Type, from: Type) -> bool {
    pair_format(to).is_some() || pair_format(from).is_some()
}

/// Converts one number, as the modifiers say.
fn one(from: Format, to: Format, modifiers: Modifiers) -> impl Fn(u64) -> u64 + Copy + Send + Sync {
    let rounding = modifiers.rounding.unwrap_or(Rounding::Nearest);
    move |bits| {
        let found = convert(from, to, bits, rounding);
        let sign = to.infinity(true) & !to.infinity(false);
        let magnitude = found & !sign;
        let is_nan = match to.is_finite {
            true => magnitude == to.nan(),
            false => magnitude > to.infinity(false),
        };
        if is_nan {
            return to.nan();
        }
        if modifiers.relu && found & sign != 0 {
            return 0;
        }
        if modifiers.is_finite && magnitude == to.infinity(false) && !to.is_finite {
            return to.largest(found & sign != 0);
        }
        found
    }
}

/// From two numbers, of which the first becomes the upper half, or between pairs.
pub(super) fn decode(
    form: &Form<'_>,
    modifiers: Modifiers,
    to: Type,
    from: Type,
) -> Decoded<Action> {
    let d_type = if to.bits() == 16 {
        Type::B16
    } else {
        Type::B32
    };
    match (pair_format(to), pair_format(from)) {
        (Some(format), None) if from == Type::F32 => {
            form.finish(3)?;
            let d = form.destination(0, d_type)?;
            let sources = [form.source(1, from)?, form.source(2, from)?];
            let half = one(F32, format, modifiers);
            let bits = to.bits() / 2;
            Ok(binary_to(d, sources, move |a: u32, b: u32| {
                (half(a.into()) << bits | half(b.into())) as u32
            }))
        }
        (Some(target), Some(source)) => {
            form.finish(2)?;
            let d = form.destination(0, d_type)?;
            let a_type = if from.bits() == 16 {
                Type::B16
            } else {
                Type::B32
            };
            let a = form.source(1, a_type)?;
            let half = one(source, target, modifiers);
            let (from_bits, to_bits) = (from.bits() / 2, to.bits() / 2);
            let mask = (1 << from_bits) - 1;
            Ok(unary_to(d, a, move |a: u32| {
                let (low, high) = (u64::from(a) & mask, u64::from(a) >> from_bits & mask);
                (half(high) << to_bits | half(low)) as u32
            }))
        }
        _ => Err(form.unsupported()),
    }
}

/// Scalars with `.relu` or `.satfinite`.
pub(super) fn decode_special(
    form: &Form<'_>,
    modifiers: Modifiers,
    to: Type,
    from: Type,
) -> Decoded<Action> {
    form.finish(2)?;
    let format = match (to, from) {
        (Type::F16, Type::F32) => HALF,
        (Type::Bf16, Type::F32) => BF16,
        (Type::Tf32, Type::F32) => {
            let (d, a) = (form.destination(0, Type::B32)?, form.source(1, from)?);
            return tf32(form, d, a, modifiers);
        }
        _ => return Err(form.unsupported()),
    };
    let (d, a) = (form.destination(0, to)?, form.source(1, from)?);
    let convert = one(F32, format, modifiers);
    Ok(unary_to(d, a, move |a: u32| convert(a.into()) as u32))
}

/// The upper 19 bits of a single.
pub(super) fn tf32(
    form: &Form<'_>,
    d: Destination,
    a: Source,
    modifiers: Modifiers,
) -> Decoded<Action> {
    if modifiers.rounding.is_none() {
        return Err(form.unsupported());
    }
    let convert = one(number::F32, TF32, modifiers);
    Ok(unary_to(d, a, move |a: u32| {
        (convert(a.into()) as u32) << 13
    }))
}

/// `cvt.pack.sat.u8.s32.b32 d, a, b, c`: two integers saturated, before them what `c` has.
pub(super) fn decode_pack(form: &mut Form<'_>) -> Decoded<Action> {
    if !form.take("sat") {
        return Err(form.unsupported());
    }
    let to = form.take_type()?;
    let from = form.take_type()?;
    if from != Type::S32 {
        return Err(form.unsupported());
    }
    let (least, greatest) = match to {
        Type::U16 => (0, 0xFFFF),
        Type::S16 => (-0x8000, 0x7FFF),
        Type::U8 => (0, 0xFF),
        Type::S8 => (-0x80, 0x7F),
        _ => return Err(form.unsupported()),
    };
    let bits = to.bits();
    let mask = (1u32 << bits) - 1;
    let pack = move |a: i32, b: i32, c: u32| {
        let [a, b] = [a, b].map(|own| own.clamp(least, greatest) as u32 & mask);
        let upper = if bits == 16 { 0 } else { c << (2 * bits) };
        upper | a << bits | b
    };
    if bits == 16 {
        form.finish(3)?;
        let sources = [form.source(1, from)?, form.source(2, from)?];
        let d = form.destination(0, Type::B32)?;
        return Ok(binary_to(d, sources, move |a: i32, b: i32| pack(a, b, 0)));
    }
    if form.take_type()? != Type::B32 {
        return Err(form.unsupported());
    }
    form.finish(4)?;
    let sources = [
        form.source(1, from)?,
        form.source(2, from)?,
        form.source(3, Type::B32)?,
    ];
    Ok(ternary_to(form.destination(0, Type::B32)?, sources, pack))
}
