//! Why something cannot be shown.

use std::io;
use std::path::PathBuf;

/// Why something cannot be shown. Each names the input and what is accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A file is neither a recording nor a report.
    #[error("{}: {why}; accepted are recordings (cuguard run --record FILE, LEAK_REPORT=record) and leak reports in JSON", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is, or why it is refused.
        why: String,
    },
    /// A word that is not a moment.
    #[error("{word:?} is not a moment; accepted are {MOMENTS}")]
    At {
        /// The word.
        word: String,
    },
    /// A moment that the run does not have.
    #[error("{source_name}: {why}")]
    NoMoment {
        /// The file of the run.
        source_name: String,
        /// What is missing.
        why: String,
    },
    /// A word that names no way to group.
    #[error("{word:?} is none of stack, function, library, label, thread, stream, size, kind")]
    By {
        /// The word.
        word: String,
    },
    /// A picture or a profile cannot be made.
    #[error("{what}: {error}")]
    Write {
        /// What is made.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
}

/// The forms of a moment, for messages and help.
pub(crate) const MOMENTS: &str = "peak, exit, oom (the last), oom:N (the Nth), a time since the begin such as 12.5s, 800ms or 2min, and a share of the run such as 50%";
