//! The ways to the driver, and the wrappers at the end of each.
//!
//! ```text
//!     direct linking        ──► exports ─────────────────────┐
//!     dlsym, dlvsym         ──► lookup ──► wrapper's address ├──► calls ──► real
//!     cuGetProcAddress(_v2) ──► proc_address ────────────────┘
//! ```
//!
//! - `table` lists the recorded functions; `exports` has a wrapper for each.
//! - `counted` counts calls of functions that are not recorded and look as if they allocate.
//!
//! Must not know how a call is recorded.

mod counted;
mod exports;
mod lookup;
pub(crate) mod proc_address;
mod table;

pub(crate) use table::Function;
