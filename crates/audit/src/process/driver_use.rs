//! Whether the process uses the driver: one word, on a page that the kernel clears in every child with a copy of the memory.
//!
//! ```text
//!   NEW ── constructor ──► UNUSED ── first call ──► PREPARING ──► USED
//!    ▲                       ▲                          ▲            │ fork
//!    │ any fork              │ fork, unused             │ as above   ▼
//!    └───────────────────────┴──────────────────────────┘          FORKED
//! ```
//!
//! `fork` runs handlers in the child. `_Fork` and the system calls `fork` and `clone` do not: without a word that is cleared, such a
//! child would take its parent's records for its own, and locks that threads of the parent hold for locks of its threads.
//! A child of `vfork`, which shares the memory, sees its parent's word.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::facts;

/// The constructor has not run yet, or the memory is a copy and no handler of `fork` has run.
pub(crate) const NEW: u32 = 0;
/// The process has called no recorded function.
pub(crate) const UNUSED: u32 = 1;
/// A thread makes the preparations for the end.
pub(crate) const PREPARING: u32 = 2;
/// The preparations are made.
pub(crate) const USED: u32 = 3;
/// This is a forked child of a process that used the driver: the driver fails in it, and locks of the registry may be held
/// by threads that do not exist here.
pub(crate) const FORKED: u32 = 4;

/// A page of its own, for each size of pages that the architecture has: nothing else may be cleared.
#[cfg_attr(target_arch = "x86_64", repr(C, align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(65536)))]
struct Page(AtomicU32);

static PAGE: Page = Page(AtomicU32::new(NEW));

/// Whether the process or one that it was forked of has used the driver. Copied with the memory.
static EVER_USED: AtomicBool = AtomicBool::new(false);

#[inline]
pub(crate) fn get() -> &'static AtomicU32 {
    &PAGE.0
}

/// Runs in the constructor.
pub(crate) fn begin() {
    // Before Linux 4.14 this fails, and only children of `fork` are recognized.
    // SAFETY: whole pages of this library's zeroed data, which are private and without a file, and have nothing but the word.
    unsafe {
        libc::madvise(
            (&raw const PAGE).cast_mut().cast(),
            size_of::<Page>(),
            libc::MADV_WIPEONFORK,
        );
    }
    get().store(UNUSED, Ordering::Release);
}

/// Notes that the process uses the driver.
pub(crate) fn note_use() {
    EVER_USED.store(true, Ordering::Release);
}

/// Whether the process or one that it was forked of has used the driver.
pub(crate) fn was_ever_used() -> bool {
    EVER_USED.load(Ordering::Acquire)
}

/// Whether this process has used the driver. A child that shares its parent's memory (`vfork`) has not.
pub(crate) fn is_used() -> bool {
    get().load(Ordering::Acquire) == USED && facts::is_own_process()
}
