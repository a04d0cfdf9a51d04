//! The process that loaded the library: its state at the start, whether it uses the driver, and the settings of its
//! reports.
//!
//! - [`facts`] has the state of the process at its start, and the process that owns this memory: a child of `fork`
//!   or `vfork` is another process.
//! - [`driver_use`] returns whether the process uses the driver, also in a child in which no `fork` handler has run.
//! - [`settings`] has the settings of the report, [`sticky`] the error after which the driver fails every call, and
//!   [`Reason`] why a report is made.
//!
//! Plain facts: this must not know how a report is made or written, nor how the process ends.

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "unit tests do not export functions in front of the C library"
    )
)]

pub(crate) mod driver_use;
pub(crate) mod facts;
mod reason;
pub(crate) mod settings;
mod sticky;

pub(crate) use driver_use::is_used;
pub(crate) use reason::Reason;
pub(crate) use sticky::{failed, failure};
