//! Extended precision: `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`.

use super::action::Action;
use super::apply::action;
use super::form::{Decoded, Form};
use crate::machine::{Lanes, Row, Source, lanes};
use crate::types::Type;

/// Whether the instruction reads or writes the carry flag.
pub(super) fn uses_carry(form: &Form<'_>) -> bool {
    matches!(form.root(), "addc" | "subc" | "madc") || form.modifiers().contains(&"cc")
}

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    let root = form.root();
    let reads = matches!(root, "addc" | "subc" | "madc");
    let mut is_high = None;
    if root.starts_with("mad") {
        is_high = form.take_one(&[("lo", false), ("hi", true)]);
        if is_high.is_none() {
            return Err(form.unsupported());
        }
    }
    let writes = form.take("cc");
    let of = form.take_type()?;
    let is_subtraction = root.starts_with("sub");
    match of {
        Type::U32 | Type::S32 | Type::B32 => {
            chain::<u32>(form, of, is_high, is_subtraction, reads, writes)
        }
        Type::U64 | Type::S64 | Type::B64 => {
            chain::<u64>(form, of, is_high, is_subtraction, reads, writes)
        }
        _ => Err(form.unsupported()),
    }
}

/// `d = a + b + carry`, where `a` may be half of a product.
fn chain<R: Row>(
    form: &Form<'_>,
    of: Type,
    is_high: Option<bool>,
    is_subtraction: bool,
    reads: bool,
    writes: bool,
) -> Decoded<Action> {
    form.finish(if is_high.is_some() { 4 } else { 3 })?;
    let d = form.destination(0, of)?;
    let mut sources: Vec<Source> = Vec::new();
    for index in 1..form.len() {
        sources.push(form.source(index, of)?);
    }
    let bits = of.bits();
    let is_signed = of.is_signed();
    let mask = if bits == 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    };
    let extend = move |own: u64| match (is_signed, bits) {
        (true, 32) => i128::from(own as u32 as i32),
        (true, _) => i128::from(own as i64),
        (false, _) => i128::from(own & mask),
    };
    Ok(action(move |warp| {
        let values: Vec<Lanes<R>> = sources.iter().map(|own| warp.read::<R>(*own)).collect();
        let value = |index: usize, lane: usize| values[index][lane].to_long();
        let old = *warp.carry;
        let mut carries = 0;
        let results = lanes(|lane| {
            let (a, b) = match is_high {
                None => (value(0, lane), value(1, lane)),
                Some(is_high) => {
                    let product = match (is_signed, bits) {
                        (false, 64) => u128::from(value(0, lane)) * u128::from(value(1, lane)),
                        _ => (extend(value(0, lane)) * extend(value(1, lane))) as u128,
                    };
                    let part = if is_high { product >> bits } else { product };
                    (part as u64 & mask, value(2, lane))
                }
            };
            // As the hardware does: a difference is the sum with the complement, whose carry says that nothing is
            // borrowed. Code that nvcc writes depends on it, where it reads the flag of `sub.cc` with `addc`.
            let carry = match reads {
                true => u128::from(old >> lane & 1),
                false => u128::from(is_subtraction),
            };
            let b = if is_subtraction { !b } else { b };
            let result = u128::from(a & mask) + u128::from(b & mask) + carry;
            carries |= u32::from(result >> bits & 1 != 0) << lane;
            R::from_long(result as u64 & mask)
        });
        if writes {
            *warp.carry = old & !warp.mask | carries & warp.mask;
        }
        warp.write(d, results);
    }))
}
