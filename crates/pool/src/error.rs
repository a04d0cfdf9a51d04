//! Why the pool has no memory.

use std::fmt::Debug;

/// The error of a pool's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError<E: Debug> {
    /// The driver refused a call.
    #[error("{function} failed: {error:?}")]
    Driver {
        /// The function of [`Driver`](crate::Driver).
        function: &'static str,
        /// The driver's error.
        error: E,
    },
    /// The pool would hold more than its limit.
    #[error("the pool holds {held} bytes of at most {limit}")]
    Limit {
        /// The physical memory that it holds, in bytes.
        held: u64,
        /// The limit in its settings.
        limit: u64,
    },
    /// The driver refused to map memory that live blocks are in. It is not lost; every operation retries first.
    #[error("{windows} pages with live blocks could not be mapped again")]
    Stuck {
        /// How many pages.
        windows: usize,
    },
}
