//! Comparisons and selection: `setp`, `set`, `selp`, `slct`.

use super::action::Action;
use super::apply::{action, ternary_to};
use super::arithmetic::with_integer;
use super::form::{Decoded, Form};
use crate::machine::{Destination, LANES, Lanes, Predicate, Row, Source, Value, Warp, lanes};
use crate::number::{Bf16, F16, Float};
use crate::program::Operand;
use crate::types::Type;

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    match form.root() {
        "selp" => selp(form),
        "slct" => slct(form),
        _ => comparison(form),
    }
}

/// How the result of a comparison is combined with a predicate.
type Combine = fn(u32, u32) -> u32;

/// What a comparison has besides its operands.
#[derive(Clone, Copy)]
struct Rest {
    output: Output,
    combine: Option<(Combine, Predicate)>,
    flushes: bool,
}

/// Where the result goes.
#[derive(Clone, Copy)]
enum Output {
    /// The result, and with its complement combined likewise.
    Predicates(Option<u32>, Option<u32>),
    /// For pairs: the result of the lower and of the upper half.
    Halves(Option<u32>, Option<u32>),
    /// `set`: all bits, or the number one.
    Register(Destination, u64),
    /// The same for each half.
    Pair(Destination, u64),
}

fn comparison(form: &mut Form<'_>) -> Decoded<Action> {
    let is_set = form.root() == "set";
    let name = form.take_any()?;
    let combines: [(&str, Combine); 3] = [
        ("and", |a, b| a & b),
        ("or", |a, b| a | b),
        ("xor", |a, b| a ^ b),
    ];
    let combine = form.take_one(&combines);
    let flushes = form.take("ftz");
    let to = if is_set {
        Some(form.take_type()?)
    } else {
        None
    };
    let of = form.take_type()?;
    form.finish(if combine.is_some() { 4 } else { 3 })?;
    let combine = match combine {
        Some(combine) => Some((combine, form.predicate(3)?)),
        None => None,
    };
    let is_pair = matches!(of, Type::F16x2 | Type::Bf16x2);
    let output = match to {
        Some(to) => set_output(form, to, is_pair)?,
        None => {
            let (p, q) = form.pair(0)?;
            let wrong = || form.error("operand 1 has the wrong type");
            let find = |own: &Operand| form.predicate_destination_of(own).ok_or_else(wrong);
            let p = find(p)?;
            let q = q.map(find).transpose()?.flatten();
            if is_pair {
                Output::Halves(p, q)
            } else {
                Output::Predicates(p, q)
            }
        }
    };
    let rest = Rest {
        output,
        combine,
        flushes,
    };
    let of = match of {
        Type::B16 => Type::U16,
        Type::B32 => Type::U32,
        Type::B64 => Type::U64,
        _ => of,
    };
    match of {
        Type::F32 => floats::<f32>(form, name, of, rest),
        Type::F64 => floats::<f64>(form, name, of, rest),
        Type::F16 | Type::F16x2 => floats::<F16>(form, name, of, rest),
        Type::Bf16 | Type::Bf16x2 => floats::<Bf16>(form, name, of, rest),
        _ => with_integer!(form, of, integers(form, name, of, rest)),
    }
}

/// What `set` writes where the comparison holds.
fn set_output(form: &Form<'_>, to: Type, is_pair: bool) -> Decoded<Output> {
    let d = form.destination(0, to)?;
    Ok(match (to, is_pair) {
        (Type::U32 | Type::S32, false) => Output::Register(d, 0xFFFF_FFFF),
        (Type::U16 | Type::S16, false) => Output::Register(d, 0xFFFF),
        (Type::F32, false) => Output::Register(d, 1f32.to_bits().into()),
        (Type::F16, false) => Output::Register(d, 0x3C00),
        (Type::Bf16, false) => Output::Register(d, 0x3F80),
        (Type::U32 | Type::S32, true) => Output::Pair(d, 0xFFFF),
        (Type::F16x2, true) => Output::Pair(d, 0x3C00),
        (Type::Bf16x2, true) => Output::Pair(d, 0x3F80),
        _ => return Err(form.unsupported()),
    })
}

