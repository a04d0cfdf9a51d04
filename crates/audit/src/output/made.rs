//! A report that is ready to be written.

use crate::process::{Reason, failure, settings};

/// A report that is ready to be written. Formats that the settings do not ask for are empty.
pub(crate) use cuguard_report::audit::Rendered as Made;

/// Makes the report.
pub(crate) fn make(reason: &Reason) -> Made {
    let settings = settings::get();
    crate::report::make(settings, &reason.to_string(), failure())
}
