//! Replaces `fast` on systems without rules: every capture uses `backtrace`.

use crate::fallback;
use crate::method::Method;
use crate::module::Module;

pub(crate) fn capture(frames: &mut [usize]) -> usize {
    fallback::trace(frames, None)
}

pub(crate) use self::capture as capture_with_backtrace;
pub(crate) use self::capture as capture_frames;

/// Frames stay addresses.
pub(crate) fn number(_frames: &mut [usize]) {}

pub(crate) fn locate(_frame: usize) -> Option<(&'static Module, usize)> {
    None
}

pub(crate) fn is_unloadable(_module: &Module) -> bool {
    false
}

pub(crate) fn capture_with_rules(_frames: &mut [usize]) -> Option<usize> {
    None
}

pub(crate) fn method() -> Method {
    Method::Backtrace
}

/// No stack is recognized.
pub(crate) struct Memory {
    frames: Box<[usize]>,
}

/// How many stacks are remembered at most.
pub(crate) const MOST: usize = 0;

impl Memory {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            frames: vec![0; depth].into(),
        }
    }

    pub(crate) fn depth(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn frames(&self, count: usize) -> &[usize] {
        &self.frames[..count]
    }

    pub(crate) fn keep(&mut self) -> Option<usize> {
        None
    }
}

pub(crate) fn recall(memory: &mut Memory) -> usize {
    MOST + capture(&mut memory.frames)
}
