//! Which modules are never unloaded, which addresses belong to a module, and how many modules were
//! unloaded.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::elf::{each, segments};

/// Start and end of code that is not unloaded before the table is: that of the program, of the module
/// that this crate is linked into, and of libc, which the latter needs.
static PERMANENT: [(AtomicUsize, AtomicUsize); 3] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 3];

/// Records the permanent code. A repeated call records the same.
pub(super) fn record_permanent() {
    // SAFETY: this only reads a value from libc.
    let program = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    let own = record_permanent as fn() as usize;
    // Where this is only a stub in the program, libc is not found: its rules are then marked like
    // those of other modules.
    let libc = libc::dl_iterate_phdr as *const () as usize;
    // The segment with the address, not the whole module: another mapping may lie in the gaps between
    // segments.
    each(|info| {
        for segment in segments(info) {
            for ((low, high), address) in PERMANENT.iter().zip([program, own, libc]) {
                if segment.contains(&address) {
                    low.store(segment.start, Ordering::Relaxed);
                    high.store(segment.end, Ordering::Relaxed);
                }
            }
        }
        false
    });
}

/// Whether this address is in permanent code.
pub(super) fn is_permanent(address: usize) -> bool {
    PERMANENT.iter().any(|(low, high)| {
        let (low, high) = (low.load(Ordering::Relaxed), high.load(Ordering::Relaxed));
        (low..high).contains(&address)
    })
}

/// Whether this address is in a module that the dynamic linker knows.
pub(super) fn contains(address: usize) -> bool {
    let mut found = false;
    each(|info| {
        found = segments(info).any(|segment| segment.contains(&address));
        found
    });
    found
}

/// How many modules the dynamic linker has unloaded so far; `None` if it does not count them.
pub(super) fn unloaded() -> Option<u64> {
    let mut number = None;
    each(|info| {
        number = Some(info.dlpi_subs);
        true
    });
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_permanent_and_the_heap_is_no_module() {
        record_permanent();
        let code = record_permanent as fn() as usize;
        assert!(is_permanent(code) && contains(code));
        let heap = Box::new(0u8);
        let heap = &raw const *heap as usize;
        assert!(!is_permanent(heap) && !contains(heap));
    }

    #[test]
    fn unloaded_modules_are_counted() {
        assert!(unloaded().is_some());
    }
}
