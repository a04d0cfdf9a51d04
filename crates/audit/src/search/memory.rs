//! Reads the process's own memory without faults: another thread may unmap it meanwhile.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// The bit of an entry of `pagemap` for a page of `MADV_GUARD_INSTALL`. Systems that do not have it leave it clear.
const GUARD: u32 = 58;

/// The system forbids `process_vm_readv`, as some sandboxes do.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Files of the process that reading needs, opened once. Shared by threads.
pub(super) struct Memory {
    /// The thread that opened it. The process's number is that of the main thread, whose memory cannot be read once it
    /// has ended.
    thread: libc::pid_t,
    /// The fallback for `process_vm_readv`.
    contents: Option<File>,
    /// One entry of 8 bytes for each page.
    pages: Option<File>,
    /// The size of the system's pages. On aarch64, it is 4, 16 or 64 KiB.
    page: u64,
    /// Memory that exists could not be read.
    refused: AtomicBool,
}

/// The size of the system's pages.
fn page_size() -> u64 {
    // SAFETY: no requirements.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).expect("the system has a page size")
}

impl Memory {
    pub(super) fn open() -> Memory {
        Memory {
            page: page_size(),
            thread: cuguard_sync::own_thread::id(),
            contents: File::open("/proc/thread-self/mem").ok(),
            pages: File::open("/proc/thread-self/pagemap").ok(),
            refused: AtomicBool::new(false),
        }
    }

    /// As if the system's pages had this size.
    #[cfg(test)]
    pub(super) fn with_page(page: u64) -> Memory {
        Memory {
            page,
            ..Memory::open()
        }
    }

    /// The size of a page, which is read as a whole or not at all.
    pub(super) fn page(&self) -> u64 {
        self.page
    }

    /// Whether the system has refused to read memory, whatever the address.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Reads from an address; returns how many bytes could be read before the first that could not.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> usize {
        if !REFUSED.load(Ordering::Relaxed) {
            let local = libc::iovec {
                iov_base: into.as_mut_ptr().cast(),
                iov_len: into.len(),
            };
            let remote = libc::iovec {
                iov_base: std::ptr::without_provenance_mut(address as usize),
                iov_len: into.len(),
            };
            // SAFETY: the local buffer is valid; the kernel checks the remote addresses.
            let read = unsafe { libc::process_vm_readv(self.thread, &local, 1, &remote, 1, 0) };
            if read >= 0 {
                return read.cast_unsigned();
            }
            // SAFETY: the thread's own variable.
            let code = unsafe { *libc::__errno_location() };
            if code == libc::EFAULT {
                return 0;
            }
            REFUSED.store(true, Ordering::Relaxed);
        }
        let contents = self.contents.as_ref();
        let read = contents.map(|contents| contents.read_at(into, address));
        match read {
            Some(Ok(read)) => read,
            // What this file returns for an address without memory.
            Some(Err(error)) if error.raw_os_error() == Some(libc::EIO) => 0,
            _ => {
                self.refused.store(true, Ordering::Relaxed);
                0
            }
        }
    }

    /// Reads words; false unless all could be read.
    pub(super) fn words<const COUNT: usize>(&self, address: u64) -> Option<[u64; COUNT]> {
        let mut words = [0_u64; COUNT];
        (self.read(address, bytes_of(&mut words)) == COUNT * 8).then_some(words)
    }

    /// Whether pages have contents of their own, in memory or swapped out: an untouched page of an anonymous mapping
    /// holds nothing, and reading it would map it. One entry for each page from the address on; all of them "has
    /// contents" where the system does not say.
    pub(super) fn populated(&self, address: u64, entries: &mut [u64]) {
        let pages = self.pages.as_ref();
        let buffer = bytes_of(entries);
        let read = pages.and_then(|pages| {
            // Not `read_exact_at`, which would go on behind the end of the address space.
            // SAFETY: the buffer is valid.
            let read = unsafe {
                libc::pread(
                    pages.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    (address / self.page * 8).cast_signed(),
                )
            };
            usize::try_from(read).ok()
        });
        let read = read.unwrap_or(0) / 8;
        for entry in &mut entries[..read] {
            // A guard page looks like one that is swapped out, and cannot be read.
            *entry = match *entry >> GUARD & 1 {
                0 => *entry >> 62,
                _ => 0,
            };
        }
        entries[read..].fill(1);
    }
}

/// The words as bytes.
pub(super) fn bytes_of(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: any bytes are valid words, and the slice has this length.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd;

    use super::*;

    /// As in a sandbox that forbids the call. Other tests read either way.
    #[test]
    fn reads_without_process_vm_readv() {
        let memory = Memory::open();
        let values = [2_u64, 7, 1];
        REFUSED.store(true, Ordering::Relaxed);
        let read = memory.words::<3>(values.as_ptr().addr() as u64);
        let nothing = memory.words::<1>(16);
        REFUSED.store(false, Ordering::Relaxed);
        assert_eq!((read, nothing), (Some(values), None));
    }

    #[test]
    fn reads_what_is_there_and_stops_at_what_is_not() {
        let memory = Memory::open();
        let page = memory.page() as usize;
        let values = [3_u64, 1, 4];
        let address = values.as_ptr().addr() as u64;
        assert_eq!(memory.words::<3>(address), Some(values));
        assert_eq!(memory.words::<1>(16), None);
        // SAFETY: a new mapping.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                3 * page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(mapping, libc::MAP_FAILED);
        // SAFETY: inside the mapping; then its last page is unmapped.
        unsafe {
            *mapping.cast::<u64>() = 7;
            libc::munmap(mapping.byte_add(2 * page), page);
        }
        let mut entries = [9; 2];
        memory.populated(mapping.addr() as u64, &mut entries);
        assert!(entries[0] != 0 && entries[1] == 0, "{entries:?}");
        let mut buffer = vec![1_u8; 3 * page];
        assert_eq!(memory.read(mapping.addr() as u64, &mut buffer), 2 * page);
        assert_eq!(buffer[..9], [7, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    /// The file has one entry for each page of the system, however long pages are.
    #[test]
    fn entries_are_those_of_the_pages_at_the_address() {
        for page in [4096, 16384, 65536] {
            // SAFETY: the name is terminated, and the descriptor is a new one.
            let file = unsafe { File::from_raw_fd(libc::memfd_create(c"pagemap".as_ptr(), 0)) };
            // Pages 3, 4 and 6 have contents; 5 and 7 have none.
            for (number, entry) in [(3, 1 << 63), (4, 1 << 62), (5, 0), (6, 1 << 63), (7, 0_u64)] {
                file.write_all_at(&entry.to_ne_bytes(), number * 8)
                    .expect("written");
            }
            let memory = Memory {
                pages: Some(file),
                ..Memory::with_page(page)
            };
            let mut entries = [9; 6];
            memory.populated(3 * page, &mut entries);
            let populated = entries.map(|entry| entry != 0);
            assert_eq!(populated, [true, true, false, true, false, true], "{page}");
        }
    }
}
