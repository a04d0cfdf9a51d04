//! `cp.async` and `mbarrier`. Copies are complete when they are issued.

use super::action::Action;
use super::apply::{action, unary_to};
use super::form::{Decoded, Form};
use super::load_store::take_space;
use crate::machine::{Address, Lanes, Predicate, Source, Stop, Warp};
use crate::program::Operand;
use crate::types::{Space, Type};

pub(super) fn decode_copy(form: &mut Form<'_>) -> Decoded<Action> {
    if !form.take("async") {
        return Err(form.unsupported());
    }
    match form.take_any()? {
        "ca" | "cg" => copy(form),
        "commit_group" | "wait_all" => {
            form.finish(0)?;
            Ok(action(|_| {}))
        }
        "wait_group" => {
            form.finish(1)?;
            Ok(action(|_| {}))
        }
        "mbarrier" => arrive_when_copied(form),
        _ => Err(form.unsupported()),
    }
}

/// `cp.async.ca.shared.global [to], [from], size{, size of source}{, policy}`
fn copy(form: &mut Form<'_>) -> Decoded<Action> {
    let to_space = take_space(form);
    let from_space = take_space(form);
    while form.peek().is_some_and(|next| next.starts_with("L2::")) {
        form.take_any()?;
    }
    form.finish(form.len().clamp(3, 5))?;
    if (to_space, from_space) != (Space::Shared, Space::Global) {
        return Err(form.unsupported());
    }
    let (to, from) = (form.address(0, to_space)?, form.address(1, from_space)?);
    let size = match form.operand(2)? {
        Operand::Integer(size) if matches!(size.bits, 4 | 8 | 16) => size.bits as u32,
        _ => return Err(form.error("the size is not 4, 8 or 16")),
    };
    // What is beyond the source's size is zero.
    let mut of_source = Source::Constant(size.into());
    let mut ignored = Predicate::Constant(false);
    if form.len() > 3 {
        match form.predicate(3) {
            Ok(predicate @ Predicate::Register { .. }) => ignored = predicate,
            _ => of_source = form.source(3, Type::U32).unwrap_or(of_source),
        }
    }
    Ok(Action::Execute(Box::new(move |warp| {
        let (targets, sources) = (warp.addresses(&to), warp.addresses(&from));
        warp.check_aligned(&targets, size)?;
        warp.check_aligned(&sources, size)?;
        let sizes: Lanes<u32> = warp.read(of_source);
        let ignored = warp.predicate(ignored);
        for lane in warp.active() {
            let len = if ignored >> lane & 1 != 0 {
                0
            } else {
                sizes[lane].min(size)
            };
            for at in 0..size {
                let byte: u8 = match at < len {
                    true => {
                        let address = sources[lane].wrapping_add(at.into());
                        warp.load_lane(from.space, from.hint, lane, address)?
                    }
                    false => 0,
                };
                let address = targets[lane].wrapping_add(at.into());
                warp.store_lane(to.space, to.hint, lane, address, byte)?;
            }
        }
        Ok(())
    })))
}

/// Arrives at a barrier once the copies are complete: now. Without `.noinc` a pending arrival is added before, so that
/// nothing changes.
fn arrive_when_copied(form: &mut Form<'_>) -> Decoded<Action> {
    if !form.take("arrive") {
        return Err(form.unsupported());
    }
    let counts = form.take("noinc");
    let space = take_space(form);
    if form.take_type()? != Type::B64 {
        return Err(form.unsupported());
    }
    form.finish(1)?;
    let address = form.address(0, space)?;
    Ok(Action::Execute(Box::new(move |warp| {
        if counts {
            update(warp, &address, |_, barrier| barrier.arrive(1))?;
        }
        Ok(())
    })))
}

/// The state of an `mbarrier` object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Barrier {
    /// Arrivals that the phase still waits for.
    pending: u32,
    /// Arrivals of the next phase.
    expected: u32,
    /// Bytes that the phase still waits for; negative where they came before they were announced.
    bytes: i32,
    /// Odd phases.
    phase: bool,
}

const COUNT_BITS: u32 = 20;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

impl Barrier {
    fn unpack(bits: u64) -> Self {
        Self {
            pending: (bits & COUNT) as u32,
            expected: (bits >> COUNT_BITS & COUNT) as u32,
            bytes: ((bits << 1) as i64 >> (2 * COUNT_BITS + 1)) as i32,
            phase: bits >> 63 != 0,
        }
    }

    fn pack(self) -> u64 {
        let bytes = self.bytes as u64 & ((1 << (63 - 2 * COUNT_BITS)) - 1);
        u64::from(self.pending)
            | u64::from(self.expected) << COUNT_BITS
            | bytes << (2 * COUNT_BITS)
            | u64::from(self.phase) << 63
    }

    fn arrive(&mut self, count: u32) {
        self.pending = self.pending.saturating_sub(count);
        self.complete();
    }

    /// Ends the phase if nothing is pending.
    fn complete(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.pending = self.expected;
            self.phase = !self.phase;
        }
    }
}

