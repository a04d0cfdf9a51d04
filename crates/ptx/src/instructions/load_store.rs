//! `ld`, `ldu`, `st`, `cvta`.

use super::action::Action;
use super::apply::unary_to;
use super::form::{Decoded, Form};
use super::moves::window_of;
use crate::machine::{
    Address, Destination, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, Source, Value, Warp, Word,
    lanes,
};
use crate::program::{Operand, Symbol};
use crate::types::{Space, Type};

/// The space that a modifier names.
pub(super) fn take_space(form: &mut Form<'_>) -> Space {
    let spaces = [
        ("global", Space::Global),
        ("shared", Space::Shared),
        ("shared::cta", Space::Shared),
        ("shared::cluster", Space::SharedCluster),
        ("local", Space::Local),
        ("const", Space::Const),
        ("param", Space::Param),
        ("param::entry", Space::Param),
        ("param::func", Space::Param),
    ];
    form.take_one(&spaces).unwrap_or(Space::Generic)
}

/// How an access is cached, which has no effect here but for this: whether it reads past a cache that may be stale, as
/// who waits for another thread does.
fn take_cache_modifiers(form: &mut Form<'_>) -> bool {
    let mut reads_past = false;
    const NAMES: [&str; 8] = ["ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"];
    while let Some(next) = form.peek() {
        if !NAMES.contains(&next) && !next.starts_with("L1::") && !next.starts_with("L2::") {
            return reads_past;
        }
        reads_past |= matches!(next, "cg" | "cv");
        form.take(next);
    }
    reads_past
}

/// How an access is ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    /// A thread may wait for another with it.
    pub(super) may_wait: bool,
    pub(super) acquires: bool,
    pub(super) releases: bool,
}

fn take_order(form: &mut Form<'_>) -> Order {
    let mut order = Order::default();
    let orders = [
        ("weak", 0),
        ("volatile", 1),
        ("relaxed", 1),
        ("acquire", 2),
        ("release", 3),
        ("mmio", 1),
    ];
    while let Some(kind) = form.take_one(&orders) {
        order.may_wait |= kind > 0;
        order.acquires |= kind == 2;
        order.releases |= kind == 3;
    }
    let scopes = [("cta", ()), ("cluster", ()), ("gpu", ()), ("sys", ())];
    form.take_one(&scopes);
    order
}

/// The number of elements of `.v2`, `.v4`, `.v8`.
fn take_vector(form: &mut Form<'_>) -> usize {
    form.take_one(&[("v2", 2), ("v4", 4), ("v8", 8)])
        .unwrap_or(1)
}

pub(super) fn decode_load(form: &mut Form<'_>) -> Decoded<Action> {
    let mut order = take_order(form);
    let space = take_space(form);
    order.may_wait |= take_cache_modifiers(form);
    let vector = take_vector(form);
    let of = form.take_type()?;
    // A cache policy may follow.
    form.finish(form.len().clamp(2, 3))?;
    let elements = form.elements(0)?;
    if elements.len() != vector {
        return Err(form.error("operand 1 has the wrong number of elements"));
    }
    let wrong = || form.error("operand 1 has the wrong type");
    let destinations = elements.iter().map(|own| match own {
        Operand::Register(register) if register.of.bits() < of.bits() => Err(wrong()),
        _ => form.destination_of(own).ok_or_else(wrong),
    });
    let destinations = destinations.collect::<Decoded<Vec<_>>>()?;
    let address = form.address(1, space)?;
    let load = Access {
        address,
        order,
        align: of.bytes() * vector as u32,
    };
    match of {
        Type::U8 | Type::B8 => Ok(loading::<u8, u8>(load, destinations)),
        Type::S8 => Ok(loading::<u8, i8>(load, destinations)),
        Type::U16 | Type::B16 | Type::F16 | Type::Bf16 => {
            Ok(loading::<u16, u16>(load, destinations))
        }
        Type::S16 => Ok(loading::<u16, i16>(load, destinations)),
        Type::S32 => Ok(loading::<u32, i32>(load, destinations)),
        Type::B128 => Ok(loading::<u64, u64>(load, halves(destinations))),
        _ if of.bits() == 32 => Ok(loading::<u32, u32>(load, destinations)),
        _ if of.bits() == 64 => Ok(loading::<u64, u64>(load, destinations)),
        _ => Err(form.unsupported()),
    }
}

/// Registers of 128 bits as two of 64 each.
fn halves(of: Vec<Destination>) -> Vec<Destination> {
    let both = |own| match own {
        Destination::Long(slot) => [Destination::Long(slot), Destination::Long(slot + 1)],
        other => [other, other],
    };
    of.into_iter().flat_map(both).collect()
}

#[derive(Clone, Copy, Debug)]
struct Access {
    address: Address,
    order: Order,
    /// Of all elements together.
    align: u32,
}

