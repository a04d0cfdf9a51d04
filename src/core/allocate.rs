//! One attempt to allocate, and why it failed.

use std::panic::Location;

use cuguard_driver::sys::CUresult;
use cuguard_registry::Kind;

use super::context_state::{ContextState, Entered};
use crate::error::{Error, Result};

/// What is asked for.
pub(crate) struct Request {
    pub(crate) operation: &'static str,
    /// `None` for what no guard holds.
    pub(crate) kind: Option<Kind>,
    /// 0 where nobody knows: what needs no memory does not come here.
    pub(crate) bytes: usize,
    pub(crate) site: &'static Location<'static>,
}

impl Request {
    /// For what the driver makes of memory without telling how much: a stream, a module, a launch.
    #[track_caller]
    pub(crate) fn of_unknown_size(operation: &'static str, kind: Option<Kind>) -> Self {
        Self {
            operation,
            kind,
            bytes: 0,
            site: Location::caller(),
        }
    }
}

/// Who says that there is not enough.
#[derive(Clone, Copy)]
pub(crate) enum Refused {
    /// The driver.
    Memory {
        function: &'static str,
        code: CUresult,
    },
    /// The budget of the context, of which this much was held.
    Limit { held: u64 },
}

/// Why an attempt did not succeed.
pub(crate) enum Failed {
    /// For want of memory.
    Short(Refused),
    /// For another reason.
    Other(Error),
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Self {
        Self::Short(refused)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Failed {
    /// The driver said no to so many bytes, which were taken from the budget.
    #[cold]
    #[inline(never)]
    pub(crate) fn by_driver(
        state: &ContextState,
        operation: &'static str,
        function: &'static str,
        code: CUresult,
        (kind, bytes): (Kind, usize),
    ) -> Self {
        state.budget.give_back(kind, bytes as u64);
        if code == CUresult::OUT_OF_MEMORY {
            return Self::Short(Refused::Memory { function, code });
        }
        match state.check(operation, function, code, Some(bytes as u64)) {
            Err(error) => Self::Other(error),
            Ok(()) => unreachable!("the code is an error"),
        }
    }

    /// Turns a code of the driver into a result, where nobody knows how many bytes it wanted.
    #[inline]
    pub(crate) fn check(
        entered: &Entered<'_>,
        function: &'static str,
        code: CUresult,
    ) -> Result<(), Self> {
        if code == CUresult::OUT_OF_MEMORY {
            return Err(Self::Short(Refused::Memory { function, code }));
        }
        Ok(entered.check(function, code)?)
    }
}
