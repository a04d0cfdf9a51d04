//! Instructions of all lanes of a warp: `shfl`, `vote`, `match`, `redux`, `activemask`, `elect`.

use super::action::{Action, Execute};
use super::apply::action;
use super::form::{Decoded, Form};
use crate::machine::{LANES, Lanes, Source, Warp, lanes};
use crate::types::Type;

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    match form.root() {
        "shfl" => shuffle(form),
        "vote" => vote(form),
        "match" => matching(form),
        "redux" => reduce(form),
        "elect" => elect(form),
        "activemask" => {
            if form.take_type()? != Type::B32 {
                return Err(form.unsupported());
            }
            form.finish(1)?;
            let d = form.destination(0, Type::B32)?;
            Ok(action(move |warp| warp.write(d, [warp.mask; LANES])))
        }
        _ => Err(form.unsupported()),
    }
}

/// With `.sync`, the lanes of the mask in the last operand; else those that are here.
fn converging(
    mask: Option<Source>,
    execute: impl Fn(&mut Warp<'_, '_>) + Send + Sync + 'static,
) -> Action {
    let execute: Execute = Box::new(move |warp| {
        execute(warp);
        Ok(())
    });
    match mask {
        Some(mask) => Action::Converge {
            mask,
            execute: Some(execute),
        },
        None => Action::Execute(execute),
    }
}

fn shuffle(form: &mut Form<'_>) -> Decoded<Action> {
    let is_sync = form.take("sync");
    let mode = form.take_any()?;
    let of = form.take_type()?;
    if of.bits() != 32 {
        return Err(form.unsupported());
    }
    form.finish(if is_sync { 5 } else { 4 })?;
    let (d, p) = form.pair(0)?;
    let wrong = || form.error("operand 1 has the wrong type");
    let d = form.destination_of(d).ok_or_else(wrong)?;
    let p = match p {
        Some(p) => form.predicate_destination_of(p).ok_or_else(wrong)?,
        None => None,
    };
    let a = form.source(1, of)?;
    let (b, c) = (form.source(2, Type::B32)?, form.source(3, Type::B32)?);
    let mask = if is_sync {
        Some(form.source(4, Type::B32)?)
    } else {
        None
    };
    // The lane to read from, of the own lane, the operand, and the lanes of the own segment.
    let from: fn(u32, u32, u32) -> u32 = match mode {
        "up" => |lane, by, _| lane.wrapping_sub(by),
        "down" => |lane, by, _| lane + by,
        "bfly" => |lane, by, _| lane ^ by,
        "idx" => |lane, by, segment| lane & segment | by & !segment,
        _ => return Err(form.unsupported()),
    };
    let is_up = mode == "up";
    Ok(converging(mask, move |warp| {
        let values: Lanes<u32> = warp.read(a);
        let (b, c): (Lanes<u32>, Lanes<u32>) = (warp.read(b), warp.read(c));
        let mut valid = 0;
        let results = lanes(|lane| {
            let (clamp, segment) = (c[lane] & 31, c[lane] >> 8 & 31);
            let own = lane as u32;
            // The last lane of the segment; for `up` the first.
            let limit = own & segment | clamp & !segment;
            let from = from(own, b[lane] & 31, segment);
            let is_valid = match is_up {
                true => from as i32 >= limit as i32,
                false => from <= limit,
            };
            valid |= u32::from(is_valid) << lane;
            if is_valid {
                values[from as usize % LANES]
            } else {
                values[lane]
            }
        });
        warp.write(d, results);
        warp.set_predicate(p, valid);
    }))
}

fn vote(form: &mut Form<'_>) -> Decoded<Action> {
    let is_sync = form.take("sync");
    let mode = form.take_any()?;
    let of = form.take_type()?;
    form.finish(if is_sync { 3 } else { 2 })?;
    let a = form.predicate(1)?;
    let mask = if is_sync {
        Some(form.source(2, Type::B32)?)
    } else {
        None
    };
    if (mode, of) == ("ballot", Type::B32) {
        let d = form.destination(0, of)?;
        return Ok(converging(mask, move |warp| {
            let bits = warp.predicate(a) & warp.mask;
            warp.write(d, [bits; LANES]);
        }));
    }
    // Of the bits and the mask.
    let f: fn(u32, u32) -> bool = match (mode, of) {
        ("all", Type::Pred) => |bits, mask| bits == mask,
        ("any", Type::Pred) => |bits, _| bits != 0,
        ("uni", Type::Pred) => |bits, mask| bits == mask || bits == 0,
        _ => return Err(form.unsupported()),
    };
    let p = form.predicate_destination(0)?;
    Ok(converging(mask, move |warp| {
        let bits = warp.predicate(a) & warp.mask;
        let truth = f(bits, warp.mask);
        warp.set_predicate(p, u32::from(truth).wrapping_neg());
    }))
}

