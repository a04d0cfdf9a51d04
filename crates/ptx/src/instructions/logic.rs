//! Bitwise logic and shifts: `and`, `or`, `xor`, `not`, `shl`, `shr`.

use super::action::Action;
use super::apply::{action, binary, binary_to, unary};
use super::form::{Decoded, Form};
use crate::types::Type;

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    let root = form.root();
    let of = form.take_type()?;
    if of == Type::Pred {
        return predicate(form);
    }
    if matches!(root, "shl" | "shr") {
        return shift(form, of);
    }
    match of {
        Type::B16 | Type::B32 => match root {
            "and" => binary(form, of, |a: u32, b| a & b),
            "or" => binary(form, of, |a: u32, b| a | b),
            "xor" => binary(form, of, |a: u32, b| a ^ b),
            _ => unary(form, of, |a: u32| !a),
        },
        Type::B64 => match root {
            "and" => binary(form, of, |a: u64, b| a & b),
            "or" => binary(form, of, |a: u64, b| a | b),
            "xor" => binary(form, of, |a: u64, b| a ^ b),
            _ => unary(form, of, |a: u64| !a),
        },
        _ => Err(form.unsupported()),
    }
}

/// On predicates, all lanes at once.
fn predicate(form: &Form<'_>) -> Decoded<Action> {
    let f: fn(u32, u32) -> u32 = match form.root() {
        "and" => |a, b| a & b,
        "or" => |a, b| a | b,
        "xor" => |a, b| a ^ b,
        "not" => |a, _| !a,
        _ => return Err(form.unsupported()),
    };
    let is_unary = form.root() == "not";
    form.finish(if is_unary { 2 } else { 3 })?;
    let d = form.predicate_destination(0)?;
    let a = form.predicate(1)?;
    let b = form.predicate(if is_unary { 1 } else { 2 })?;
    Ok(action(move |warp| {
        let bits = f(warp.predicate(a), warp.predicate(b));
        warp.set_predicate(d, bits);
    }))
}

/// Amounts beyond the width shift everything out.
fn shift(form: &Form<'_>, of: Type) -> Decoded<Action> {
    form.finish(3)?;
    let sources = [form.source(1, of)?, form.source(2, Type::U32)?];
    let d = form.destination(0, of)?;
    Ok(match (form.root(), of) {
        ("shl", Type::B16) => binary_to(d, sources, |a: u16, b: u32| a.checked_shl(b).unwrap_or(0)),
        ("shl", Type::B32) => binary_to(d, sources, |a: u32, b: u32| a.checked_shl(b).unwrap_or(0)),
        ("shl", Type::B64) => binary_to(d, sources, |a: u64, b: u32| a.checked_shl(b).unwrap_or(0)),
        ("shr", Type::B16 | Type::U16) => {
            binary_to(d, sources, |a: u16, b: u32| a.checked_shr(b).unwrap_or(0))
        }
        ("shr", Type::B32 | Type::U32) => {
            binary_to(d, sources, |a: u32, b: u32| a.checked_shr(b).unwrap_or(0))
        }
        ("shr", Type::B64 | Type::U64) => {
            binary_to(d, sources, |a: u64, b: u32| a.checked_shr(b).unwrap_or(0))
        }
        ("shr", Type::S16) => binary_to(d, sources, |a: i16, b: u32| a >> b.min(15)),
        ("shr", Type::S32) => binary_to(d, sources, |a: i32, b: u32| a >> b.min(31)),
        ("shr", Type::S64) => binary_to(d, sources, |a: i64, b: u32| a >> b.min(63)),
        _ => return Err(form.unsupported()),
    })
}
