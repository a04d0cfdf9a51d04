//! Bit fields and bit counts: `popc`, `clz`, `bfind`, `fns`, `brev`, `bfe`, `bfi`, `bmsk`, `szext`, `lop3`, `shf`, `prmt`, `cnot`.

use super::action::Action;
use super::apply::{action, binary, binary_to, ternary_to, unary, unary_to};
use super::form::{Decoded, Form};
use crate::machine::{LANES, Source, lanes};
use crate::program::Operand;
use crate::types::Type;

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    match form.root() {
        "popc" | "clz" => count(form),
        "bfind" => find_bit(form),
        "fns" => find_nth(form),
        "brev" => match form.take_type()? {
            of @ Type::B32 => unary(form, of, u32::reverse_bits),
            of @ Type::B64 => unary(form, of, u64::reverse_bits),
            _ => Err(form.unsupported()),
        },
        "cnot" => match form.take_type()? {
            of @ Type::B16 => unary(form, of, |a: u16| u16::from(a == 0)),
            of @ Type::B32 => unary(form, of, |a: u32| u32::from(a == 0)),
            of @ Type::B64 => unary(form, of, |a: u64| u64::from(a == 0)),
            _ => Err(form.unsupported()),
        },
        "bfe" => extract(form),
        "bfi" => insert(form),
        "bmsk" => mask(form),
        "szext" => extend(form),
        "lop3" => lookup(form),
        "shf" => funnel(form),
        "prmt" => permute(form),
        _ => Err(form.unsupported()),
    }
}

fn count(form: &mut Form<'_>) -> Decoded<Action> {
    let of = form.take_type()?;
    form.finish(2)?;
    let (d, a) = (form.destination(0, Type::U32)?, form.source(1, of)?);
    Ok(match (form.root(), of) {
        ("popc", Type::B32) => unary_to(d, a, u32::count_ones),
        ("popc", Type::B64) => unary_to(d, a, u64::count_ones),
        ("clz", Type::B32) => unary_to(d, a, u32::leading_zeros),
        ("clz", Type::B64) => unary_to(d, a, u64::leading_zeros),
        _ => return Err(form.unsupported()),
    })
}

/// The highest bit that differs from the sign; all bits are set if there is none.
fn find_bit(form: &mut Form<'_>) -> Decoded<Action> {
    let is_amount = form.take("shiftamt");
    let of = form.take_type()?;
    form.finish(2)?;
    let (d, a) = (form.destination(0, Type::U32)?, form.source(1, of)?);
    let (bits, is_signed) = match of {
        Type::U32 => (32, false),
        Type::S32 => (32, true),
        Type::U64 => (64, false),
        Type::S64 => (64, true),
        _ => return Err(form.unsupported()),
    };
    Ok(unary_to(d, a, move |a: u64| {
        let top = 1u64 << (bits - 1);
        let low = a & (top | (top - 1));
        let own = if is_signed && low & top != 0 {
            !low & (top - 1)
        } else {
            low
        };
        match own {
            0 => u32::MAX,
            _ if is_amount => bits - 1 - own.ilog2(),
            _ => own.ilog2(),
        }
    }))
}

/// The position of the n-th set bit from a base.
fn find_nth(form: &mut Form<'_>) -> Decoded<Action> {
    let of = form.take_type()?;
    if of != Type::B32 {
        return Err(form.unsupported());
    }
    form.finish(4)?;
    let d = form.destination(0, of)?;
    let sources = [
        form.source(1, of)?,
        form.source(2, Type::U32)?,
        form.source(3, Type::S32)?,
    ];
    Ok(ternary_to(
        d,
        sources,
        |mask: u32, base: u32, offset: i32| {
            let set = |at: &u32| mask >> at & 1 != 0;
            let skip = offset.unsigned_abs().saturating_sub(1) as usize;
            match offset {
                _ if base > 31 => u32::MAX,
                0 if set(&base) => base,
                0 => u32::MAX,
                1.. => (base..32).filter(set).nth(skip).unwrap_or(u32::MAX),
                _ => (0..=base).rev().filter(set).nth(skip).unwrap_or(u32::MAX),
            }
        },
    ))
}

/// A position or length of a field. The manual allows 0 to 255. GPUs take the low 8 bits of others in the instructions for
/// 32 bits. For those of 64 bits, which the compiler composes of others, all bits count.
fn place(bits: u32, value: u32) -> u32 {
    if bits == 32 { value & 0xFF } else { value }
}

