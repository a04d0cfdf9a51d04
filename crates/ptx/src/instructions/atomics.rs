//! `atom`, `red`, `membar`, `fence`.

use std::sync::atomic::{Ordering, fence};

use super::action::Action;
use super::apply::action;
use super::form::{Decoded, Form};
use super::load_store::take_space;
use crate::machine::{Address, Destination, Lanes, Place, Source, Value, Word, in_space};
use crate::number::{Bf16, F16, Float};
use crate::program::Operand;
use crate::types::Type;

pub(super) fn decode_fence(form: &mut Form<'_>) -> Decoded<Action> {
    const NAMES: [&str; 14] = [
        "cta",
        "gl",
        "gpu",
        "sys",
        "cluster",
        "sc",
        "acq_rel",
        "acquire",
        "release",
        "proxy",
        "alias",
        "async",
        "mbarrier_init",
        "sync_restrict",
    ];
    while let Some(next) = form.peek() {
        // `async.global`, `shared::cta` and so on say for which memory.
        let is_space = next.starts_with("async") || next.starts_with("shared") || next == "global";
        if !NAMES.contains(&next) && !is_space && !next.starts_with("sync_restrict::") {
            return Err(form.unsupported());
        }
        form.take(next);
    }
    form.finish(0)?;
    Ok(action(|warp| {
        warp.is_waiting = true;
        fence(Ordering::SeqCst);
    }))
}

/// What an atomic operation has besides its function.
#[derive(Clone, Debug)]
struct Atomic {
    address: Address,
    /// `None` for `red`.
    destinations: Option<Vec<Destination>>,
    b: Vec<Source>,
    c: Source,
}

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    let is_red = form.root() == "red";
    form.take("async");
    let orders = ["relaxed", "acquire", "release", "acq_rel", "sc"].map(|own| (own, ()));
    let scopes = ["cta", "cluster", "gpu", "sys"].map(|own| (own, ()));
    form.take_one(&orders);
    form.take_one(&scopes);
    let space = take_space(form);
    let operation = form.take_any()?;
    // nvcc also writes them here.
    form.take_one(&orders);
    form.take_one(&scopes);
    form.take("noftz");
    if form.peek().is_some_and(|next| next.starts_with("L2::")) {
        form.take_any()?;
    }
    let vector = form
        .take_one(&[("v2", 2), ("v4", 4), ("v8", 8)])
        .unwrap_or(1);
    let of = form.take_type()?;
    let first = usize::from(!is_red);
    let least = first + 2 + usize::from(operation == "cas");
    // A cache policy may follow.
    form.finish(form.len().clamp(least, least + 1))?;
    let wrong = || form.error("an operand has the wrong type");
    let mut destinations = None;
    if !is_red {
        let own = form.elements(0)?.iter().map(|own| match own {
            Operand::Register(register) if register.of.bits() != of.bits() => Err(wrong()),
            _ => form.destination_of(own).ok_or_else(wrong),
        });
        destinations = Some(own.collect::<Decoded<Vec<_>>>()?);
    }
    let b = form.elements(first + 1)?.iter();
    let b = b
        .map(|own| form.source_of(own, of).ok_or_else(wrong))
        .collect::<Decoded<Vec<_>>>()?;
    let fits = destinations.as_ref().is_none_or(|own| own.len() == vector);
    if b.len() != vector || !fits {
        return Err(form.error("an operand has the wrong number of elements"));
    }
    let atomic = Atomic {
        address: form.address(first, space)?,
        destinations,
        b,
        c: match operation {
            "cas" => form.source(first + 2, of)?,
            _ => Source::Constant(0),
        },
    };
    select(form, operation, of, atomic)
}

