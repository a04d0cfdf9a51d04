//! What the process writes: its report, the record for `cuguard run`, its recording.
//!
//! - [`write`](mod@write) makes a report, writes it as the settings say and keeps the exit code that it asks for.
//! - [`run_folder`] has the record that `cuguard run` sums up.
//! - [`recording`] begins and ends the recording of the process.
//!
//! Nothing here knows when a report is made: [`lifecycle`](crate::lifecycle) decides that.

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "unit tests do not export functions in front of the C library"
    )
)]

pub(crate) mod recording;
pub(crate) mod run_folder;
mod write;

pub(crate) use write::{deliver, exit_now, make, print_why, replace_exit_code, write};
