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

use crate::Run;

/// What a page contains.
///
/// ```
/// let options = cuguard_view::page::Options::default();
/// assert_eq!(options.max_allocations, 1_000_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many allocations a page has, of all runs together. Beyond it, those that lived the shortest and are the smallest are left out, and the page
    /// says how many. What is alive at the peak, at an out-of-memory error or at the end is always kept.
    pub max_allocations: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_allocations: 1_000_000,
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
/// Those of `out`, and [`io::ErrorKind::InvalidInput`] without any run.
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
        let order = order::Order::of(run);
        overviews.push(overview::Overview::of(run, &order));
        let kept = thin::keep(run, &order, each);
        blobs.push(encode::blob(run, order, kept)?);
    }
    template::write(&overviews, &blobs, out)
}
