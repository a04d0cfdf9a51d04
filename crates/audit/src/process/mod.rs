//! The process that the library is in: what it had when it started, whether it uses the driver, the settings of its reports.
//!
//! - [`facts`] is what it had when it started, and whose memory this is: a child of `fork` or `vfork` is another process.
//! - [`driver_use`] says whether it uses the driver, also in a child that no handler of `fork` has run in.
//! - [`settings`] are those of the report, [`sticky`] is the error after which the driver fails every call, and [`Reason`] is why a
//!   report is made.
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
