//! When memory runs out: what is tried before an allocation fails, and what is found out for the
//! error that tells why. The same for what takes memory without saying how much: a stream, an event, a
//! module, a memory pool, a launch.
//!
//! ```text
//!     an allocation ── refused ──► ladder: callbacks, wait, trim, each with another attempt
//!                                     │ still refused
//!                                     ▼
//!                                  gather ──► OutOfMemory (plain data, in `oom`)
//! ```
//!
//! The ladder is climbed outside the gate of the context: callbacks are the program's, and may drop
//! whatever they like. Nothing here takes device memory. Teardown waits a while for callbacks that are
//! being called before it closes the gate.

mod frees;
mod gather;
mod pools;
mod probe;
mod processes;
mod retry;

pub(crate) use gather::context_refused;
pub(crate) use probe::largest_block;
pub(crate) use retry::{guessing, satisfy};

const OPERATION: &str = "out of memory";
