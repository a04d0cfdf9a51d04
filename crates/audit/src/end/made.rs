//! A report that is ready to be written.

use cuguard_registry::Amount;

use super::Reason;

/// A report that is ready to be written. Formats that the settings do not ask for are empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    /// Lines of text.
    pub(crate) text: String,
    /// One line of JSON.
    pub(crate) json: String,
    /// Annotations for GitHub Actions.
    pub(crate) github: String,
    /// The sum, without a line break: `lost 12.00 MiB in 3 allocations; …`.
    pub(crate) line: String,
    /// What no memory of the process has the address of.
    pub(crate) lost: Amount,
    /// What is not freed, and can be.
    pub(crate) reachable: Amount,
    /// What was destroyed with its context.
    pub(crate) destroyed: Amount,
    /// How many call sites grow.
    pub(crate) growing: u64,
}

/// Makes the report. A stand-in without a search, until `crate::report` makes it: everything that is alive counts as lost.
pub(super) fn make(reason: &Reason) -> Made {
    let process = super::start::process();
    let failure = super::failure();
    let failure = failure.map_or(String::new(), |(function, code)| {
        format!("; {function} returned error {code}")
    });
    let mut lost = Amount::default();
    for kind in cuguard_registry::Kind::ALL {
        if kind.is_memory() {
            lost += crate::state::registry().totals(*kind).live();
        }
    }
    let (bytes, count) = (lost.bytes, lost.count);
    let line = format!("ended by {reason}{failure}; lost {bytes} B in {count} allocations");
    let [text, json, github] = crate::settings::get().wanted_formats();
    let sentence = format!("cuguard: process {process}: {line}\n");
    Made {
        text: if text {
            sentence.clone()
        } else {
            String::new()
        },
        json: if json {
            format!("{{\"reason\":\"{reason}\",\"lost\":{bytes}}}\n")
        } else {
            String::new()
        },
        github: if github { sentence } else { String::new() },
        line,
        lost,
        ..Made::default()
    }
}
