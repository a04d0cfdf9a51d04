//! Replaces `fast` on systems without rules: every capture uses `backtrace`.

use crate::fallback;
use crate::method::Method;

pub(crate) fn capture(frames: &mut [usize]) -> usize {
    fallback::trace(frames, None)
}

pub(crate) use self::capture as capture_with_backtrace;

pub(crate) fn capture_with_rules(_frames: &mut [usize]) -> Option<usize> {
    None
}

pub(crate) fn method() -> Method {
    Method::Backtrace
}

/// No stack is remembered.
#[derive(Default)]
pub(crate) struct Memory;

pub(crate) enum Memo {}

#[allow(dead_code, reason = "no stack is known")]
pub(crate) enum Recall {
    Known(usize),
    New(usize, Option<Memo>),
}

pub(crate) const MOST: usize = 0;

impl Memory {
    pub(crate) fn put(&mut self, memo: Memo) -> usize {
        match memo {}
    }
}

pub(crate) fn recall(_: &Memory, frames: &mut [usize]) -> Recall {
    Recall::New(capture(frames), None)
}
