//! The calling thread's stream capture mode.

use cuguard_sys::CUstreamCaptureMode;

use super::{read, write_out};
use crate::result::DriverResult;
use crate::thread_state;

/// Like a real driver, accepts any number.
pub unsafe fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let new = unsafe { read(mode) }?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(mode, thread_state::replace_capture_mode(new)) }
}
