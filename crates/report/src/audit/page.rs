//! The text in the making: lines, colours, stack traces.

use cuguard_registry::Fate;

use super::class::{Class, class};
use super::fold;
use super::names::short_name;
use super::prepare::{PreparedProcess, of};
use crate::paint::Tone;
use crate::phrase::printable;
use crate::rows::Row;
use crate::settings::GROUPS;
use crate::symbols::Frame;
use crate::words::in_columns;

/// Up to so many groups of what is not a finding are shown, each with its stack trace. More of them are in tables.
pub(super) const FEW: usize = 3;

/// The longest name of a function that has its parameters.
const LONGEST: usize = 80;

/// How a report is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// How many groups of each fate are shown, where the settings say it.
    pub(super) max: Option<usize>,
    pub(super) coloured: bool,
    /// Whether the diagnoses of refused allocations are in it.
    pub(super) diagnoses: bool,
}

pub(super) struct Page<'r, 'a> {
    pub(super) text: String,
    pub(super) prepared: &'r PreparedProcess<'a>,
    /// As [`PreparedProcess::folded`].
    pub(super) rows: &'r [Row<'a>],
    pub(super) options: Options,
}

impl Page<'_, '_> {
    pub(super) fn line(&mut self, text: impl AsRef<str>) {
        self.text.push_str(text.as_ref());
        self.text.push('\n');
    }

    pub(super) fn paint(&self, tone: Tone, text: &str) -> String {
        tone.paint(text, self.options.coloured)
    }

    /// How many groups of each fate are shown.
    pub(super) fn max(&self) -> usize {
        self.options.max.unwrap_or(GROUPS)
    }

    /// Whether each group is shown of what is not a finding. Otherwise, there are tables of them.
    pub(super) fn is_listed(&self, fate: Fate) -> bool {
        let is_wanted = self.options.max.is_some() || self.prepared.all_frames;
        is_wanted || self.of(fate).len() <= FEW
    }

    pub(super) fn of(&self, fate: Fate) -> &[Row<'_>] {
        of(self.rows, fate)
    }

    /// The frames of a stack trace that is not marked yet.
    pub(super) fn folded(&mut self, frames: &[Frame]) {
        let mut frames = frames.to_vec();
        if !self.prepared.all_frames {
            fold::mark(&mut frames);
        }
        self.frames(&frames);
    }

    /// The marked frames, and how many others there are.
    pub(super) fn frames(&mut self, frames: &[Frame]) {
        if frames.is_empty() {
            return self.line("    at an unknown call site");
        }
        let shown = frames.iter().filter(|frame| frame.in_app);
        let rows: Vec<_> = shown.map(|frame| self.frame(frame)).collect();
        for line in in_columns(&rows, |location| self.paint(Tone::Quiet, location)) {
            self.line(format!("    {line}"));
        }
        if let Some(hidden) = fold::hidden(frames) {
            let hidden = self.paint(Tone::Quiet, &printable(&hidden));
            self.line(format!("    {hidden}"));
        }
    }

    /// The name of a frame, and its line; without one the module.
    pub(super) fn frame(&self, frame: &Frame) -> (String, String) {
        let name = self.name(frame);
        let symbol = &frame.symbol;
        let location = match (&symbol.file, symbol.line, &frame.module) {
            (Some(file), Some(line), _) => format!("{}:{line}", self.prepared.paths.shorten(file)),
            (Some(file), None, None) => file.clone(),
            (_, _, Some(module)) if symbol.function.is_some() => module.name().to_owned(),
            _ => String::new(),
        };
        (name, printable(&location).into_owned())
    }

    /// The name of a function; of a library, and where it is long, without parameters.
    fn name(&self, frame: &Frame) -> String {
        let name = frame.name();
        let is_short = name.len() <= LONGEST && class(frame) == Class::User;
        match is_short || self.prepared.all_frames {
            true => printable(&name).into_owned(),
            false => printable(&short_name(&name)).into_owned(),
        }
    }
}
