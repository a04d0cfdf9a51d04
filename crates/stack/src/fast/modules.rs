//! The modules of the process, as the loader tells: which stay, which hold an address, and how many
//! are gone.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{PT_LOAD, dl_phdr_info};

/// Start and end of code that is never unloaded before the table is: that of the program, of the
/// module that this crate is linked into, and of libc, which the latter needs.
static STAYING: [(AtomicUsize, AtomicUsize); 3] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 3];

/// Notes the code that stays. It may be called again at any time, and notes the same.
pub(super) fn note_staying() {
    // SAFETY: this is a question to libc.
    let program = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    let own = note_staying as fn() as usize;
    // Where this is only a stub in the program, libc is not found: its rules are then marked like
    // those of other modules.
    let libc = libc::dl_iterate_phdr as *const () as usize;
    // The segment with the address, and not the whole module: something else may lie in the gaps
    // between segments.
    each(|info| {
        for segment in segments(info) {
            for (place, address) in STAYING.iter().zip([program, own, libc]) {
                if segment.contains(&address) {
                    place.0.store(segment.start, Ordering::Relaxed);
                    place.1.store(segment.end, Ordering::Relaxed);
                }
            }
        }
        false
    });
}

/// Whether this address lies in code that stays.
pub(super) fn stays(address: usize) -> bool {
    STAYING.iter().any(|(low, high)| {
        let (low, high) = (low.load(Ordering::Relaxed), high.load(Ordering::Relaxed));
        (low..high).contains(&address)
    })
}

/// Whether this address lies in a module that the loader knows.
pub(super) fn contains(address: usize) -> bool {
    let mut found = false;
    each(|info| {
        found = segments(info).any(|segment| segment.contains(&address));
        found
    });
    found
}

/// How many modules the loader has unloaded so far; `None` if it does not tell.
pub(super) fn unloaded() -> Option<u64> {
    let mut number = None;
    each(|info| {
        number = Some(info.dlpi_subs);
        true
    });
    number
}

/// Calls `visit` with each module until it answers `true`.
fn each<F: FnMut(&dl_phdr_info) -> bool>(mut visit: F) {
    unsafe extern "C" fn call<F: FnMut(&dl_phdr_info) -> bool>(
        info: *mut dl_phdr_info,
        size: usize,
        visit: *mut c_void,
    ) -> c_int {
        if size < size_of::<dl_phdr_info>() {
            // A loader from before it counted. Nothing is known then, and nothing stays.
            return 1;
        }
        // SAFETY: the loader passes a valid `info` of this size.
        let info = unsafe { &*info };
        // SAFETY: it is the pointer that is passed below, to a value that outlives the call.
        let visit = unsafe { &mut *visit.cast::<F>() };
        c_int::from(visit(info))
    }
    // SAFETY: `call::<F>` fits the pointer to an `F` that goes with it.
    unsafe { libc::dl_iterate_phdr(Some(call::<F>), (&raw mut visit).cast()) };
}

/// The loaded segments of a module.
fn segments(info: &dl_phdr_info) -> impl Iterator<Item = Range<usize>> {
    let headers: &[_] = if info.dlpi_phdr.is_null() {
        &[]
    } else {
        // SAFETY: the loader says that there are as many headers.
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
    };
    let base = info.dlpi_addr as usize;
    headers
        .iter()
        .filter(|header| header.p_type == PT_LOAD)
        .map(move |header| {
            let start = base.wrapping_add(header.p_vaddr as usize);
            start..start.wrapping_add(header.p_memsz as usize)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_stays_and_the_heap_is_no_module() {
        note_staying();
        let code = note_staying as fn() as usize;
        assert!(stays(code) && contains(code));
        let heap = Box::new(0u8);
        let heap = &raw const *heap as usize;
        assert!(!stays(heap) && !contains(heap));
    }

    #[test]
    fn the_loader_counts() {
        assert!(unloaded().is_some());
    }
}
