//! How calls reach the driver, and the wrappers that intercept them.
//!
//! ```text
//!     direct linking        ──► exports ─────────────────────┐
//!     dlsym                 ──► lookup ──► wrapper's address ├──► calls ──► real
//!     cuGetProcAddress(_v2) ──► proc_address ────────────────┤
//!     the cuguard crate     ──► crate_inside ────────────────┘
//! ```
//!
//! - `table` lists the recorded functions; `exports` has a wrapper for each.
//! - `counted` counts calls of functions that are not recorded and look as if they allocate.
//!
//! Must not know how a call is recorded.

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "unit tests do not export functions in front of the driver's"
    )
)]

mod counted;
mod crate_inside;
mod exports;
mod lookup;
mod proc_address;
mod table;
