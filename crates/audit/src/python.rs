//! The frames of a Python interpreter in this process.

use std::ops::Range;

use cuguard_report::ForeignFrame;

/// The calling thread's Python frames, innermost first, and the addresses of the interpreter. `None` where there are none.
pub(crate) fn frames(_frames: &mut [usize]) -> Option<(Range<usize>, usize)> {
    None
}

/// What a number of [`frames`] stands for.
pub(crate) fn resolve(_number: usize) -> Option<ForeignFrame> {
    None
}
