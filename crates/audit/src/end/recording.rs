//! The recording of the process, if `LEAK_REPORT` has the word `record`: every allocation, free, context and refused allocation.
//!
//! It begins with the first call of the driver, before anything is recorded. It ends with the report; before an exec it stays open, as
//! the exec may fail.

use cuguard_report::{ReportSettings, register_frames, start_recording};

use super::run_folder;
use crate::python;

/// Starts the recording, if there is one.
pub(super) fn begin(settings: &ReportSettings) {
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

/// The process ends.
pub(super) fn end() {
    cuguard_report::end_recording();
}