impl Rest {
    fn combined(self, warp: &Warp<'_, '_>, bits: u32) -> u32 {
        match self.combine {
            Some((combine, with)) => combine(bits, warp.predicate(with)),
            None => bits,
        }
    }

    /// Writes the result; `upper` is that of upper halves.
    fn write(self, warp: &mut Warp<'_, '_>, bits: u32, upper: u32) {
        let own = self.combined(warp, bits);
        match self.output {
            Output::Predicates(p, q) => {
                let complement = self.combined(warp, !bits);
                warp.set_predicate(p, own);
                warp.set_predicate(q, complement);
            }
            Output::Halves(p, q) => {
                let upper = self.combined(warp, upper);
                warp.set_predicate(p, own);
                warp.set_predicate(q, upper);
            }
            Output::Register(d, truth) => {
                warp.write(
                    d,
                    lanes(|lane| if own >> lane & 1 != 0 { truth } else { 0 }),
                );
            }
            Output::Pair(d, truth) => {
                let upper = self.combined(warp, upper);
                let half = |bits: u32, lane: usize| if bits >> lane & 1 != 0 { truth } else { 0 };
                warp.write(d, lanes(|lane| half(own, lane) | half(upper, lane) << 16));
            }
        }
    }
}

fn integers<T: Value + Ord>(form: &Form<'_>, name: &str, of: Type, rest: Rest) -> Decoded<Action> {
    match name {
        "eq" => comparing::<T>(form, of, rest, |a, b| a == b),
        "ne" => comparing::<T>(form, of, rest, |a, b| a != b),
        "lt" | "lo" => comparing::<T>(form, of, rest, |a, b| a < b),
        "le" | "ls" => comparing::<T>(form, of, rest, |a, b| a <= b),
        "gt" | "hi" => comparing::<T>(form, of, rest, |a, b| a > b),
        "ge" | "hs" => comparing::<T>(form, of, rest, |a, b| a >= b),
        _ => Err(form.unsupported()),
    }
}

/// Comparisons whose name ends in `u` also hold where a number is NaN.
fn floats<T: Float + Value>(form: &Form<'_>, name: &str, of: Type, rest: Rest) -> Decoded<Action> {
    let flushes = rest.flushes;
    macro_rules! compare {
        ($f:expr) => {{
            let f: fn(f64, f64) -> bool = $f;
            float_comparing::<T>(form, of, rest, move |a: T, b: T| {
                let (a, b) = if flushes {
                    (a.flushed(), b.flushed())
                } else {
                    (a, b)
                };
                f(a.to_f64(), b.to_f64())
            })
        }};
    }
    match name {
        "eq" => compare!(|a, b| a == b),
        "ne" => compare!(|a, b| a != b && !a.is_nan() && !b.is_nan()),
        "lt" => compare!(|a, b| a < b),
        "le" => compare!(|a, b| a <= b),
        "gt" => compare!(|a, b| a > b),
        "ge" => compare!(|a, b| a >= b),
        "equ" => compare!(|a, b| a == b || a.is_nan() || b.is_nan()),
        "neu" => compare!(|a, b| a != b),
        "ltu" => compare!(|a, b| a.partial_cmp(&b).is_none_or(std::cmp::Ordering::is_lt)),
        "leu" => compare!(|a, b| a.partial_cmp(&b).is_none_or(std::cmp::Ordering::is_le)),
        "gtu" => compare!(|a, b| a.partial_cmp(&b).is_none_or(std::cmp::Ordering::is_gt)),
        "geu" => compare!(|a, b| a.partial_cmp(&b).is_none_or(std::cmp::Ordering::is_ge)),
        "num" => compare!(|a, b| !a.is_nan() && !b.is_nan()),
        "nan" => compare!(|a, b| a.is_nan() || b.is_nan()),
        _ => Err(form.unsupported()),
    }
}

