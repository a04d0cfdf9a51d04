//! Calls and returns.

use std::sync::Arc;

use super::group::{Frame, Group};
use super::warp::{Surroundings, WarpState};
use crate::instructions::{Action, Argument, Call, Target};
use crate::machine::{
    Base, Fault, FaultKind, LANES, Lanes, MAX_LOCAL, Source, Stop, Warp, function_at, lanes,
};
use crate::program::{Bank, Place};

/// Calls nest at most this deep.
const MAX_DEPTH: u32 = 1 << 14;

impl WarpState {
    /// Calls a function. Lanes that call different ones part.
    pub(super) fn call(
        &mut self,
        with: &mut Surroundings<'_, '_>,
        at: usize,
        call: &Call,
    ) -> Result<(), Stop> {
        match call.target {
            Target::Function(function) => self.enter(with, at, call, function),
            Target::Pointer(source) => {
                let addresses = self.read(with, at, source);
                let mask = self.groups[at].mask;
                let first = mask.trailing_zeros() as usize % LANES;
                let address = addresses[first];
                let same = (0..LANES).filter(|lane| addresses[*lane] == address);
                let same = same.fold(0, |all, lane| all | 1 << lane) & mask;
                if same != mask {
                    // The others execute the call when it is their turn.
                    let mut rest = self.groups[at].clone();
                    rest.mask &= !same;
                    self.groups[at].mask = same;
                    self.groups.push(rest);
                }
                let invalid = || Fault::new(first, FaultKind::InvalidTarget(address));
                let function = function_at(address).ok_or_else(invalid)?;
                let entry = with.code.functions.get(function).ok_or_else(invalid)?;
                if entry.is_entry || !call.fits(&entry.returns, &entry.params) {
                    return Err(invalid());
                }
                self.enter(with, at, call, function)
            }
        }
    }

    fn enter(
        &mut self,
        with: &mut Surroundings<'_, '_>,
        at: usize,
        call: &Call,
        function: usize,
    ) -> Result<(), Stop> {
        let group = &self.groups[at];
        let (mask, from) = (group.mask, group.base);
        let caller = &with.code.functions[group.function as usize];
        let callee = &with.code.functions[function];
        let overflow = || Fault::first(mask, FaultKind::StackOverflow);
        let [predicates, words, longs] = caller.registers;
        let to = Base {
            predicates: from.predicates + predicates,
            words: from.words + words,
            longs: from.longs + longs,
            local: (from.local + caller.frame).next_multiple_of(callee.align),
        };
        let depth = group.depth() + 1;
        // A GPU has the registers of callers in local memory. Those of the kernel are as many as the text says.
        let [_, kernel_words, kernel_longs] = self.kernel_registers;
        let words = u64::from(to.words + callee.registers[1]).saturating_sub(kernel_words.into());
        let longs = u64::from(to.longs + callee.registers[2]).saturating_sub(kernel_longs.into());
        let saved = 4 * words + 8 * longs;
        let end = u64::from(to.local) + u64::from(callee.frame);
        if end + saved > MAX_LOCAL {
            return Err(overflow());
        }
        if depth > MAX_DEPTH || !self.storage.local.reserve(end) {
            return Err(overflow());
        }
        let undefined = || Fault::first(mask, FaultKind::InvalidTarget(function as u64));
        let start = callee.start.ok_or_else(undefined)?;
        self.storage.registers.reserve(to, callee.registers);
        let mut view = self.storage.view(with);
        view.mask = mask;
        for ((argument, _), (place, size)) in call.params.iter().zip(&callee.params) {
            copy(&mut view, *argument, from, *place, to, *size).ok_or_else(overflow)?;
        }
        let group: &mut Group = &mut self.groups[at];
        group.frame = Some(Arc::new(Frame {
            pc: group.pc,
            function: group.function,
            base: from,
            parent: group.frame.take(),
            depth,
        }));
        group.pc = start;
        group.function = function as u32;
        group.base = to;
        Ok(())
    }

