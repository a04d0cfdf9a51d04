//! Why a report is not written, and the exit codes.

use std::io;
use std::path::PathBuf;

use cuguard_view::ViewError;

pub(crate) const BAD_REQUEST: u8 = 2;

const NOT_WRITTEN: u8 = 4;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    View(#[from] ViewError),
    #[error("{}: cannot be written: {error}", path.display())]
    Output { path: PathBuf, error: io::Error },
    #[error("{}: is not written: {why}", path.display())]
    Refused { path: PathBuf, why: &'static str },
    #[error("cannot write: {0}")]
    Standard(io::Error),
    #[error("{option} has no effect on {what}; accepted with {accepted}")]
    NoEffect {
        option: &'static str,
        what: String,
        accepted: &'static str,
    },
}

impl Failure {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::View(ViewError::Write { .. }) | Self::Output { .. } | Self::Standard(_) => {
                NOT_WRITTEN
            }
            Self::View(_) | Self::Refused { .. } | Self::NoEffect { .. } => BAD_REQUEST,
        }
    }
}
