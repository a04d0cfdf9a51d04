//! Which modules are never unloaded, which addresses belong to a module, and how many modules were
//! unloaded.

use std::ops::Range;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::needed;
use crate::elf::{code, each, segments};

/// How many ranges of permanent code are known at most. Others are treated like those of modules that can be unloaded.
const MOST: usize = 64;

/// Start and end of code that is not unloaded before the table is: that of the module that this crate is linked into, of
/// libc, which it needs, and of the program with all libraries that it needs. The dynamic linker unloads only what was
/// loaded by `dlopen`.
static PERMANENT: [(AtomicUsize, AtomicUsize); MOST] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; MOST];

/// Records the permanent code. A repeated call records the same.
pub(super) fn record_permanent() {
    let own = record_permanent as fn() as usize;
    // Where this is only a stub in the program, libc is not found: it is one of those that the program needs.
    let libc = libc::dl_iterate_phdr as *const () as usize;
    let mut places = PERMANENT.iter();
    let mut record = |range: Range<usize>| {
        if let Some((low, high)) = places.next() {
            low.store(range.start, Ordering::Relaxed);
            high.store(range.end, Ordering::Relaxed);
        }
    };
    // Segments, not whole modules: another mapping may lie in the gaps between segments.
    for address in [own, libc] {
        let mut found = 0..0;
        each(|info| {
            let segment = segments(info).find(|segment| segment.contains(&address));
            found = segment.unwrap_or_default();
            !found.is_empty()
        });
        record(found);
    }
    needed::each_needed(|info| code(info).for_each(&mut record));
}

/// Records the permanent code, where no capture has.
pub(super) fn record_permanent_once() {
    static RECORDED: Once = Once::new();
    RECORDED.call_once(record_permanent);
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

    /// A library that is loaded while the program runs can be unloaded.
    #[test]
    fn what_the_program_needs_is_permanent() {
        record_permanent();
        let needed = libc::getauxval as *const () as usize;
        assert!(is_permanent(needed));
        // Of the C library's package, and needed by no program.
        for name in [c"libthread_db.so.1", c"libBrokenLocale.so.1"] {
            // SAFETY: a C string; the library has no constructor.
            let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) };
            if library.is_null() {
                cuguard_testing::not_run(
                    cuguard_testing::Requirement::DynamicLoader,
                    format_args!("{name:?}"),
                );
                continue;
            }
            record_permanent();
            each(|info| {
                let own = crate::elf::Dynamic::of(info).filter(|own| own.is_named(name));
                let loaded = own.and_then(|_| code(info).next());
                assert!(
                    loaded.is_none_or(|code| contains(code.start) && !is_permanent(code.start))
                );
                false
            });
            // SAFETY: opened above.
            unsafe { libc::dlclose(library) };
        }
    }

    #[test]
    fn unloaded_modules_are_counted() {
        assert!(unloaded().is_some());
    }
}
