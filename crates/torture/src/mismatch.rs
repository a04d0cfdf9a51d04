//! Differences between the crate under test and the model.

use std::fmt::Debug;

/// A difference from the model, as text.
#[derive(Debug)]
pub struct Mismatch(pub String);

/// The result of a check.
pub type Check<T = ()> = Result<T, Mismatch>;

impl From<cuguard::Error> for Mismatch {
    fn from(error: cuguard::Error) -> Self {
        Self(format!("an unexpected error: {error}"))
    }
}

pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(Mismatch(what())) }
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
    WrongContext,
    WrongLength,
}

pub fn expect<T>(what: &str, result: cuguard::Result<T>, expected: Expected) -> Check<Option<T>> {
    use cuguard::Error;
    let is = match &result {
        Ok(_) => Expected::Success,
        Err(Error::ContextClosed { .. }) => Expected::Closed,
        Err(Error::WrongContext { .. }) => Expected::WrongContext,
        Err(Error::LengthMismatch { .. }) => Expected::WrongLength,
        Err(error) => return Err(Mismatch(format!("{what}: {error}, expected {expected:?}"))),
    };
    ensure_eq(what, is, expected)?;
    Ok(result.ok())
}
