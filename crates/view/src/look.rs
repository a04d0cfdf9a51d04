//! What is shown of a moment.

use crate::by::By;

/// The name of a call site that is not known.
pub(crate) const UNKNOWN: &str = "unknown call site";

/// What is shown of a moment.
///
/// ```
/// use cuguard_view::{By, Frames, Look};
///
/// assert_eq!(Look::default(), Look { by: By::Stack, top: None, frames: Frames::Program });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// What it is grouped by.
    pub by: By,
    /// How many groups are shown; all without a number.
    pub top: Option<usize>,
    /// Which frames are shown.
    pub frames: Frames,
}

/// Which frames of a stack trace are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frames {
    /// Those of the program; all where there is none.
    #[default]
    Program,
    /// All.
    All,
}