fn extract(form: &mut Form<'_>) -> Decoded<Action> {
    let of = form.take_type()?;
    form.finish(4)?;
    let d = form.destination(0, of)?;
    let sources = [
        form.source(1, of)?,
        form.source(2, Type::U32)?,
        form.source(3, Type::U32)?,
    ];
    let (bits, is_signed) = (of.bits(), of.is_signed());
    let field = move |a: u64, at: u32, len: u32| {
        let (at, len) = (place(bits, at), place(bits, len));
        let own = if at < bits { a >> at } else { 0 };
        let kept = if len >= 64 {
            own
        } else {
            own & ((1 << len) - 1)
        };
        // The sign is the field's last bit, or the operand's if the field reaches beyond it.
        let last = at.saturating_add(len).saturating_sub(1).min(bits - 1);
        let is_negative = is_signed && len > 0 && a >> last & 1 != 0;
        let covered = len.min(bits.saturating_sub(at));
        let above = if covered >= 64 {
            0
        } else {
            u64::MAX << covered
        };
        if is_negative { kept | above } else { kept }
    };
    Ok(match bits {
        32 => ternary_to(d, sources, move |a: u32, b: u32, c: u32| {
            field(a.into(), b, c) as u32
        }),
        64 => ternary_to(d, sources, move |a: u64, b: u32, c: u32| field(a, b, c)),
        _ => return Err(form.unsupported()),
    })
}

fn insert(form: &mut Form<'_>) -> Decoded<Action> {
    let of = form.take_type()?;
    form.finish(5)?;
    let d = form.destination(0, of)?;
    let (a, b) = (form.source(1, of)?, form.source(2, of)?);
    let (at, len) = (form.source(3, Type::U32)?, form.source(4, Type::U32)?);
    let bits = of.bits();
    if !matches!(of, Type::B32 | Type::B64) {
        return Err(form.unsupported());
    }
    Ok(action(move |warp| {
        let (a, b): ([u64; 32], [u64; 32]) = (warp.read(a), warp.read(b));
        let (at, len): ([u32; 32], [u32; 32]) = (warp.read(at), warp.read(len));
        let values = lanes(|lane| {
            let (at, len) = (place(bits, at[lane]), place(bits, len[lane]));
            if at >= bits {
                return b[lane];
            }
            let field = if len >= 64 { u64::MAX } else { (1 << len) - 1 };
            let mask = field << at;
            b[lane] & !mask | a[lane] << at & mask
        });
        warp.write(d, values);
    }))
}

/// `bmsk`: a run of ones.
fn mask(form: &mut Form<'_>) -> Decoded<Action> {
    let clamps = match form.take_any()? {
        "clamp" => true,
        "wrap" => false,
        _ => return Err(form.unsupported()),
    };
    let of = form.take_type()?;
    if of != Type::B32 {
        return Err(form.unsupported());
    }
    binary(form, of, move |at: u32, len: u32| {
        let (at, len) = if clamps {
            (at.min(32), len.min(32))
        } else {
            (at & 31, len & 31)
        };
        let ones = (1u64 << len) - 1;
        (ones << at) as u32
    })
}

/// `szext`: extends a number of few bits.
fn extend(form: &mut Form<'_>) -> Decoded<Action> {
    let clamps = match form.take_any()? {
        "clamp" => true,
        "wrap" => false,
        _ => return Err(form.unsupported()),
    };
    let of = form.take_type()?;
    form.finish(3)?;
    let d = form.destination(0, of)?;
    let sources = [form.source(1, of)?, form.source(2, Type::U32)?];
    let is_signed = of.is_signed();
    if of.bits() != 32 {
        return Err(form.unsupported());
    }
    Ok(binary_to(d, sources, move |a: u32, len: u32| {
        let len = if clamps { len.min(32) } else { len & 31 };
        match len {
            0 => 0,
            _ if is_signed => ((a << (32 - len)) as i32 >> (32 - len)) as u32,
            _ => a << (32 - len) >> (32 - len),
        }
    }))
}

