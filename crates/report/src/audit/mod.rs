//! The report of a program without guards, which ran under `cuguard run`: what is lost and what is reachable, by call site
//! and by library, what grows, and what was alive at the peak.
//!
//! ```text
//!     Process ──► PreparedProcess ──► text ───┐
//!     (plain data)   │         json ───┼──► Rendered
//!                    │         github ─┘
//!      classes, rows, tables, growth
//! ```
//!
//! [`render`] is the entry point. This folder must not know how addresses are searched for, nor where reports are written.

mod class;
mod fold;
mod github;
mod growing;
mod json;
mod libraries;
mod names;
mod page;
mod prepare;
mod process;
mod sites;
mod table_text;
mod tables;
#[cfg(test)]
mod tests;
mod text;

use cuguard_registry::{Amount, Fate};

pub use self::class::FrameClass;
use self::class::{Class, class, origin};
pub use self::names::FrameNames;
use self::prepare::PreparedProcess;
pub use self::process::{DUMP, Failure, Process, Refused, Search};
use crate::fail_on::FailOn;
use crate::output::is_coloured;
use crate::settings::{Colour, ReportSettings};
use crate::symbols::{Frame, Symbols};

/// Keeps the frames of the program, or where there are none, those that may be.
pub(crate) fn user_frames(frames: &mut Vec<Frame>) {
    let is_user = |frame: &Frame| class(frame) == Class::User;
    match frames.iter().any(is_user) {
        true => frames.retain(is_user),
        false => {
            frames.drain(..origin(frames).unwrap_or(0));
            frames.retain(|frame| frame.in_app);
        }
    }
}

/// The functions of the program on a stack trace, innermost first; without any, the function of the library that asked for memory.
/// Equal for two calls of one function, also at different lines.
///
/// ```
/// assert!(cuguard_report::audit::program_functions(&[]).is_empty());
/// ```
#[must_use]
pub fn program_functions(stack: &[usize]) -> Vec<String> {
    let mut frames = Symbols::default().frames(stack, false);
    fold::mark(&mut frames);
    let shown = frames.iter().filter(|frame| frame.in_app);
    shown.map(|frame| frame.name().into_owned()).collect()
}

/// A report in the formats that the settings ask for, and its sums.
///
/// ```
/// use cuguard::report::ReportSettings;
/// use cuguard_report::audit::{Process, render};
///
/// let process = Process { pid: 42, command: "a.out".to_owned(), ..Process::default() };
/// let report = render(&process, &ReportSettings::text());
/// assert_eq!(report.line, "nothing is lost");
/// assert!(report.text.starts_with("cuguard: process 42 (a.out): nothing is lost"));
/// assert!(report.json.is_empty() && report.lost.is_zero());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rendered {
    /// Lines of text.
    pub text: String,
    /// One line of JSON, with a line break.
    pub json: String,
    /// Annotations for GitHub Actions.
    pub github: String,
    /// The sum, without a line break: `lost 12 MiB in 3 allocations; …`.
    pub line: String,
    /// What the program has the address of nowhere.
    pub lost: Amount,
    /// What is not freed, and can be.
    pub reachable: Amount,
    /// Memory that was destroyed with its context: the program did not free it.
    pub destroyed: Amount,
    /// How many call sites grow.
    pub growing: u64,
    /// How many allocations the driver refused for lack of memory.
    pub refused: u64,
}

impl Rendered {
    /// Whether there is a finding that sets the exit code.
    ///
    /// ```
    /// use cuguard::report::FailOn;
    /// use cuguard_report::audit::Rendered;
    ///
    /// let report = Rendered { refused: 1, ..Rendered::default() };
    /// assert!(!report.fails(FailOn::default()));
    /// assert!(report.fails("lost+oom".parse()?));
    /// # Ok::<(), cuguard::report::ParseFailOnError>(())
    /// ```
    #[must_use]
    pub fn fails(&self, fail_on: FailOn) -> bool {
        (fail_on.lost && self.lost.count != 0)
            || (fail_on.reachable && self.reachable.count != 0)
            || (fail_on.growth && self.growing != 0)
            || (fail_on.oom && self.refused != 0)
            || (fail_on.destroyed && self.destroyed.count != 0)
    }
}

/// Renders a report: names are resolved, suppressions are applied, and groups that a reader cannot tell apart are merged.
#[must_use]
pub fn render(process: &Process, settings: &ReportSettings) -> Rendered {
    let formats = settings.formats();
    let prepared = PreparedProcess::new(process, settings);
    let mut rendered = Rendered {
        line: text::line(&prepared),
        lost: prepared.amount(Fate::Lost),
        reachable: prepared.amount(Fate::Reachable),
        destroyed: prepared.destroyed_memory(),
        growing: prepared.growing.len() as u64,
        refused: prepared.refused_count(),
        ..Rendered::default()
    };
    if formats.text {
        let colour = settings.wanted_colour();
        // With JSON, the file gets that.
        let to_file = settings.file.is_some() && !formats.json;
        let coloured = match to_file {
            true => colour == Colour::Always,
            false => is_coloured(colour),
        };
        // Standard error has the diagnoses already.
        let options = text::Options {
            max: settings.max,
            coloured,
            diagnoses: to_file,
        };
        rendered.text = text::render(&prepared, options);
    }
    if formats.json {
        rendered.json = json::render(&prepared, settings.max) + "\n";
    }
    if formats.github {
        let root = std::env::var("GITHUB_WORKSPACE").ok();
        let fail_on = settings.wanted_fail_on();
        rendered.github = github::render(&prepared, settings.shown(), fail_on, root.as_deref());
    }
    rendered
}