    /// Returns from a function.
    pub(super) fn ret(&mut self, with: &mut Surroundings<'_, '_>, at: usize) -> Result<(), Stop> {
        let group = &mut self.groups[at];
        let (mask, from) = (group.mask, group.base);
        let Some(frame) = group.frame.clone() else {
            let group = self.groups.swap_remove(at);
            self.alive &= !group.mask;
            return Ok(());
        };
        let callee = &with.code.functions[group.function as usize];
        group.pc = frame.pc + 1;
        group.function = frame.function;
        group.base = frame.base;
        group.frame = frame.parent.clone();
        let Action::Call(call) = &with.code.steps[frame.pc as usize].action else {
            return Ok(());
        };
        let overflow = || Fault::first(mask, FaultKind::StackOverflow);
        let mut view = self.storage.view(with);
        view.mask = mask;
        for ((place, size), (to, _)) in callee.returns.iter().zip(&call.returns) {
            let argument = Argument::Place(*place);
            copy(&mut view, argument, from, *to, frame.base, *size).ok_or_else(overflow)?;
        }
        Ok(())
    }
}

/// Copies a value of `size` bytes of the active lanes from one frame to another. `None` out of bounds.
fn copy(
    warp: &mut Warp<'_, '_>,
    from: Argument,
    from_base: Base,
    to: Place,
    to_base: Base,
    size: u32,
) -> Option<()> {
    let mask = warp.mask;
    if let (Argument::Place(Place::Frame(from)), Place::Frame(to)) = (from, to) {
        for at in (0..size).step_by(4) {
            let row = *warp.local.row((from_base.local + from + at).into())?;
            warp.local
                .set_row((to_base.local + to + at).into(), mask, &row)?;
        }
        return Some(());
    }
    for part in 0..size.div_ceil(8) {
        warp.registers.set_base(from_base);
        let values = part_of(warp, from, from_base, part, size)?;
        warp.registers.set_base(to_base);
        set_part(warp, to, to_base, part, size, &values)?;
    }
    Some(())
}

/// Eight bytes of a value.
fn part_of(
    warp: &Warp<'_, '_>,
    from: Argument,
    base: Base,
    part: u32,
    size: u32,
) -> Option<Lanes<u64>> {
    Some(match from {
        Argument::Constant(bits) => [bits; LANES],
        Argument::Place(Place::Register(own)) => match own.bank {
            Bank::Word => warp.read(Source::Word(own.slot)),
            Bank::Long => warp.read(Source::Long(own.slot + part)),
            Bank::Predicate => {
                let bits = warp.registers.predicate(own.slot);
                lanes(|lane| u64::from(bits >> lane & 1))
            }
        },
        Argument::Place(Place::Frame(offset)) => {
            let at = u64::from(base.local + offset + 8 * part);
            let low = warp.local.row(at)?;
            let zero = [0; LANES];
            let high = if size > 4 {
                warp.local.row(at + 4)?
            } else {
                &zero
            };
            lanes(|lane| u64::from(high[lane]) << 32 | u64::from(low[lane]))
        }
    })
}

fn set_part(
    warp: &mut Warp<'_, '_>,
    to: Place,
    base: Base,
    part: u32,
    size: u32,
    values: &Lanes<u64>,
) -> Option<()> {
    let mask = warp.mask;
    let low = lanes(|lane| values[lane] as u32);
    match to {
        Place::Register(own) => match own.bank {
            Bank::Word => warp.registers.set_words(own.slot, mask, &low),
            Bank::Long => warp.registers.set_longs(own.slot + part, mask, values),
            Bank::Predicate => {
                let bit = |lane: usize| (low[lane] & 1) << lane;
                let bits = (0..LANES).fold(0, |all, lane| all | bit(lane));
                warp.registers.set_predicate(own.slot, mask, bits);
            }
        },
        Place::Frame(offset) => {
            let at = u64::from(base.local + offset + 8 * part);
            warp.local.set_row(at, mask, &low)?;
            if size > 4 {
                let high = lanes(|lane| (values[lane] >> 32) as u32);
                warp.local.set_row(at + 4, mask, &high)?;
            }
        }
    }
    Some(())
}
