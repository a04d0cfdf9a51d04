//! Which frame each call site of a report is named after.

use std::collections::HashMap;

use super::class::{Class, class, origin};
use super::process::Process;
use crate::site_frame::site_frames;
use crate::symbols::{Frame, Symbols};

/// What a reader sees of a frame: its name, and its line.
pub(super) type FrameKey = (String, Option<String>, Option<u32>);

pub(super) fn key_of(frame: &Frame) -> FrameKey {
    let symbol = &frame.symbol;
    (frame.name().into_owned(), symbol.file.clone(), symbol.line)
}

/// The frames that stack traces are named after: of the program the innermost that is not an allocation helper; without one, that of the
/// library that asked for memory.
#[derive(Debug, Default)]
pub(super) struct SiteNames {
    /// Each frame, and its place among those of the program.
    by_stack: HashMap<&'static [usize], (usize, Frame)>,
}

impl SiteNames {
    /// Of all that a report is about, so that a call site has one name throughout.
    pub(super) fn new(process: &Process, symbols: &mut Symbols) -> Self {
        let mut stacks: Vec<&'static [usize]> = process.stacks().collect();
        stacks.sort_unstable();
        stacks.dedup();
        let frames: Vec<_> = stacks
            .iter()
            .map(|stack| symbols.frames(stack, false))
            .collect();
        let users: Vec<Vec<&Frame>> = frames
            .iter()
            .map(|frames| {
                frames
                    .iter()
                    .filter(|frame| class(frame) == Class::User)
                    .collect()
            })
            .collect();
        let names = site_frames(&users);
        let named = stacks.into_iter().enumerate().filter_map(|(index, stack)| {
            let user = users[index].get(names[index]).copied();
            let frame = user.or_else(|| frames[index].get(origin(&frames[index])?))?;
            Some((stack, (names[index], frame.clone())))
        });
        Self {
            by_stack: named.collect(),
        }
    }

    /// The frame that a call site is named after, where it has any.
    pub(super) fn of(&self, stack: &[usize]) -> Option<&Frame> {
        self.by_stack.get(stack).map(|(_, frame)| frame)
    }

    /// The place of that frame among those of the program, from the innermost on; 0 where it is none of them.
    pub(super) fn place(&self, stack: &[usize]) -> usize {
        self.by_stack.get(stack).map_or(0, |(place, _)| *place)
    }
}
