//! The search on demand, for programs and tests.

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::time::Duration;

use super::{Entered, Limits, Target, search};
use crate::cancel;

/// Searches the process for addresses, and writes a line for each: `reachable: ` and from where, `lost`, `lost: only in `
/// and in what lost memory, or `alive` for one that was not found by a search that could not read all of the process. A last
/// line says what was searched.
///
/// `masked` has two words for each of `count` address ranges: the first address, combined with `mask` by exclusive or, and
/// the length (zero for a handle). Masked, the caller's own list is not found. The search ends after `seconds`; zero stands
/// for the default, five. At most `size` bytes are written to `text`, the terminating zero included. Returns how many were
/// found, or -1 for a null pointer or a failure.
///
/// # Safety
/// `masked` has `2 * count` words, and `text` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cuguard_audit_search(
    masked: *const u64,
    count: usize,
    mask: u64,
    seconds: u32,
    text: *mut c_char,
    size: usize,
) -> c_int {
    let before = cancel::disable();
    // SAFETY: as for the caller.
    let found = unsafe { search_for(masked, count, mask, seconds, text, size) };
    cancel::restore(before);
    found
}

unsafe fn search_for(
    masked: *const u64,
    count: usize,
    mask: u64,
    seconds: u32,
    text: *mut c_char,
    size: usize,
) -> c_int {
    let _entered = Entered::here();
    if (masked.is_null() && count != 0) || (text.is_null() && size != 0) {
        return -1;
    }
    let result = catch_unwind(AssertUnwindSafe(|| {
        let targets: Vec<Target> = (0..count)
            .map(|index| {
                // SAFETY: see the function's own requirement.
                let (start, len) = unsafe { (*masked.add(2 * index), *masked.add(2 * index + 1)) };
                Target {
                    start: start ^ mask,
                    len,
                    is_managed: false,
                }
            })
            .collect();
        let mut limits = Limits::default();
        if seconds != 0 {
            limits.time = Duration::from_secs(seconds.into());
        }
        let outcome = search(&targets, limits);
        let mut lines = String::new();
        for target in 0..targets.len() {
            match outcome.place(target) {
                Some(place) if place.is_reachable() => {
                    lines.push_str(&format!("reachable: {place}\n"));
                }
                Some(place) => lines.push_str(&format!("lost: only in {place}\n")),
                None if outcome.all_searched => lines.push_str("lost\n"),
                None => lines.push_str("alive\n"),
            }
        }
        let (bytes, time) = (outcome.bytes_searched, outcome.elapsed.as_secs_f64());
        lines.push_str(&format!("searched {bytes} bytes in {time:.3} s"));
        if let Some(reason) = &outcome.cut_short {
            lines.push_str(&format!("; {reason}"));
        }
        lines.push('\n');
        if size > 0 {
            // SAFETY: see the function's own requirement.
            let text = unsafe { slice::from_raw_parts_mut(text.cast::<u8>(), size) };
            let length = lines.len().min(size - 1);
            text[..length].copy_from_slice(&lines.as_bytes()[..length]);
            text[length] = 0;
        }
        let found = (0..targets.len()).filter_map(|target| outcome.place(target));
        let found = found.filter(|place| place.is_reachable()).count();
        c_int::try_from(found).unwrap_or(c_int::MAX)
    }));
    result.unwrap_or(-1)
}
