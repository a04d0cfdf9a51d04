//! Out-of-memory recovery: the steps before an allocation fails, and the facts for the diagnosis. The same steps run
//! for driver calls that allocate an unknown number of bytes: a stream, an event, a module, a memory pool, a launch.
//!
//! ```text
//!     an allocation ── fails ──► retry: deferred frees, compact, callbacks, wait, trim, other processes,
//!                                   │    each with another attempt
//!                                   │ still fails
//!                                   ▼
//!                                gather ──► OutOfMemory (plain data, in `oom`)
//! ```
//!
//! The steps run outside the gate of the context, because callbacks are the program's code and may drop any guard. In
//! this folder only `probe` allocates device memory. Teardown waits for running callbacks before it closes the gate.
//! This folder must not know guards and scopes.

mod compaction;
mod frees;
mod gather;
mod other_processes;
mod pools;
mod probe;
mod processes;
mod retry;

pub(crate) use gather::{context_refused, diagnose};
pub(crate) use probe::largest_block;
pub(crate) use retry::{retry, with_recovery, without_recovery};

/// The operation that errors name.
const OPERATION: &str = "out of memory";
