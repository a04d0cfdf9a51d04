//! Pages from the operating system, and what it tells about them.
//!
//! Large blocks and host memory come from here and not from the heap: fresh pages cost nothing
//! until they are touched, while the heap clears what it hands out again. And a page can be made
//! inaccessible.

use std::ffi::c_void;

use crate::memory_block::Address;

/// The page of the host.
pub(crate) const HOST_PAGE: usize = 4096;
/// No program has more addresses than this.
const MOST: usize = 1 << 47;

const PROT_NONE: i32 = 0;
const PROT_READ_WRITE: i32 = 1 | 2;
const MAP_PRIVATE: i32 = 0x02;
const MAP_FIXED: i32 = 0x10;
const MAP_ANONYMOUS: i32 = 0x20;
const MAP_NORESERVE: i32 = 0x4000;
const MADV_DONTNEED: i32 = 4;

unsafe extern "C" {
    fn mmap(at: *mut c_void, len: usize, prot: i32, flags: i32, file: i32, off: i64)
    -> *mut c_void;
    fn munmap(at: *mut c_void, len: usize) -> i32;
    fn madvise(at: *mut c_void, len: usize, advice: i32) -> i32;
    /// Which pages of a range are in memory; fails where one is not mapped.
    fn mincore(at: *mut c_void, len: usize, resident: *mut u8) -> i32;
    fn write(file: i32, bytes: *const c_void, len: usize) -> isize;
}

/// Writes a line to file descriptor 2. Past the `eprintln!` of the standard library, whose output a
/// test harness keeps until a test has ended: a process that aborts would take it along. Past its
/// lock too, which a thread may hold that waits for this one.
pub(crate) fn say(line: &str) {
    const STDERR: i32 = 2;
    let line = format!("cuguard-sim: {line}\n");
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        // SAFETY: these bytes can be read.
        let written = unsafe { write(STDERR, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(written @ 1..) => rest = &rest[written.min(rest.len())..],
            _ if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            // Without a stderr there is nobody to tell.
            _ => return,
        }
    }
}

/// Pages of their own, zeroed, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    start: Address,
    len: usize,
}

impl Pages {
    /// Room for `len` bytes, or `None` if the host has no more.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let len = len.checked_next_multiple_of(HOST_PAGE)?;
        if len == 0 || len > MOST {
            return None;
        }
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        // SAFETY: a new mapping, at a place that the system chooses, touches nothing.
        let at = unsafe { mmap(std::ptr::null_mut(), len, PROT_READ_WRITE, flags, -1, 0) };
        // It answers -1 on failure.
        let start = Address::new(at.cast()).filter(|_| at as isize != -1)?;
        Some(Self { start, len })
    }

    pub(crate) fn start(&self) -> Address {
        self.start
    }

    /// Gives the memory back and keeps the addresses: nothing else comes to lie there, and whoever
    /// still uses them faults.
    pub(crate) fn seal(&self) {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
        // SAFETY: the pages are this mapping's own, and the caller has ended their use.
        unsafe {
            mmap(
                self.start.as_ptr().cast(),
                self.len,
                PROT_NONE,
                flags,
                -1,
                0,
            )
        };
        // Where that fails (too many mappings), the pages simply stay until they are unmapped.
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let at = self.start.as_ptr().cast();
        // SAFETY: the pages are this mapping's own, and nobody uses them any more.
        unsafe {
            // With too many mappings a hole cannot be made. Then the addresses are lost, but not
            // the memory.
            if munmap(at, self.len) != 0 {
                madvise(at, self.len, MADV_DONTNEED);
            }
        }
    }
}

/// Whether the program has memory all over a range.
pub(crate) fn is_mapped(start: Address, len: usize) -> bool {
    /// How many pages are asked about at once.
    const BATCH: usize = 4096;
    let first = start.as_ptr() as usize / HOST_PAGE * HOST_PAGE;
    let end = (start.as_ptr() as usize).checked_add(len);
    let Some(end) = end.filter(|_| len <= MOST) else {
        return false;
    };
    let mut resident = [0; BATCH];
    (first..end).step_by(BATCH * HOST_PAGE).all(|at| {
        let len = (end - at).min(BATCH * HOST_PAGE);
        // SAFETY: there is a byte for every page of the range; the pages are only asked about.
        unsafe { mincore(at as *mut c_void, len, resident.as_mut_ptr()) == 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_mapped_while_they_live() {
        let pages = Pages::new(10 * HOST_PAGE + 1).unwrap();
        let start = pages.start();
        assert!(is_mapped(start, 11 * HOST_PAGE));
        // SAFETY: the first byte of pages of our own.
        assert_eq!(unsafe { start.as_ptr().read() }, 0);
        pages.seal();
        assert!(is_mapped(start, 11 * HOST_PAGE), "the addresses are kept");
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
}
