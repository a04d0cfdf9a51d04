//! The check that two resources of one operation belong to one context.

use std::sync::Arc;

use crate::core::shared::context_state::ContextState;
use crate::error::{Error, Result};

/// Fails if the two are of different contexts. The names are those that the error shows, such as "the stream".
pub(crate) fn check(
    operation: &'static str,
    (one, of): (&'static str, &Arc<ContextState>),
    (other, of_other): (&'static str, &Arc<ContextState>),
) -> Result<()> {
    if Arc::ptr_eq(of, of_other) {
        return Ok(());
    }
    Err(Error::WrongContext {
        operation,
        one,
        one_context: of.number,
        other,
        other_context: of_other.number,
    })
}
