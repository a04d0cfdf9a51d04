//! Where the program and its libraries are.

use std::ops::Range;

/// The addresses of the module that an address is in; empty if it is in none.
pub(crate) fn module_range(address: usize) -> Range<usize> {
    let modules = cuguard_stack::modules().into_iter();
    let mut around = modules.filter(|module| module.contains(address));
    around.next().map_or(0..0, |module| module.range())
}
