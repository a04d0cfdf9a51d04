//! Pages from the operating system.
//!
//! Large blocks and host memory use these and not the heap: new pages cost nothing until they are
//! touched, while the heap clears memory that it reuses. And pages can be made inaccessible.

use std::ptr::{self, NonNull};
use std::sync::LazyLock;

use libc::{
    _SC_PAGESIZE, MADV_DONTNEED, MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE,
    PROT_NONE, PROT_READ, PROT_WRITE, RLIM_INFINITY, RLIMIT_AS, getrlimit, madvise, mincore, mmap,
    munmap, rlimit, sysconf,
};

/// The size of the host's pages: 4 KiB, and on aarch64 also 16 or 64 KiB.
pub(crate) fn host_page() -> usize {
    static SIZE: LazyLock<usize> = LazyLock::new(|| {
        // SAFETY: no requirements.
        let size = unsafe { sysconf(_SC_PAGESIZE) };
        usize::try_from(size).expect("the system has a page size")
    });
    *SIZE
}

/// The size of a process's address space.
const MAX_LEN: usize = 1 << 47;

const READ_WRITE: i32 = PROT_READ | PROT_WRITE;
const MAP_FLAGS: i32 = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

/// A pointer that any thread may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address(NonNull<u8>);

// SAFETY: the pointer is only a number. Functions that dereference it state what they require.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    pub(crate) fn new(pointer: *mut u8) -> Option<Self> {
        NonNull::new(pointer).map(Self)
    }

    pub(crate) fn as_ptr(self) -> *mut u8 {
        self.0.as_ptr()
    }
}

/// Zeroed pages, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Pages {
    start: Address,
    len: usize,
}

impl Pages {
    /// Pages for `len` bytes, or `None` if the host is out of memory.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let len = len.checked_next_multiple_of(host_page())?;
        if len == 0 || len > MAX_LEN {
            return None;
        }
        // SAFETY: a new mapping, at an address that the system chooses, affects no other memory.
        let at = unsafe { mmap(ptr::null_mut(), len, READ_WRITE, MAP_FLAGS, -1, 0) };
        let start = Address::new(at.cast()).filter(|_| at != MAP_FAILED)?;
        Some(Self { start, len })
    }

    pub(crate) fn start(&self) -> Address {
        self.start
    }

    /// Releases the memory of a part and keeps it mapped. It is zero afterwards.
    pub(crate) fn release(&self, offset: usize, len: usize) {
        let within = offset.checked_add(len).is_some_and(|end| end <= self.len);
        if within {
            let at = self.start.as_ptr().wrapping_add(offset).cast();
            // SAFETY: within the mapping, which belongs to this value; the caller has ended the
            // use of this part. If it fails, the memory stays.
            unsafe { madvise(at, len, MADV_DONTNEED) };
        }
    }

    /// Releases the memory and keeps the addresses mapped without access: nothing else is mapped
    /// there, and any use of them faults.
    pub(crate) fn seal(&self) {
        let at = self.start.as_ptr().cast();
        // SAFETY: the mapping belongs to this value, and the caller has ended its use.
        unsafe { mmap(at, self.len, PROT_NONE, MAP_FLAGS | MAP_FIXED, -1, 0) };
        // If that fails (too many mappings), the pages stay until they are unmapped.
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let at = self.start.as_ptr().cast();
        // SAFETY: the mapping belongs to this value, and nothing uses it any more.
        unsafe {
            // `munmap` may need to split a mapping, which fails if there are too many. Then the
            // addresses leak, but not the memory.
            if munmap(at, self.len) != 0 {
                madvise(at, self.len, MADV_DONTNEED);
            }
        }
    }
}

/// The most bytes that this process may map, if that is limited.
pub(crate) fn address_space_limit() -> Option<u64> {
    let mut limit = rlimit {
        rlim_cur: RLIM_INFINITY,
        rlim_max: RLIM_INFINITY,
    };
    // SAFETY: writes to `limit`. If it fails, there is no limit.
    unsafe { getrlimit(RLIMIT_AS, &raw mut limit) };
    (limit.rlim_cur != RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// How many pages are queried at once.
const BATCH: usize = 4096;

/// The pages that a range touches, in pieces of [`BATCH`] pages: address and length. `None` for a range that no process can have.
fn batches(start: usize, len: usize, page: usize) -> Option<impl Iterator<Item = (usize, usize)>> {
    let end = start.checked_add(len).filter(|_| len <= MAX_LEN)?;
    let first = start / page * page;
    let all = (first..end).step_by(BATCH * page);
    Some(all.map(move |at| (at, (end - at).min(BATCH * page))))
}

/// Whether all of a range is mapped.
pub(crate) fn is_mapped(start: Address, len: usize) -> bool {
    let Some(mut batches) = batches(start.as_ptr().addr(), len, host_page()) else {
        return false;
    };
    let mut resident = [0; BATCH];
    batches.all(|(at, len)| {
        // SAFETY: `resident` has a byte for every page of the piece; the pages are not accessed. It
        // fails if one of them is not mapped.
        unsafe { mincore(at as *mut _, len, resident.as_mut_ptr()) == 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_mapped_while_they_live() {
        let pages = Pages::new(10 * host_page() + 1).unwrap();
        let start = pages.start();
        assert!(is_mapped(start, 11 * host_page()));
        // SAFETY: the first byte of the mapping.
        assert_eq!(unsafe { start.as_ptr().read() }, 0);
        pages.seal();
        assert!(is_mapped(start, 11 * host_page()), "the addresses are kept");
    }

    #[test]
    fn hostile_lengths_are_answered() {
        let mut byte = 0;
        let byte = Address::new(&raw mut byte).unwrap();
        assert!(is_mapped(byte, 1));
        for len in [1 << 44, 1 << 47, (1 << 47) + 1, usize::MAX / 2, usize::MAX] {
            assert!(!is_mapped(byte, len), "{len}");
        }
        assert!(Pages::new(0).is_none());
        assert!(Pages::new(usize::MAX).is_none());
        assert!(Pages::new(1 << 60).is_none());
    }

    /// Where pages are longer, addresses that are multiples of 4 KiB alone are refused by the system.
    #[test]
    fn ranges_are_queried_in_pages_of_the_host() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            let start = 5 * page + 4096 % page + 24;
            let batches = |len| batches(start, len, page).unwrap().collect::<Vec<_>>();
            let first = start / page * page;
            assert_eq!(batches(1), [(first, start + 1 - first)]);
            let next = first + BATCH * page;
            assert_eq!(
                batches(BATCH * page),
                [(first, BATCH * page), (next, start - first)]
            );
        }
        assert!(batches(usize::MAX, 1, 4096).is_none());
    }
}
