//! Where the program and its libraries are.

use std::ops::Range;

/// The frames of the module that an address is in, as stack traces have them; empty if it is in none.
pub(crate) fn module_frames(address: usize) -> Range<usize> {
    let modules = cuguard_stack::modules().into_iter();
    let mut around = modules.filter(|module| module.contains(address));
    let Some(range) = around.next().map(|module| module.range()) else {
        return 0..0;
    };
    // A return address is behind the call.
    let start = cuguard_stack::frame_at(range.start + 1) - 1;
    start..start + range.len()
}
