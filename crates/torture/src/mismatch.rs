//! Differences between the crate under test and the model.

use std::fmt::{self, Debug, Display};

/// Why a step stops.
#[derive(Debug)]
pub enum Stop {
    /// A difference from the model.
    Mismatch(String),
    /// Nothing fits the numbers of the step: it does nothing.
    NothingFits,
}

impl Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch(what) => f.write_str(what),
            Self::NothingFits => f.write_str("nothing fits"),
        }
    }
}

/// The result of a check.
pub type Check<T = ()> = Result<T, Stop>;

impl From<cuguard::Error> for Stop {
    fn from(error: cuguard::Error) -> Self {
        Self::Mismatch(format!("an unexpected error: {error}"))
    }
}

pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds {
        Ok(())
    } else {
        Err(Stop::Mismatch(what()))
    }
}

pub fn ensure_eq<T: PartialEq + Debug>(what: &str, is: T, expected: T) -> Check {
    ensure(is == expected, || {
        format!("{what}: {is:?}, expected {expected:?}")
    })
}

/// The expected result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Success,
    Closed,
    /// The context of page-locked memory is closed.
    HostClosed,
    WrongContext,
    WrongLength,
    /// It cannot be captured.
    Capture,
}

pub fn expect<T>(what: &str, result: cuguard::Result<T>, expected: Expected) -> Check<Option<T>> {
    use cuguard::Error;
    let is = match &result {
        Ok(_) => Expected::Success,
        Err(Error::ContextClosed { .. }) => Expected::Closed,
        Err(Error::HostContextClosed { .. }) => Expected::HostClosed,
        Err(Error::WrongContext { .. }) => Expected::WrongContext,
        Err(Error::LengthMismatch { .. }) => Expected::WrongLength,
        Err(Error::Capture { .. }) => Expected::Capture,
        Err(error) => {
            let text = format!("{what}: {error}, expected {expected:?}");
            return Err(Stop::Mismatch(text));
        }
    };
    ensure_eq(what, is, expected)?;
    Ok(result.ok())
}
