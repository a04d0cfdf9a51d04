//! Which frames of a call site are shown, and which one it is named after.

use crate::run::{CallSite, Frame};

/// Which frames of a stack trace are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frames {
    /// Those of the program; all where there is none.
    #[default]
    Program,
    /// All.
    All,
}

impl CallSite {
    /// The frames that are shown, innermost first.
    ///
    /// ```
    /// use cuguard_view::{CallSite, Frame, Frames};
    ///
    /// let frame = |function: &str, in_app| Frame { function: function.to_owned(), in_app, ..Frame::default() };
    /// let site = CallSite { frames: vec![frame("cuMemAlloc", false), frame("main", true)], ..CallSite::default() };
    /// let shown: Vec<_> = site.shown(Frames::Program).map(|frame| frame.function.as_str()).collect();
    /// assert_eq!(shown, ["main"]);
    /// assert_eq!(site.shown(Frames::All).count(), 2);
    /// ```
    pub fn shown(&self, frames: Frames) -> impl DoubleEndedIterator<Item = &Frame> {
        let all = frames == Frames::All || !self.frames.iter().any(|frame| frame.in_app);
        self.frames.iter().filter(move |frame| all || frame.in_app)
    }

    /// The frame that the call site is named after: the innermost of the program.
    #[must_use]
    pub fn origin(&self) -> Option<&Frame> {
        self.shown(Frames::Program).next()
    }

    /// The library that the memory is counted for: that of the innermost frame with a known one, among those of the
    /// program.
    pub(crate) fn library(&self) -> &str {
        let mut libraries = self
            .shown(Frames::Program)
            .map(|frame| frame.library.as_str());
        libraries.find(|library| !library.is_empty()).unwrap_or("")
    }
}
