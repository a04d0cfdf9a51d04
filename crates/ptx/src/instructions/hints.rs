//! Hints and queries of addresses: `prefetch`, `nanosleep`, `isspacep`, `mapa`, `getctarank` and others.

use super::action::Action;
use super::apply::{action, binary_to};
use super::form::{Decoded, Form};
use super::load_store::take_space;
use crate::machine::{Place, SHARED_RANK_SHIFT, SHARED_WINDOW, lanes, place_of};
use crate::types::{Space, Type};

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    match form.root() {
        "nanosleep" => {
            if form.take_type()? != Type::U32 {
                return Err(form.unsupported());
            }
            form.finish(1)?;
            form.source(0, Type::U32)?;
            Ok(action(|warp| warp.is_waiting = true))
        }
        "isspacep" => is_space(form),
        "mapa" => map_address(form),
        "getctarank" => rank(form),
        "createpolicy" => {
            // Policies of caches have no effect.
            let d = form.destination(0, Type::B64)?;
            Ok(action(move |warp| warp.write(d, [0u64; 32])))
        }
        // How memory is cached, how many registers there are, when the next kernel may start.
        "prefetch" | "prefetchu" | "discard" | "applypriority" | "griddepcontrol"
        | "setmaxnreg" | "pmevent" => Ok(action(|_| {})),
        _ => Err(form.unsupported()),
    }
}

/// Whether a generic address is in a space.
fn is_space(form: &mut Form<'_>) -> Decoded<Action> {
    let space = take_space(form);
    form.finish(2)?;
    let p = form.predicate_destination(0)?;
    let a = form.source(1, Type::U64)?;
    if space == Space::Generic {
        return Err(form.unsupported());
    }
    Ok(action(move |warp| {
        let addresses: [u64; 32] = warp.read(a);
        let mut bits = 0;
        for (lane, address) in addresses.into_iter().enumerate() {
            let is_there = match (place_of(address), space) {
                (Place::Global(_), Space::Global | Space::Const) => true,
                (Place::Shared(at), Space::Shared) => {
                    warp.shared_place(at).0 == warp.block.rank as usize
                }
                (Place::Shared(_), Space::SharedCluster) => true,
                (Place::Local(_), Space::Local) | (Place::Param(_), Space::Param) => true,
                _ => false,
            };
            bits |= u32::from(is_there) << lane;
        }
        warp.set_predicate(p, bits);
    }))
}

/// The address of the same variable in another block of the cluster.
fn map_address(form: &mut Form<'_>) -> Decoded<Action> {
    let space = take_space(form);
    let of = form.take_type()?;
    form.finish(3)?;
    // Only addresses of the shared space have 32 bits.
    if space == Space::Generic && of.bits() != 64 {
        return Err(form.unsupported());
    }
    let sources = [form.source(1, of)?, form.source(2, Type::U32)?];
    let d = form.destination(0, of)?;
    let window = if space == Space::Generic {
        SHARED_WINDOW
    } else {
        0
    };
    let map = move |address: u64, rank: u32| {
        let offset = (address - window) & ((1 << SHARED_RANK_SHIFT) - 1);
        window + (offset | u64::from(rank + 1) << SHARED_RANK_SHIFT)
    };
    Ok(match of.bits() {
        32 => binary_to(d, sources, move |a: u32, b: u32| {
            map(a.into(), b & 0xFF) as u32
        }),
        _ => binary_to(
            d,
            sources,
            move |a: u64, b: u32| {
                if a < window { 0 } else { map(a, b & 0xFF) }
            },
        ),
    })
}

/// The rank of the block that an address belongs to.
fn rank(form: &mut Form<'_>) -> Decoded<Action> {
    let space = take_space(form);
    let of = form.take_type()?;
    form.finish(2)?;
    let (d, a) = (form.destination(0, Type::U32)?, form.source(1, of)?);
    let window = if space == Space::Generic {
        SHARED_WINDOW
    } else {
        0
    };
    Ok(action(move |warp| {
        let addresses: [u64; 32] = warp.read(a);
        let ranks = lanes(|lane| warp.shared_place(addresses[lane].wrapping_sub(window)).0 as u32);
        warp.write(d, ranks);
    }))
}
