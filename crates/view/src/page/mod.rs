//! A page of one run or many: one HTML file that needs no network and opens from disk.
//!
//! ```text
//!     Run ──► Order (events by time) ──► thin (what is too small to see) ──► encode (columns, deflated, base64) ──► template
//! ```
//!
//! The page computes what it shows from the allocations, in the browser: every moment can be chosen, not only those that were
//! thought of here. `assets/` has its parts, `vendor/` the libraries.
//!
//! Nothing of the recorded program is written as HTML: all of it is inside base64, and the scripts show it as text.
//!
//! This folder must not know how a recording is stored, nor which options the command line has.

mod column;
mod encode;
mod head;
mod order;
mod overview;
mod template;
mod thin;

use std::io::{self, Write};

use crate::{At, Run};

/// What a page contains.
///
/// ```
/// let options = cuguard_view::page::Options::default();
/// assert_eq!(options.max_allocations, 1_000_000);
/// assert_eq!(options.at, cuguard_view::At::Peak);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// How many allocations a page has, of all runs together. Beyond it, those that lived the shortest and are the smallest
    /// are left out, and the page says how many. What is alive at the peak, at an out-of-memory error, at the end or when
    /// the page opens is always kept.
    pub max_allocations: usize,
    /// The moment at which each run opens. Of a leak report [`At::Peak`] is the end: its peak is not known. [`At::Exit`] is
    /// the end: what ended with its context before is among the leaks.
    pub at: At,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_allocations: 1_000_000,
            at: At::Peak,
        }
    }
}

/// Writes one self-contained HTML file that shows `runs`.
///
/// ```
/// use cuguard_view::{Run, page};
///
/// let mut html = Vec::new();
/// page::write(&[Run::default()], &mut html, &page::Options::default())?;
/// assert!(html.starts_with(b"<!DOCTYPE html>"));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of `out`, and [`io::ErrorKind::InvalidInput`] without any run, or for a run without the moment of `options`.
pub fn write(runs: &[Run], out: &mut dyn Write, options: &Options) -> io::Result<()> {
    if runs.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a page needs at least one run",
        ));
    }
    let each = (options.max_allocations / runs.len()).max(1);
    let mut overviews = Vec::new();
    let mut blobs = Vec::new();
    // One run after the other: the tables of the largest are what the memory is needed for.
    for run in runs {
        let opens = opening_time(run, options.at)?;
        let order = order::Order::of(run);
        overviews.push(overview::Overview::of(run, &order));
        let kept = thin::keep(run, &order, each, opens);
        blobs.push(encode::blob(run, order, kept, opens)?);
    }
    template::write(&overviews, &blobs, out)
}

/// When a run opens; none for the peak, which the page computes. A leak report has none: it opens at its end, or before what ended with
/// its context did.
fn opening_time(run: &Run, at: At) -> io::Result<Option<u64>> {
    if at == At::Peak && !run.is_report {
        return Ok(None);
    }
    let moment = crate::moment(run, at);
    let moment = moment.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let ended = u64::from(run.is_report && moment.ended_unfreed().count != 0);
    Ok(Some(moment.time - ended))
}

#[cfg(test)]
mod tests {
    use super::{Options, write};
    use crate::{At, Run};

    #[test]
    fn a_moment_that_a_run_does_not_have_is_an_error() {
        let options = Options {
            at: At::Oom(None),
            ..Options::default()
        };
        let mut html = Vec::new();
        let error = write(&[Run::default()], &mut html, &options).expect_err("there is none");
        assert!(
            error
                .to_string()
                .contains("there was no out-of-memory error"),
            "{error}"
        );
        assert!(html.is_empty());
    }
}