fn select(form: &Form<'_>, operation: &str, of: Type, atomic: Atomic) -> Decoded<Action> {
    Ok(match (operation, of) {
        ("cas", Type::B16) => update::<u16>(atomic, |old, b, c| if old == b { c } else { old }),
        ("cas", Type::B32 | Type::U32 | Type::S32) => {
            update::<u32>(atomic, |old, b, c| if old == b { c } else { old })
        }
        ("cas", Type::B64 | Type::U64 | Type::S64) => {
            update::<u64>(atomic, |old, b, c| if old == b { c } else { old })
        }
        ("exch", Type::B16) => update::<u16>(atomic, |_, b, _| b),
        ("exch", _) if of.bits() == 32 => update::<u32>(atomic, |_, b, _| b),
        ("exch", _) if of.bits() == 64 => update::<u64>(atomic, |_, b, _| b),
        ("and", Type::B32) => update::<u32>(atomic, |old, b, _| old & b),
        ("or", Type::B32) => update::<u32>(atomic, |old, b, _| old | b),
        ("xor", Type::B32) => update::<u32>(atomic, |old, b, _| old ^ b),
        ("and", Type::B64) => update::<u64>(atomic, |old, b, _| old & b),
        ("or", Type::B64) => update::<u64>(atomic, |old, b, _| old | b),
        ("xor", Type::B64) => update::<u64>(atomic, |old, b, _| old ^ b),
        ("inc", Type::U32) => update::<u32>(atomic, |old, b, _| if old >= b { 0 } else { old + 1 }),
        ("dec", Type::U32) => update::<u32>(atomic, |old, b, _| match old {
            0 => b,
            _ if old > b => b,
            _ => old - 1,
        }),
        ("add", Type::U32 | Type::S32) => update::<u32>(atomic, |old, b, _| old.wrapping_add(b)),
        ("add", Type::U64 | Type::S64) => update::<u64>(atomic, |old, b, _| old.wrapping_add(b)),
        ("min", Type::U32) => update::<u32>(atomic, |old, b, _| old.min(b)),
        ("max", Type::U32) => update::<u32>(atomic, |old, b, _| old.max(b)),
        ("min", Type::S32) => update::<u32>(atomic, |old, b, _| (old as i32).min(b as i32) as u32),
        ("max", Type::S32) => update::<u32>(atomic, |old, b, _| (old as i32).max(b as i32) as u32),
        ("min", Type::U64) => update::<u64>(atomic, |old, b, _| old.min(b)),
        ("max", Type::U64) => update::<u64>(atomic, |old, b, _| old.max(b)),
        ("min", Type::S64) => update::<u64>(atomic, |old, b, _| (old as i64).min(b as i64) as u64),
        ("max", Type::S64) => update::<u64>(atomic, |old, b, _| (old as i64).max(b as i64) as u64),
        ("add", Type::F32) => update_by_place::<u32>(
            atomic,
            |old, b, _| {
                let sum = f32::from_bits(old).flushed() + f32::from_bits(b).flushed();
                sum.flushed().canonical().to_bits()
            },
            // Subnormal numbers are flushed in global memory alone.
            |old, b, _| {
                let sum = f32::from_bits(old) + f32::from_bits(b);
                sum.canonical().to_bits()
            },
        ),
        ("add", Type::F64) => update::<u64>(atomic, |old, b, _| {
            (f64::from_bits(old) + f64::from_bits(b)).to_bits()
        }),
        (_, Type::F16) => update::<u16>(atomic, small::<F16>(form, operation)?),
        (_, Type::Bf16) => update::<u16>(atomic, small::<Bf16>(form, operation)?),
        (_, Type::F16x2) => update::<u32>(atomic, pair(small::<F16>(form, operation)?)),
        (_, Type::Bf16x2) => update::<u32>(atomic, pair(small::<Bf16>(form, operation)?)),
        _ => return Err(form.unsupported()),
    })
}

/// `add`, `min`, `max` of 16 bits.
fn small<T: Float>(
    form: &Form<'_>,
    operation: &str,
) -> Decoded<impl Fn(u16, u16, u16) -> u16 + Copy + Send + Sync + 'static> {
    let f: fn(f64, f64) -> f64 = match operation {
        "add" => |a, b| a + b,
        "min" => f64::min,
        "max" => f64::max,
        _ => return Err(form.unsupported()),
    };
    Ok(move |old: u16, b: u16, _| {
        let of = |bits: u16| T::from_bits64(bits.into()).to_f64();
        T::nearest(f(of(old), of(b))).canonical().to_bits64() as u16
    })
}

fn pair(
    f: impl Fn(u16, u16, u16) -> u16 + Copy + Send + Sync + 'static,
) -> impl Fn(u32, u32, u32) -> u32 + Copy + Send + Sync + 'static {
    move |old, b, _| {
        let low = f(old as u16, b as u16, 0);
        let high = f((old >> 16) as u16, (b >> 16) as u16, 0);
        u32::from(high) << 16 | u32::from(low)
    }
}

/// Updates memory for one lane after the other.
fn update<W: Word + Value>(
    atomic: Atomic,
    f: impl Fn(W, W, W) -> W + Copy + Send + Sync + 'static,
) -> Action {
    update_by_place(atomic, f, f)
}

/// The same with another function for memory that is not global.
fn update_by_place<W: Word + Value>(
    atomic: Atomic,
    global: impl Fn(W, W, W) -> W + Copy + Send + Sync + 'static,
    other: impl Fn(W, W, W) -> W + Copy + Send + Sync + 'static,
) -> Action {
    let Atomic {
        address,
        destinations,
        b,
        c,
    } = atomic;
    let align = (W::SIZE * b.len()) as u32;
    Action::Execute(Box::new(move |warp| {
        warp.is_waiting |= destinations.is_some();
        let addresses = warp.addresses(&address);
        warp.check_aligned(&addresses, align)?;
        let c: Lanes<W> = warp.read(c);
        for (index, source) in b.iter().enumerate() {
            let b: Lanes<W> = warp.read(*source);
            let mut old = b;
            for lane in warp.active() {
                let at = addresses[lane].wrapping_add((index * W::SIZE) as u64);
                let (space, hint) = (address.space, address.hint);
                let (b, c) = (b[lane], c[lane]);
                old[lane] = match in_space(space, at) {
                    Place::Global(_) => {
                        warp.update_lane(space, hint, lane, at, |old| global(old, b, c))?
                    }
                    _ => warp.update_lane(space, hint, lane, at, |old| other(old, b, c))?,
                };
            }
            if let Some(destinations) = &destinations {
                warp.write(destinations[index], old);
            }
        }
        Ok(())
    }))
}
