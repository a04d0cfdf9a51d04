//! What the runner answers when the crate under test does not do what it should.

use std::fmt::Debug;

/// What is wrong.
#[derive(Debug)]
pub struct Wrong(pub String);

/// Nothing, or what is wrong.
pub type Answer<T = ()> = Result<T, Wrong>;

impl From<cuguard::Error> for Wrong {
    fn from(error: cuguard::Error) -> Self {
        Self(format!("an error that should not be: {error}"))
    }
}

pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Answer {
    if holds { Ok(()) } else { Err(Wrong(what())) }
}

pub fn ensure_eq<T: PartialEq + Debug>(what: &str, is: T, expected: T) -> Answer {
    ensure(is == expected, || {
        format!("{what}: {is:?}, expected {expected:?}")
    })
}

/// What an operation is expected to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Success,
    Closed,
    WrongContext,
    WrongLength,
}

pub fn expect<T>(what: &str, result: cuguard::Result<T>, expected: Expected) -> Answer<Option<T>> {
    use cuguard::Error;
    let is = match &result {
        Ok(_) => Expected::Success,
        Err(Error::ContextClosed { .. }) => Expected::Closed,
        Err(Error::WrongContext { .. }) => Expected::WrongContext,
        Err(Error::LengthMismatch { .. }) => Expected::WrongLength,
        Err(error) => return Err(Wrong(format!("{what}: {error}, expected {expected:?}"))),
    };
    ensure_eq(what, is, expected)?;
    Ok(result.ok())
}
