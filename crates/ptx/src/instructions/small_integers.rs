//! Integer instructions of few bits: `mul24`, `mad24`, `sad`, `dp4a`, `dp2a`; packed `add`, `min`, `max` of halves.

use super::action::Action;
use super::apply::{binary, ternary, ternary_to};
use super::arithmetic::{Integer, with_integer};
use super::form::{Decoded, Form};
use crate::machine::Value;
use crate::types::Type;

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    match form.root() {
        "mul24" | "mad24" => multiply_24(form),
        "sad" => {
            let of = form.take_type()?;
            with_integer!(form, of, sad(form, of))
        }
        "dp4a" => dot(form, 4),
        "dp2a" => dot(form, 2),
        "add" | "min" | "max" => pairs(form),
        _ => Err(form.unsupported()),
    }
}

/// `c + |a - b|`
fn sad<T: Integer>(form: &Form<'_>, of: Type) -> Decoded<Action> {
    ternary(form, of, |a: T, b: T, c: T| {
        let difference = if a > b {
            a.wrapping_sub(b)
        } else {
            b.wrapping_sub(a)
        };
        c.wrapping_add(difference)
    })
}

fn multiply_24(form: &mut Form<'_>) -> Decoded<Action> {
    let is_high = form
        .take_one(&[("lo", false), ("hi", true)])
        .ok_or_else(|| form.unsupported())?;
    let saturates = form.take("sat");
    let of = form.take_type()?;
    let is_signed = match of {
        Type::S32 => true,
        Type::U32 => false,
        _ => return Err(form.unsupported()),
    };
    let product = move |a: u32, b: u32| {
        let extend = |own: u32| match is_signed {
            true => i64::from((own << 8) as i32 >> 8),
            false => i64::from(own & 0xFF_FFFF),
        };
        // The upper 32 of 48 bits, or the lower.
        let all = extend(a) * extend(b);
        (if is_high { all >> 16 } else { all }) as u32
    };
    if form.root() == "mul24" {
        return binary(form, of, product);
    }
    if saturates {
        return ternary(form, of, move |a: u32, b: u32, c: u32| {
            (product(a, b) as i32).saturating_add(c as i32) as u32
        });
    }
    ternary(form, of, move |a: u32, b: u32, c: u32| {
        product(a, b).wrapping_add(c)
    })
}

/// A product of vectors of bytes; `dp2a` has halves as its first.
fn dot(form: &mut Form<'_>, parts: u32) -> Decoded<Action> {
    let is_high = match parts {
        2 => form
            .take_one(&[("lo", false), ("hi", true)])
            .ok_or_else(|| form.unsupported())?,
        _ => false,
    };
    let (first, second) = (form.take_type()?, form.take_type()?);
    let sign = |of: Type| match of {
        Type::U32 => Some(false),
        Type::S32 => Some(true),
        _ => None,
    };
    let (Some(a_signed), Some(b_signed)) = (sign(first), sign(second)) else {
        return Err(form.unsupported());
    };
    form.finish(4)?;
    let sources = [
        form.source(1, Type::B32)?,
        form.source(2, Type::B32)?,
        form.source(3, Type::B32)?,
    ];
    let d = form.destination(0, Type::B32)?;
    let width = 32 / parts;
    let field = |own: u32, at: u32, bits: u32, is_signed: bool| {
        let raised = own >> at << (32 - bits);
        match is_signed {
            true => raised as i32 >> (32 - bits),
            false => (raised >> (32 - bits)) as i32,
        }
    };
    Ok(ternary_to(d, sources, move |a: u32, b: u32, c: u32| {
        let b = if is_high { b >> 16 } else { b };
        (0..parts).fold(c as i32, |sum, part| {
            let a = field(a, width * part, width, a_signed);
            let b = field(b, 8 * part, 8, b_signed);
            sum.wrapping_add(a.wrapping_mul(b))
        }) as u32
    }))
}

/// `add.u16x2`, `min.s16x2` and so on.
fn pairs(form: &mut Form<'_>) -> Decoded<Action> {
    let relu = form.take("relu");
    let of = form.take_type()?;
    if relu && of != Type::S16x2 {
        return Err(form.unsupported());
    }
    fn each<T: Value>(form: &Form<'_>, of: Type, f: fn(T, T) -> T, relu: bool) -> Decoded<Action> {
        binary(form, of, move |a: u32, b: u32| {
            let half = |shift: u32| {
                let own = f(
                    T::from_long((a >> shift).into()),
                    T::from_long((b >> shift).into()),
                );
                let word = own.to_word() & 0xFFFF;
                if relu && word & 0x8000 != 0 { 0 } else { word }
            };
            half(16) << 16 | half(0)
        })
    }
    match (form.root(), of) {
        ("add", _) => each::<u16>(form, of, u16::wrapping_add, false),
        ("min", Type::U16x2) => each::<u16>(form, of, Ord::min, false),
        ("min", _) => each::<i16>(form, of, Ord::min, relu),
        ("max", Type::U16x2) => each::<u16>(form, of, Ord::max, false),
        _ => each::<i16>(form, of, Ord::max, relu),
    }
}
