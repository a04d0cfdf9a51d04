//! Which frame each call site of a run is named after. What an allocation helper is, `cuguard_registry::naming_frames` defines.

use cuguard_registry::naming_frames;

use crate::look::Frames;
use crate::run::{CallSite, Frame, Run};

impl Run {
    /// For each call site the index of the frame that it is named after: the innermost of the program that is not an allocation helper.
    /// All call sites are looked at together, so that names are the same at every moment. `None` without frames.
    ///
    /// ```
    /// use cuguard_view::{CallSite, Frame, Run};
    ///
    /// let frame = |function: &str, line| Frame { function: function.to_owned(), line, in_app: true, ..Frame::default() };
    /// let site = |frames: &[Frame]| CallSite { frames: frames.to_vec(), ..CallSite::default() };
    /// let run = Run {
    ///     sites: vec![
    ///         CallSite::default(),
    ///         site(&[frame("checked_alloc", 7), frame("load", 20)]),
    ///         site(&[frame("checked_alloc", 7), frame("train", 30)]),
    ///     ],
    ///     ..Run::default()
    /// };
    /// assert_eq!(run.naming_frames(), [None, Some(1), Some(1)]);
    /// ```
    #[must_use]
    pub fn naming_frames(&self) -> Vec<Option<usize>> {
        let shown: Vec<Vec<(usize, &Frame)>> = self.sites.iter().map(numbered).collect();
        let keys = shown.iter().map(|frames| {
            let keys = frames
                .iter()
                .map(|(_, frame)| ((&frame.function, &frame.file), frame.line));
            keys.collect::<Vec<_>>()
        });
        let named = naming_frames(&keys.collect::<Vec<_>>()).into_iter();
        let indices = named.zip(shown);
        indices
            .map(|(at, frames)| frames.get(at).map(|(index, _)| *index))
            .collect()
    }
}

/// The frames of the program with their indices.
fn numbered(site: &CallSite) -> Vec<(usize, &Frame)> {
    let numbered = site.frames.iter().enumerate();
    let is_shown = site.is_shown(Frames::Program);
    numbered.filter(|(_, frame)| is_shown(frame)).collect()
}

/// The frames that call sites of a run are named after.
#[derive(Debug)]
pub(crate) struct SiteNames<'r> {
    run: &'r Run,
    frames: Vec<Option<usize>>,
}

impl<'r> SiteNames<'r> {
    pub(crate) fn of(run: &'r Run) -> Self {
        let frames = run.naming_frames();
        Self { run, frames }
    }

    /// The frame that a call site is named after.
    pub(crate) fn frame(&self, site: u32) -> Option<&'r Frame> {
        let index = self.frames.get(site as usize).copied()??;
        self.run.sites.get(site as usize)?.frames.get(index)
    }
}