/// Loads words `W`, which are values `V`.
fn loading<W: Word, V: Value>(access: Access, destinations: Vec<Destination>) -> Action {
    let Access {
        address,
        order,
        align,
    } = access;
    if let ([d], Source::Symbol(Symbol::Argument(at), addend)) = (&destinations[..], address.base) {
        return argument::<W, V>(*d, u64::from(at).wrapping_add_signed(addend));
    }
    if let (
        [d],
        Order {
            may_wait: false, ..
        },
    ) = (&destinations[..], order)
    {
        let d = *d;
        return Action::Execute(Box::new(move |warp| {
            if let Some(words) = warp.load_full::<W>(&address) {
                warp.write(d, lanes(|lane| V::from_long(words[lane].to_bits())));
                return Ok(());
            }
            let addresses = warp.addresses(&address);
            warp.check_aligned(&addresses, align)?;
            let words: [W; 32] = warp.load(address.space, address.hint, &addresses)?;
            warp.write(d, lanes(|lane| V::from_long(words[lane].to_bits())));
            Ok(())
        }));
    }
    Action::Execute(Box::new(move |warp| {
        if order.may_wait {
            warp.is_waiting = true;
        }
        let addresses = warp.addresses(&address);
        warp.check_aligned(&addresses, align)?;
        for (index, d) in destinations.iter().enumerate() {
            let at = lanes(|lane| addresses[lane].wrapping_add((index * W::SIZE) as u64));
            let words: [W; 32] = warp.load(address.space, address.hint, &at)?;
            warp.write(*d, lanes(|lane| V::from_long(words[lane].to_bits())));
        }
        if order.acquires {
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        }
        Ok(())
    }))
}

/// An argument of the kernel is the same for all lanes.
fn argument<W: Word, V: Value>(d: Destination, at: u64) -> Action {
    Action::Execute(Box::new(move |warp| {
        let hint = 0;
        let lane = warp.mask.trailing_zeros() as usize;
        let word: W = warp.load_lane(Space::Param, hint, lane, at)?;
        warp.write(d, [V::from_long(word.to_bits()); 32]);
        Ok(())
    }))
}

pub(super) fn decode_store(form: &mut Form<'_>) -> Decoded<Action> {
    let order = take_order(form);
    let space = take_space(form);
    take_cache_modifiers(form);
    let vector = take_vector(form);
    let of = form.take_type()?;
    form.finish(form.len().clamp(2, 3))?;
    let elements = form.elements(1)?;
    if elements.len() != vector {
        return Err(form.error("operand 2 has the wrong number of elements"));
    }
    let wrong = || form.error("operand 2 has the wrong type");
    let sources = elements.iter().map(|own| match own {
        Operand::Register(register) if register.of.bits() < of.bits() => Err(wrong()),
        _ => form.wide_source_of(own, of).ok_or_else(wrong),
    });
    let mut sources = sources.collect::<Decoded<Vec<_>>>()?;
    if of == Type::B128 {
        let both = |own| match own {
            Source::Long(slot) => [Source::Long(slot), Source::Long(slot + 1)],
            other => [other, Source::Constant(0)],
        };
        sources = sources.into_iter().flat_map(both).collect();
    }
    let address = form.address(0, space)?;
    let store = Access {
        address,
        order,
        align: of.bytes() * vector as u32,
    };
    match of.bits() {
        8 => Ok(storing::<u8, u8>(store, sources)),
        16 => Ok(storing::<u16, u16>(store, sources)),
        32 => Ok(storing::<u32, u32>(store, sources)),
        64 | 128 => Ok(storing::<u64, u64>(store, sources)),
        _ => Err(form.unsupported()),
    }
}

fn storing<W: Word, V: Value>(access: Access, sources: Vec<Source>) -> Action {
    let Access {
        address,
        order,
        align,
    } = access;
    if let ([source], false) = (&sources[..], order.releases) {
        let source = *source;
        return Action::Execute(Box::new(move |warp| {
            let words = |warp: &Warp<'_, '_>| {
                let values: [V; 32] = warp.read(source);
                lanes(|lane| W::from_bits(values[lane].to_long()))
            };
            if warp.store_full::<W>(&address, words).is_some() {
                return Ok(());
            }
            let addresses = warp.addresses(&address);
            warp.check_aligned(&addresses, align)?;
            let words = words(warp);
            warp.store(address.space, address.hint, &addresses, &words)
        }));
    }
    Action::Execute(Box::new(move |warp| {
        if order.releases {
            std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        }
        let addresses = warp.addresses(&address);
        warp.check_aligned(&addresses, align)?;
        for (index, source) in sources.iter().enumerate() {
            let values: [V; 32] = warp.read(*source);
            let at = lanes(|lane| addresses[lane].wrapping_add((index * W::SIZE) as u64));
            let words = lanes(|lane| W::from_bits(values[lane].to_long()));
            warp.store(address.space, address.hint, &at, &words)?;
        }
        Ok(())
    }))
}

/// Between generic addresses and those of a space.
pub(super) fn decode_cvta(form: &mut Form<'_>) -> Decoded<Action> {
    let is_to = form.take("to");
    let space = take_space(form);
    let of = form.take_type()?;
    form.finish(2)?;
    let window = match space {
        Space::Global | Space::Const => 0,
        Space::Shared | Space::SharedCluster => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Param => PARAM_WINDOW,
        _ => return Err(form.unsupported()),
    };
    if of.bits() != 64 {
        return Err(form.unsupported());
    }
    let d = form.destination(0, of)?;
    let a = form.source(1, of)?;
    // A function's parameter is in its frame.
    let window = match a {
        Source::Symbol(symbol @ (Symbol::Frame(..) | Symbol::Shared(_)), _) => window_of(symbol),
        _ => window,
    };
    Ok(match is_to {
        true => unary_to(d, a, move |a: u64| a.wrapping_sub(window)),
        false => unary_to(d, a, move |a: u64| a.wrapping_add(window)),
    })
}