/// `lop3`: any function of three bits, by its table; with `.and` and `.or` also a predicate.
fn lookup(form: &mut Form<'_>) -> Decoded<Action> {
    let combine = form.take_one(&[("and", true), ("or", false)]);
    let of = form.take_type()?;
    if of != Type::B32 {
        return Err(form.unsupported());
    }
    let Operand::Integer(table) = form.operand(4)? else {
        return Err(form.error("the table is not a constant"));
    };
    let table = table.bits as u32;
    let f = move |a: u32, b: u32, c: u32| {
        let mut found = 0;
        for index in 0..8 {
            if table >> index & 1 != 0 {
                let pick = |own: u32, bit: u32| if index & bit != 0 { own } else { !own };
                found |= pick(a, 4) & pick(b, 2) & pick(c, 1);
            }
        }
        found
    };
    let sources = [
        form.source(1, of)?,
        form.source(2, of)?,
        form.source(3, of)?,
    ];
    let Some(is_and) = combine else {
        form.finish(5)?;
        return Ok(ternary_to(form.destination(0, of)?, sources, f));
    };
    form.finish(6)?;
    let (d, p) = form.pair(0)?;
    let wrong = || form.error("operand 1 has the wrong type");
    let d = form.destination_of(d).ok_or_else(wrong)?;
    let p = p
        .and_then(|own| form.predicate_destination_of(own))
        .ok_or_else(wrong)?;
    let q = form.predicate(5)?;
    Ok(action(move |warp| {
        let [a, b, c]: [[u32; 32]; 3] = sources.map(|own| warp.read(own));
        let values = lanes(|lane| f(a[lane], b[lane], c[lane]));
        let ones = (0..LANES).fold(0, |all, lane| all | u32::from(values[lane] != 0) << lane);
        let q = warp.predicate(q);
        warp.set_predicate(p, if is_and { ones & q } else { ones | q });
        warp.write(d, values);
    }))
}

/// `shf`: 32 of 64 bits.
fn funnel(form: &mut Form<'_>) -> Decoded<Action> {
    let is_left = match form.take_any()? {
        "l" => true,
        "r" => false,
        _ => return Err(form.unsupported()),
    };
    let clamps = match form.take_any()? {
        "clamp" => true,
        "wrap" => false,
        _ => return Err(form.unsupported()),
    };
    let of = form.take_type()?;
    if of != Type::B32 {
        return Err(form.unsupported());
    }
    form.finish(4)?;
    let d = form.destination(0, of)?;
    let sources = [
        form.source(1, of)?,
        form.source(2, of)?,
        form.source(3, Type::U32)?,
    ];
    Ok(ternary_to(
        d,
        sources,
        move |low: u32, high: u32, by: u32| {
            let by = if clamps { by.min(32) } else { by & 31 };
            let both = u64::from(high) << 32 | u64::from(low);
            if is_left {
                (both << by >> 32) as u32
            } else {
                (both >> by) as u32
            }
        },
    ))
}

/// `prmt`: bytes of two words.
fn permute(form: &mut Form<'_>) -> Decoded<Action> {
    let of = form.take_type()?;
    if of != Type::B32 {
        return Err(form.unsupported());
    }
    // The mode follows the type.
    let mode = form.take_one(&[
        ("f4e", 0),
        ("b4e", 1),
        ("rc8", 2),
        ("ecl", 3),
        ("ecr", 4),
        ("rc16", 5),
    ]);
    form.finish(4)?;
    let d = form.destination(0, of)?;
    let sources: [Source; 3] = [
        form.source(1, of)?,
        form.source(2, of)?,
        form.source(3, of)?,
    ];
    Ok(ternary_to(d, sources, move |a: u32, b: u32, c: u32| {
        let both = u64::from(b) << 32 | u64::from(a);
        let byte = |at: u32| (both >> (8 * (at & 7)) & 0xFF) as u32;
        let n = c & 3;
        let pick = |position: u32| match mode {
            None => {
                let selector = c >> (4 * position);
                let own = byte(selector);
                // The highest bit of a selector asks for the sign.
                if selector & 8 == 0 {
                    own
                } else {
                    (own >> 7) * 0xFF
                }
            }
            Some(0) => byte(n + position),
            Some(1) => byte((n + 8 - position) & 7),
            Some(2) => byte(n),
            Some(3) => byte(position.max(n)),
            Some(4) => byte(position.min(n)),
            Some(_) => byte((n & 1) * 2 + (position & 1)),
        };
        (0..4).fold(0, |all, position| all | pick(position) << (8 * position))
    }))
}
