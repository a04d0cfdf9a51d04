//! `mov`: values, addresses, packing and unpacking of vectors.

use super::action::Action;
use super::apply::{action, unary_to};
use super::form::{Decoded, Form};
use crate::machine::{Destination, LOCAL_WINDOW, SHARED_WINDOW, Source, lanes};
use crate::program::{Operand, Symbol};
use crate::types::Type;

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    let of = form.take_type()?;
    form.finish(2)?;
    if of == Type::Pred {
        let (d, a) = (form.predicate_destination(0)?, form.predicate(1)?);
        return Ok(action(move |warp| {
            let bits = warp.predicate(a);
            warp.set_predicate(d, bits);
        }));
    }
    match (form.operand(0)?, form.operand(1)?) {
        (_, Operand::Vector(parts)) => pack(form, of, parts),
        (Operand::Vector(parts), _) => unpack(form, of, parts),
        _ => scalar(form, of),
    }
}

fn scalar(form: &Form<'_>, of: Type) -> Decoded<Action> {
    let d = form.destination(0, of)?;
    let a = match form.operand(1)? {
        // `%clock64` and the like may be read into 32 bits.
        Operand::Special(special) => Source::Special(*special),
        _ => form.source(1, of)?,
    };
    match of.bits() {
        16 | 32 => Ok(unary_to(d, a, |a: u32| a)),
        64 => Ok(unary_to(d, a, |a: u64| a)),
        128 => wide(form),
        _ => Err(form.unsupported()),
    }
}

/// A register of 128 bits is two of 64.
fn wide(form: &Form<'_>) -> Decoded<Action> {
    match (
        form.destination(0, Type::B128)?,
        form.source(1, Type::B128)?,
    ) {
        (Destination::Long(d), Source::Long(a)) => Ok(action(move |warp| {
            let low: [u64; 32] = warp.read(Source::Long(a));
            let high: [u64; 32] = warp.read(Source::Long(a + 1));
            warp.write(Destination::Long(d), low);
            warp.write(Destination::Long(d + 1), high);
        })),
        _ => Err(form.unsupported()),
    }
}

/// The type of one of several parts.
fn part_of(form: &Form<'_>, of: Type, parts: usize) -> Decoded<Type> {
    match (of.bits(), parts) {
        (16, 2) | (32, 4) => Ok(Type::B8),
        (32, 2) | (64, 4) => Ok(Type::B16),
        (64, 2) | (128, 4) => Ok(Type::B32),
        (128, 2) => Ok(Type::B64),
        _ => Err(form.unsupported()),
    }
}

/// `mov.b32 d, {a, b}`
fn pack(form: &Form<'_>, of: Type, parts: &[Operand]) -> Decoded<Action> {
    let part = part_of(form, of, parts.len())?;
    let wrong = || form.error("operand 2 has the wrong type");
    let sources = parts
        .iter()
        .map(|own| form.source_of(own, part).ok_or_else(wrong));
    let sources = sources.collect::<Decoded<Vec<_>>>()?;
    let d = form.destination(0, of)?;
    let bits = part.bits();
    let mask = u64::MAX >> (64 - bits);
    Ok(action(move |warp| {
        let mut halves = [[0u64; 32]; 2];
        for (index, source) in sources.iter().enumerate() {
            let values: [u64; 32] = warp.read(*source);
            let at = index as u32 * bits;
            for lane in 0..32 {
                halves[at as usize / 64][lane] |= (values[lane] & mask) << (at % 64);
            }
        }
        warp.write(d, halves[0]);
        if let (Destination::Long(slot), 128) = (d, of.bits()) {
            warp.write(Destination::Long(slot + 1), halves[1]);
        }
    }))
}

/// `mov.b32 {d, e}, a`
fn unpack(form: &Form<'_>, of: Type, parts: &[Operand]) -> Decoded<Action> {
    let part = part_of(form, of, parts.len())?;
    let wrong = || form.error("operand 1 has the wrong type");
    let destinations = parts.iter().map(|own| match own {
        Operand::Register(register) if register.of.bits() != part.bits() => Err(wrong()),
        _ => form.destination_of(own).ok_or_else(wrong),
    });
    let destinations = destinations.collect::<Decoded<Vec<_>>>()?;
    let a = form.source(1, of)?;
    let bits = part.bits();
    let mask = u64::MAX >> (64 - bits);
    Ok(action(move |warp| {
        let mut halves = [warp.read::<u64>(a), [0; 32]];
        if let (Source::Long(slot), 128) = (a, of.bits()) {
            halves[1] = warp.read(Source::Long(slot + 1));
        }
        for (index, d) in destinations.iter().enumerate() {
            let at = index as u32 * bits;
            let values = lanes(|lane| halves[at as usize / 64][lane] >> (at % 64) & mask);
            warp.write(*d, values);
        }
    }))
}

/// What turns an address of a symbol into a generic one.
pub(super) fn window_of(symbol: Symbol) -> u64 {
    match symbol {
        Symbol::Shared(_) => SHARED_WINDOW,
        Symbol::Frame(..) => LOCAL_WINDOW,
        _ => 0,
    }
}
