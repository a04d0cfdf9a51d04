//! Which frame a call site is named after, among others.

use cuguard_registry::naming_frames;

use crate::symbols::Frame;

/// A function: its name and its file. Of two functions with one name in different files each is one of its own.
type Function<'a> = (String, Option<&'a str>);
/// A call in a function: its line, or without one its address.
type Line = (Option<u32>, usize);

fn function_and_line(frame: &Frame) -> (Function<'_>, Line) {
    let (symbol, name) = (&frame.symbol, frame.name());
    let address = match symbol.line {
        Some(_) => 0,
        None => frame.address,
    };
    let function = (name.into_owned(), symbol.file.as_deref());
    (function, (symbol.line, address))
}

/// The index of the frame that each stack trace is named after, of its frames of the program: the innermost that is not an allocation
/// helper.
pub(crate) fn site_frames(stacks: &[Vec<&Frame>]) -> Vec<usize> {
    let keys = stacks.iter().map(|frames| {
        let keys = frames.iter().map(|frame| function_and_line(frame));
        keys.collect::<Vec<_>>()
    });
    naming_frames(&keys.collect::<Vec<_>>())
}