fn comparing<T: Value>(
    form: &Form<'_>,
    of: Type,
    rest: Rest,
    f: impl Fn(T, T) -> bool + Copy + Send + Sync + 'static,
) -> Decoded<Action> {
    let (a, b) = (form.source(1, of)?, form.source(2, of)?);
    if let (Output::Predicates(p, None), None) = (rest.output, rest.combine) {
        return Ok(action(move |warp| {
            let bits = bits_of(warp, a, b, f);
            warp.set_predicate(p, bits);
        }));
    }
    Ok(action(move |warp| {
        let bits = bits_of(warp, a, b, f);
        rest.write(warp, bits, 0);
    }))
}

fn float_comparing<T: Value>(
    form: &Form<'_>,
    of: Type,
    rest: Rest,
    f: impl Fn(T, T) -> bool + Copy + Send + Sync + 'static,
) -> Decoded<Action> {
    if !matches!(rest.output, Output::Halves(..) | Output::Pair(..)) {
        return comparing(form, of, rest, f);
    }
    let (a, b) = (form.source(1, of)?, form.source(2, of)?);
    Ok(action(move |warp| {
        let low = bits_of(warp, a, b, f);
        let (a, b): (Lanes<u32>, Lanes<u32>) = (warp.read(a), warp.read(b));
        let half = |own: u32| T::from_long(u64::from(own >> 16));
        let high = (0..LANES).filter(|lane| f(half(a[*lane]), half(b[*lane])));
        let high = high.fold(0, |all, lane| all | 1 << lane);
        rest.write(warp, low, high);
    }))
}

/// A bit for each lane where the comparison holds.
#[inline(always)]
fn bits_of<T: Value>(warp: &Warp<'_, '_>, a: Source, b: Source, f: impl Fn(T, T) -> bool) -> u32 {
    let a = &*warp.row(a);
    let b = &*warp.row(b);
    let mut bits = 0;
    for lane in 0..LANES {
        bits |= u32::from(f(T::from_row(a[lane]), T::from_row(b[lane]))) << lane;
    }
    bits
}

fn selp(form: &mut Form<'_>) -> Decoded<Action> {
    let of = form.take_type()?;
    form.finish(4)?;
    let p = form.predicate(3)?;
    match of.bits() {
        16 | 32 => select::<u32>(form, of, p),
        64 => select::<u64>(form, of, p),
        _ => Err(form.unsupported()),
    }
}

fn select<R: Row>(form: &Form<'_>, of: Type, p: Predicate) -> Decoded<Action> {
    let d = form.destination(0, of)?;
    let (a, b) = (form.source(1, of)?, form.source(2, of)?);
    Ok(action(move |warp| {
        let bits = warp.predicate(p);
        let (a, b) = (warp.read::<R>(a), warp.read::<R>(b));
        warp.write(
            d,
            lanes(|lane| {
                if bits >> lane & 1 != 0 {
                    a[lane]
                } else {
                    b[lane]
                }
            }),
        );
    }))
}

/// `slct`: by the sign of the third operand.
fn slct(form: &mut Form<'_>) -> Decoded<Action> {
    let flushes = form.take("ftz");
    let of = form.take_type()?;
    let by = form.take_type()?;
    form.finish(4)?;
    let d = form.destination(0, of)?;
    let sources = [
        form.source(1, of)?,
        form.source(2, of)?,
        form.source(3, by)?,
    ];
    macro_rules! select {
        ($row:ty) => {
            match by {
                Type::S32 => ternary_to(
                    d,
                    sources,
                    |a: $row, b: $row, c: i32| if c >= 0 { a } else { b },
                ),
                Type::F32 => ternary_to(d, sources, move |a: $row, b: $row, c: f32| {
                    let c = if flushes { c.flushed() } else { c };
                    if c >= 0.0 { a } else { b }
                }),
                _ => return Err(form.unsupported()),
            }
        };
    }
    Ok(match of.bits() {
        16 | 32 => select!(u32),
        64 => select!(u64),
        _ => return Err(form.unsupported()),
    })
}
