//! An allocation that is requested, and why one attempt failed.

use std::panic::Location;

use cuguard_driver::result;
use cuguard_driver::sys::CUresult;
use cuguard_registry::ResourceKind;

use crate::core::shared::budget::Refused;
use crate::core::shared::context_state::Entered;
use crate::error::{Error, Result};

/// An allocation, as errors describe it.
pub(crate) struct Request {
    pub(crate) operation: &'static str,
    /// `None` for a launch of a kernel, which no guard owns.
    pub(crate) kind: Option<ResourceKind>,
    /// 0 where only the driver knows: a stream, a module, a launch.
    pub(crate) bytes: usize,
    pub(crate) site: &'static Location<'static>,
}

impl Request {
    /// For driver calls that allocate an unknown number of bytes: a stream, a module, a launch.
    #[track_caller]
    pub(crate) fn of_unknown_size(operation: &'static str, kind: Option<ResourceKind>) -> Self {
        Self {
            operation,
            kind,
            bytes: 0,
            site: Location::caller(),
        }
    }
}

/// Why an attempt failed.
pub(crate) enum Failed {
    /// Too little memory: recovery may help.
    OutOfMemory(Refused),
    /// Any other error. Boxed: a smaller `Result` makes the successful attempt cheaper.
    Other(Box<Error>),
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Self {
        Self::OutOfMemory(refused)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Other(Box::new(error))
    }
}

impl Failed {
    /// Turns the error of a driver call that allocates an unknown number of bytes into one of these.
    #[inline]
    pub(crate) fn check<T>(entered: &Entered<'_>, result: result::Result<T>) -> Result<T, Self> {
        match result {
            Err(error) if error.code == CUresult::OUT_OF_MEMORY => {
                Err(Self::OutOfMemory(Refused::Memory(error)))
            }
            result => Ok(entered.check(result)?),
        }
    }
}