/// Changes the barrier of each active lane, one after the other. Returns what they were.
fn update(
    warp: &mut Warp<'_, '_>,
    address: &Address,
    mut change: impl FnMut(usize, &mut Barrier),
) -> Result<Lanes<u64>, Stop> {
    let addresses = warp.addresses(address);
    warp.check_aligned(&addresses, 8)?;
    let mut old = [0; 32];
    for lane in warp.active() {
        let (space, hint) = (address.space, address.hint);
        old[lane] = warp.update_lane(space, hint, lane, addresses[lane], |bits: u64| {
            let mut barrier = Barrier::unpack(bits);
            change(lane, &mut barrier);
            barrier.pack()
        })?;
    }
    Ok(old)
}

pub(super) fn decode_barrier(form: &mut Form<'_>) -> Decoded<Action> {
    let operation = form.take_any()?;
    match operation {
        "pending_count" => {
            form.take_type()?;
            form.finish(2)?;
            let (d, a) = (form.destination(0, Type::U32)?, form.source(1, Type::B64)?);
            return Ok(unary_to(d, a, |a: u64| Barrier::unpack(a).pending));
        }
        "test_wait" | "try_wait" => return wait(form),
        _ => {}
    }
    let mut expects = form.take("expect_tx") || operation == "expect_tx";
    form.take("noComplete");
    let orders = ["relaxed", "release", "acquire"].map(|own| (own, ()));
    let scopes = ["cta", "cluster", "gpu", "sys"].map(|own| (own, ()));
    form.take_one(&orders);
    form.take_one(&scopes);
    let space = take_space(form);
    if form.take_type()? != Type::B64 {
        return Err(form.unsupported());
    }
    if operation == "complete_tx" {
        expects = false;
    }
    let returns = operation.starts_with("arrive") && form.len() > 1 && !is_address(form, 0);
    let at = usize::from(returns);
    form.finish(form.len().clamp(at + 1, at + 2))?;
    let address = form.address(at, space)?;
    let count = match form.len() > at + 1 {
        true => form.source(at + 1, Type::U32)?,
        false => Source::Constant(1),
    };
    let d = match returns {
        true => Some(form.destination(0, Type::B64)?),
        false => None,
    };
    let change: fn(&mut Barrier, u32) = match (operation, expects) {
        ("init", _) => |barrier, count| {
            *barrier = Barrier {
                pending: count,
                expected: count,
                bytes: 0,
                phase: false,
            };
        },
        ("inval", _) => |_, _| {},
        ("arrive", false) => |barrier, count| barrier.arrive(count),
        ("arrive", true) => |barrier, bytes| {
            barrier.bytes = barrier.bytes.wrapping_add(bytes as i32);
            barrier.arrive(1);
        },
        ("arrive_drop", false) => |barrier, count| {
            barrier.expected = barrier.expected.saturating_sub(count);
            barrier.arrive(count);
        },
        ("arrive_drop", true) => |barrier, bytes| {
            barrier.expected = barrier.expected.saturating_sub(1);
            barrier.bytes = barrier.bytes.wrapping_add(bytes as i32);
            barrier.arrive(1);
        },
        ("expect_tx", _) => |barrier, bytes| {
            barrier.bytes = barrier.bytes.wrapping_add(bytes as i32);
            barrier.complete();
        },
        ("complete_tx", _) => |barrier, bytes| {
            barrier.bytes = barrier.bytes.wrapping_sub(bytes as i32);
            barrier.complete();
        },
        _ => return Err(form.unsupported()),
    };
    Ok(Action::Execute(Box::new(move |warp| {
        let counts: Lanes<u32> = warp.read(count);
        let old = update(warp, &address, |lane, barrier| {
            change(barrier, counts[lane])
        })?;
        if let Some(d) = d {
            warp.write(d, old);
        }
        Ok(())
    })))
}

fn is_address(form: &Form<'_>, index: usize) -> bool {
    matches!(form.operand(index), Ok(Operand::Address(_)))
}

/// Whether the phase of a state, or that of a parity, has ended.
fn wait(form: &mut Form<'_>) -> Decoded<Action> {
    let by_parity = form.take("parity");
    form.take_one(&["relaxed", "acquire"].map(|own| (own, ())));
    form.take_one(&["cta", "cluster"].map(|own| (own, ())));
    let space = take_space(form);
    if form.take_type()? != Type::B64 {
        return Err(form.unsupported());
    }
    // A limit of time may follow.
    form.finish(form.len().clamp(3, 4))?;
    let p = form.predicate_destination(0)?;
    let address = form.address(1, space)?;
    let of = if by_parity { Type::U32 } else { Type::B64 };
    let state = form.source(2, of)?;
    Ok(Action::Execute(Box::new(move |warp| {
        warp.is_waiting = true;
        let states: Lanes<u64> = warp.read(state);
        let old = update(warp, &address, |_, _| {})?;
        let mut bits = 0;
        for lane in 0..32 {
            let waits_for = match by_parity {
                true => states[lane] & 1 != 0,
                false => Barrier::unpack(states[lane]).phase,
            };
            let has_ended = Barrier::unpack(old[lane]).phase != waits_for;
            bits |= u32::from(has_ended) << lane;
        }
        warp.set_predicate(p, bits);
        Ok(())
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barriers_are_packed_without_loss() {
        for bytes in [0, 1, -1, 100_000, -100_000] {
            for phase in [false, true] {
                let barrier = Barrier {
                    pending: 5,
                    expected: 1_048_575,
                    bytes,
                    phase,
                };
                assert_eq!(Barrier::unpack(barrier.pack()), barrier);
            }
        }
    }
}
