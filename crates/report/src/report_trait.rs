//! Snapshots as text and JSON, for programs that print them.

use std::fmt;

use cuguard_registry::Snapshot;

use crate::prepare::{PreparedSnapshot, View};
use crate::settings::{Colour, ReportSettings};
use crate::text::Look;
use crate::{json, text};

/// Renders a [`Snapshot`]. A trait, because snapshots are plain data of another crate; it is in the prelude.
///
/// ```
/// use cuguard::report::{Report, ReportSettings};
/// use cuguard::snapshot::Snapshot;
///
/// let snapshot = Snapshot::default();
/// assert!(snapshot.display().to_string().contains("nothing"));
/// assert!(snapshot.to_text(&ReportSettings::text().max(10)).contains("nothing"));
/// assert!(snapshot.to_json().starts_with(r#"{"version":1,"tool":"cuguard""#));
/// ```
pub trait Report {
    /// The report as text, with all groups. `{:.3}` shows the three largest.
    fn display(&self) -> impl fmt::Display + '_;

    /// The report as text with these settings: how many groups and frames are shown, what is suppressed, and colours,
    /// which only [`Colour::Always`] turns on, because the destination is not known here.
    #[must_use]
    fn to_text(&self, settings: &ReportSettings) -> String;

    /// The report as JSON, with all groups: one object on one line. `docs/leak-report-schema.md` is its schema.
    #[must_use]
    fn to_json(&self) -> String;
}

impl Report for Snapshot {
    fn display(&self) -> impl fmt::Display + '_ {
        DisplaySnapshot(self)
    }

    fn to_text(&self, settings: &ReportSettings) -> String {
        let look = Look {
            max: Some(settings.shown()),
            coloured: settings.wanted_colour() == Colour::Always,
        };
        text::render(&PreparedSnapshot::new(self, View::of(settings)), look)
    }

    fn to_json(&self) -> String {
        json::render(&PreparedSnapshot::new(self, View::PLAIN), None)
    }
}

struct DisplaySnapshot<'a>(&'a Snapshot);

impl fmt::Display for DisplaySnapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let look = Look {
            max: f.precision(),
            coloured: false,
        };
        f.write_str(text::render(&PreparedSnapshot::new(self.0, View::PLAIN), look).trim_end())
    }
}
