//! The recording of the process, if `LEAK_REPORT` has the word `record`: every allocation, free, context and refused allocation.
//!
//! It begins with the first resource, context or refused allocation: a process that only asks the driver for devices, as launchers
//! of distributed jobs do, writes no file, and takes no other process's name. It ends with the report; before an exec it stays open, as
//! the exec may fail.

use std::panic::catch_unwind;
use std::sync::Once;

use cuguard_report::{ReportSettings, register_frames, start_recording};
use cuguard_sync::clock;

use super::run_folder;
use crate::process::settings;
use crate::{python, state};

/// Starts the recording, if one is wanted and it has not begun. A thread that comes second waits until it has.
#[cold]
pub(crate) fn begin() {
    static BEGUN: Once = Once::new();
    // Nothing may unwind into the program.
    BEGUN.call_once(|| drop(catch_unwind(|| start(settings::get()))));
}

fn start(settings: &ReportSettings) {
    if settings.recording_file().is_none() {
        return;
    }
    // Stacks are written when they are new, with the names of Python frames.
    register_frames(python::resolve);
    start_recording(settings);
    if let Some(path) = cuguard_recording::path() {
        run_folder::note_recording(path);
    }
}

/// The exit of the process begins: what is freed from now on does not hide what grew.
pub(crate) fn exit_begins() {
    cuguard_recording::record_exit_begins(clock::nanoseconds());
}

/// The process ends.
pub(crate) fn end() {
    if cuguard_recording::is_on() {
        let work = state::registry().other_work();
        if work.iter().any(|(_, count)| *count != 0) {
            cuguard_recording::record_work(work);
        }
    }
    cuguard_report::end_recording();
}
