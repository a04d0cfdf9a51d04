//! Stack traces by the crate `backtrace`, where there is no rule.

/// Fills `frames` by `backtrace`. With `first`, the frames before the one with that address are left
/// out; they belong to this crate and to the unwinder.
#[cold]
#[inline(never)]
pub(crate) fn trace(frames: &mut [usize], first: Option<usize>) -> usize {
    let count = trace_from(frames, first);
    if count == 0 && first.is_some() {
        // The unwinder stopped before the caller's frame: keep what it has found.
        return trace_from(frames, None);
    }
    count
}

fn trace_from(frames: &mut [usize], first: Option<usize>) -> usize {
    if frames.is_empty() {
        return 0;
    }
    let mut skipping = first.is_some();
    let mut count = 0;
    let visit = |frame: &backtrace::Frame| {
        let address = frame.ip() as usize;
        if address == 0 {
            return false;
        }
        if skipping && Some(address) != first {
            return true;
        }
        skipping = false;
        if let Some(frame) = frames.get_mut(count) {
            *frame = address;
            count += 1;
        }
        count < frames.len()
    };
    // The lock of `backtrace` serves the debug library of Windows. Not taken on Linux: a child that was
    // forked while another thread held it would deadlock.
    #[cfg(target_os = "linux")]
    // SAFETY: on Linux this calls only `_Unwind_Backtrace`, which any number of threads may call at once.
    unsafe {
        backtrace::trace_unsynchronized(visit);
    }
    #[cfg(not(target_os = "linux"))]
    backtrace::trace(visit);
    count
}
