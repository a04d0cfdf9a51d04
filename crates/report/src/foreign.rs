//! Frames of interpreters: numbers in a stack trace that are no addresses.

use std::sync::OnceLock;

/// A frame of an interpreter, for [`register_frames`].
///
/// ```
/// let frame = cuguard_report::ForeignFrame {
///     function: "train".to_owned(),
///     file: "train.py".to_owned(),
///     line: 12,
/// };
/// assert_eq!(frame.line, 12);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ForeignFrame {
    /// The function.
    pub function: String,
    /// Its file.
    pub file: String,
    /// The line, from 1; 0 where it is not known.
    pub line: u32,
}

/// Set in a number of a stack trace that is a frame of an interpreter, and no return address: the highest bit, which no
/// address of a process has.
pub const FOREIGN_FRAME: usize = 1 << (usize::BITS - 1);

type Resolve = fn(usize) -> Option<ForeignFrame>;

static RESOLVE: OnceLock<Resolve> = OnceLock::new();

/// Sets the function that finds what a number with [`FOREIGN_FRAME`] stands for. It is called while a report is made. The
/// first one that is set stays.
///
/// ```
/// use cuguard_report::{FOREIGN_FRAME, ForeignFrame, register_frames};
///
/// register_frames(|number| {
///     let line = (number & !FOREIGN_FRAME) as u32;
///     Some(ForeignFrame { function: "main".to_owned(), file: "app.py".to_owned(), line })
/// });
/// ```
pub fn register_frames(resolve: fn(usize) -> Option<ForeignFrame>) {
    let _ = RESOLVE.set(resolve);
}

/// Whether a number of a stack trace is a frame of an interpreter.
pub(crate) fn is_foreign(number: usize) -> bool {
    number & FOREIGN_FRAME != 0
}

pub(crate) fn resolve(number: usize) -> Option<ForeignFrame> {
    RESOLVE.get().and_then(|resolve| resolve(number))
}