/// `match`: the lanes that have the same value.
fn matching(form: &mut Form<'_>) -> Decoded<Action> {
    let is_all = form
        .take_one(&[("any", false), ("all", true)])
        .ok_or_else(|| form.unsupported())?;
    if !form.take("sync") {
        return Err(form.unsupported());
    }
    let of = form.take_type()?;
    if !matches!(of, Type::B32 | Type::B64) {
        return Err(form.unsupported());
    }
    form.finish(3)?;
    let (d, p) = form.pair(0)?;
    let wrong = || form.error("operand 1 has the wrong type");
    let d = form.destination_of(d).ok_or_else(wrong)?;
    let p = match p {
        Some(p) if is_all => form.predicate_destination_of(p).ok_or_else(wrong)?,
        Some(_) => return Err(wrong()),
        None => None,
    };
    let a = form.source(1, of)?;
    let mask = form.source(2, Type::B32)?;
    Ok(converging(Some(mask), move |warp| {
        let values: Lanes<u64> = warp.read(a);
        let active = warp.mask;
        let same = |lane: usize| {
            let equal = (0..LANES).filter(|other| values[*other] == values[lane]);
            equal.fold(0u32, |all, other| all | 1 << other) & active
        };
        let masks = lanes(same);
        if is_all {
            let first = active.trailing_zeros() as usize % LANES;
            let truth = masks[first] == active;
            warp.write(d, [if truth { active } else { 0 }; LANES]);
            warp.set_predicate(p, u32::from(truth).wrapping_neg());
        } else {
            warp.write(d, masks);
        }
    }))
}

fn reduce(form: &mut Form<'_>) -> Decoded<Action> {
    if !form.take("sync") {
        return Err(form.unsupported());
    }
    let operation = form.take_any()?;
    let by_magnitude = form.take("abs");
    let keeps_nan = form.take("NaN");
    let of = form.take_type()?;
    form.finish(3)?;
    let (d, a) = (form.destination(0, of)?, form.source(1, of)?);
    let mask = form.source(2, Type::B32)?;
    if of == Type::F32 {
        let is_max = match operation {
            "min" => false,
            "max" => true,
            _ => return Err(form.unsupported()),
        };
        let pick = move |a: f32, b: f32| match () {
            () if a.is_nan() || b.is_nan() => match () {
                () if keeps_nan || a.is_nan() && b.is_nan() => f32::from_bits(0x7FFF_FFFF),
                () if a.is_nan() => b,
                () => a,
            },
            () if is_max == (a.total_cmp(&b).is_gt()) => a,
            () => b,
        };
        return Ok(converging(Some(mask), move |warp| {
            let values: Lanes<f32> = warp.read(a);
            let values = values.map(|own| if by_magnitude { own.abs() } else { own });
            let result = warp.active().map(|lane| values[lane]).reduce(pick);
            warp.write(d, [result.unwrap_or(0.0); LANES]);
        }));
    }
    if by_magnitude || keeps_nan {
        return Err(form.unsupported());
    }
    let f: fn(u32, u32) -> u32 = match (operation, of) {
        ("add", Type::U32 | Type::S32) => u32::wrapping_add,
        ("min", Type::U32) => Ord::min,
        ("max", Type::U32) => Ord::max,
        ("min", Type::S32) => |a, b| (a as i32).min(b as i32) as u32,
        ("max", Type::S32) => |a, b| (a as i32).max(b as i32) as u32,
        ("and", Type::B32) => |a, b| a & b,
        ("or", Type::B32) => |a, b| a | b,
        ("xor", Type::B32) => |a, b| a ^ b,
        _ => return Err(form.unsupported()),
    };
    Ok(converging(Some(mask), move |warp| {
        let values: Lanes<u32> = warp.read(a);
        let result = warp.active().map(|lane| values[lane]).reduce(f);
        warp.write(d, [result.unwrap_or(0); LANES]);
    }))
}

/// `elect.sync d|p, mask`: one of the lanes.
fn elect(form: &mut Form<'_>) -> Decoded<Action> {
    if !form.take("sync") {
        return Err(form.unsupported());
    }
    form.finish(2)?;
    let (d, p) = form.pair(0)?;
    let wrong = || form.error("operand 1 has the wrong type");
    let d = form.destination_of(d).ok_or_else(wrong)?;
    let p = p
        .and_then(|own| form.predicate_destination_of(own))
        .ok_or_else(wrong)?;
    let mask = form.source(1, Type::B32)?;
    Ok(converging(Some(mask), move |warp| {
        let first = warp.mask.trailing_zeros();
        warp.write(d, [first; LANES]);
        warp.set_predicate(p, 1 << first);
    }))
}
