//! What runs and call sites are called, and which frames are shown.

use cuguard_report::{FrameClass, FrameNames};

use crate::look::Frames;
use crate::run::{CallSite, Frame, Run};

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
        let is_shown = self.is_shown(frames);
        self.frames.iter().filter(move |frame| is_shown(frame))
    }

    /// The same with so many frames of the program, from the innermost on, and all if it has no more.
    pub(crate) fn innermost(mut self, count: usize) -> Self {
        let is_shown = self.is_shown(Frames::Program);
        let shown = self.frames.iter().enumerate();
        let mut shown = shown.filter(|(_, frame)| is_shown(frame));
        let last = count.checked_sub(1).and_then(|last| shown.nth(last));
        let end = last.map(|(index, _)| index + 1);
        if let Some(end) = end.filter(|_| shown.next().is_some()) {
            self.frames.truncate(end);
        }
        self
    }

    /// Whether a frame of it is shown.
    pub(crate) fn is_shown(&self, frames: Frames) -> impl Fn(&Frame) -> bool + use<> {
        let all = frames == Frames::All || !self.frames.iter().any(|frame| frame.in_app);
        move |frame| all || frame.in_app
    }

    /// The library that the memory is counted for: that of the innermost frame outside of the driver and the CUDA runtime,
    /// through which every allocation goes.
    pub(crate) fn library(&self) -> &str {
        let is_driver = |frame: &Frame| {
            let names = FrameNames {
                function: Some(&frame.function),
                file: Some(frame.file.as_str()).filter(|file| !file.is_empty()),
                module: &frame.library,
                is_foreign: false,
            };
            FrameClass::of(&names) == FrameClass::Driver
        };
        let libraries = self.frames.iter().filter(|frame| !frame.library.is_empty());
        let mut outside = libraries.filter(|frame| !is_driver(frame));
        outside.next().map_or("", |frame| &frame.library)
    }
}

impl Run {
    /// What tells this run from others: the rank and the host, or the process.
    ///
    /// ```
    /// use cuguard_view::Run;
    ///
    /// let run = Run { rank: Some(3), host: "node7".to_owned(), pid: 42, ..Run::default() };
    /// assert_eq!(run.title(), "rank 3 on node7");
    /// ```
    #[must_use]
    pub fn title(&self) -> String {
        let on = match self.host.as_str() {
            "" => String::new(),
            host => format!(" on {host}"),
        };
        match self.rank {
            Some(rank) => format!("rank {rank}{on}"),
            None => format!("process {}{on}", self.pid),
        }
    }
}
