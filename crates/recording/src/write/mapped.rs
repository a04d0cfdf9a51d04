//! The mapped file: all `unsafe` code of writing.

#![allow(
    unsafe_code,
    reason = "mapping a file and calling libc; what the rest sees is an exclusive slice"
)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use memmap2::{MmapMut, MmapOptions};

use super::ranges;

/// Maps a part of the file, for the life of the process: threads keep chunks of it for as long as they run.
///
/// The caller maps each part once, and the file is not truncated below its end.
pub(super) fn map(file: &File, offset: u64, length: usize) -> io::Result<&'static mut [u8]> {
    // SAFETY: `ChunkFile` creates the file for this process alone, holds a lock on it, maps no part twice and truncates it
    // only beyond the chunks that it handed out. A process that writes to it all the same can change only bytes, none
    // of which this process reads.
    let map = unsafe { MmapOptions::new().offset(offset).len(length).map_mut(file) }?;
    let map: &'static mut MmapMut = Box::leak(Box::new(map));
    ranges::add(map.as_ptr_range());
    Ok(map)
}

/// Gives a file its name, unless there is one of that name.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let (old, new) = (text(from)?, text(to)?);
    let (here, flags) = (libc::AT_FDCWD, libc::RENAME_NOREPLACE);
    // SAFETY: both are strings with a zero at the end, for as long as this runs.
    match unsafe { libc::renameat2(here, old.as_ptr(), here, new.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How long ago this process began. A process keeps it, and its id, when it executes another program.
pub(super) fn process_age() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program may have any characters; it is in parentheses.
    let after_name = stat.rsplit_once(')')?.1;
    let started: u64 = after_name.split_whitespace().nth(19)?.parse().ok()?;
    // SAFETY: no requirements.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for writing.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    let now = Duration::new(now.tv_sec.try_into().ok()?, now.tv_nsec.try_into().ok()?);
    let started = Duration::from_millis(started.checked_mul(1000)?.checked_div(per_second)?);
    (code == 0).then(|| now.saturating_sub(started))
}

/// Stores how many bytes are complete, after those bytes: also a process that is killed in between leaves only complete
/// ones.
#[inline]
pub(super) fn commit(bytes: &mut [u8], at: usize, length: u32) {
    let field = &mut bytes[at..at + size_of::<u32>()];
    let field: *mut u32 = field.as_mut_ptr().cast();
    assert!(field.is_aligned(), "chunks and their fields are aligned");
    // SAFETY: `field` is aligned, is valid for four bytes, and is borrowed exclusively.
    let field = unsafe { AtomicU32::from_ptr(field) };
    field.store(length.to_le(), Ordering::Release);
}

/// [`commit`] for eight bytes.
#[inline]
pub(super) fn commit_wide(bytes: &mut [u8], at: usize, value: u64) {
    let field = &mut bytes[at..at + size_of::<u64>()];
    let field: *mut u64 = field.as_mut_ptr().cast();
    assert!(field.is_aligned(), "chunks and their fields are aligned");
    // SAFETY: `field` is aligned, is valid for eight bytes, and is borrowed exclusively.
    let field = unsafe { AtomicU64::from_ptr(field) };
    field.store(value.to_le(), Ordering::Release);
}

/// The first eight bytes as a counter that threads and signal handlers share.
pub(super) fn counter(bytes: &'static mut [u8]) -> &'static AtomicU64 {
    let field = &mut bytes[..size_of::<u64>()];
    let field: *mut u64 = field.as_mut_ptr().cast();
    assert!(field.is_aligned(), "chunks and their fields are aligned");
    // SAFETY: `field` is aligned, is valid for eight bytes for the life of the process, and nothing else refers to it.
    unsafe { AtomicU64::from_ptr(field) }
}

/// Adds to a [`counter`], which is little-endian.
pub(super) fn add(counter: &AtomicU64, number: u64) {
    let add = |old: u64| Some(u64::from_le(old).wrapping_add(number).to_le());
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
}

/// Stores a number into a [`counter`], unless that has a larger one.
pub(super) fn raise(counter: &AtomicU64, number: u64) {
    let raise = |old: u64| Some(u64::from_le(old).max(number).to_le());
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raise);
}

/// Allocates a part of the file on the disk. A page without a block would end the process with `SIGBUS` when the disk is
/// full; this fails instead.
pub(super) fn allocate(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let end = offset.saturating_add(length);
    if size_limit().is_some_and(|limit| end > limit) {
        // The kernel would send SIGXFSZ, which ends the process by default.
        let text = "the limit of the process for the size of files (ulimit -f) is reached";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    let too_large = |_| io::Error::from(io::ErrorKind::FileTooLarge);
    let offset = libc::off_t::try_from(offset).map_err(too_large)?;
    let length = libc::off_t::try_from(length).map_err(too_large)?;
    // SAFETY: the descriptor is open for as long as `file` is borrowed; no memory is passed.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), offset, length) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Maps all pages of a chunk for writing in one system call. Otherwise each page is a page fault at the first event in it.
/// Fails where a write would end the process with `SIGBUS`: another process truncated the file.
pub(super) fn populate(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the whole of a mapping's part is borrowed exclusively; its contents stay as they are.
    let code = unsafe {
        libc::madvise(
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            libc::MADV_POPULATE_WRITE,
        )
    };
    if code == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Kernels before 5.14.
        Some(libc::EINVAL | libc::EINTR | libc::EAGAIN) => Ok(()),
        _ => Err(error),
    }
}

/// The most bytes that a file of this process may have.
fn size_limit() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` is valid for writing.
    let code = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    (code == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Locks the file, so that another process does not record into it. Fails where another one does.
pub(super) fn lock(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed; no memory is passed.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends a [`lock`]. A process that was cloned from this one would keep it otherwise: it belongs to the open file.
pub(super) fn unlock(file: &File) {
    // SAFETY: the descriptor is open for as long as `file` is borrowed; no memory is passed.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
}

/// In a forked child: replaces a part of the file that [`map`] returned by memory of the child. The mapping would keep the
/// file open, and so the lock of the parent, for as long as the child runs. Async-signal-safe.
pub(super) fn detach(addresses: Range<usize>) {
    // SAFETY: no requirements. It reads a variable.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(1);
    let addresses = whole_pages(addresses, page);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the whole of a mapping of this library, which lasts until the process ends. It stays readable and writable: the
    // fork may have been in a signal handler that interrupted a write, which then ends in memory of the child. Its
    // bytes become zero, and bytes have no invalid values.
    unsafe {
        libc::mmap(
            addresses.start as *mut _,
            addresses.len(),
            access,
            kind,
            -1,
            0,
        )
    };
}

/// A mapping from the beginning of its first page on. A part of the file that does not begin at a page is mapped with what is in
/// front of it in the page, and nothing uses that.
fn whole_pages(addresses: Range<usize>, page: usize) -> Range<usize> {
    addresses.start - addresses.start % page..addresses.end
}

/// In a forked child: closes a descriptor of the parent's recording, if it is still this file. Async-signal-safe.
pub(super) fn close(number: RawFd, (device, inode): (u64, u64)) {
    // SAFETY: plain data, for which zero is valid.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `status` is valid for writing.
    let code = unsafe { libc::fstat(number, &raw mut status) };
    if code == 0 && (status.st_dev, status.st_ino) == (device, inode) {
        // SAFETY: a descriptor of this library, which does not use it in a forked child.
        unsafe { libc::close(number) };
    }
}

/// Calls `handler` in every forked child. It must be async-signal-safe.
pub(crate) fn on_fork(handler: extern "C" fn()) {
    // SAFETY: the handler is a function of this library, which is not unloaded: the libraries of cuguard are linked so
    // that they stay, and programs do.
    let code = unsafe { libc::pthread_atfork(None, None, Some(handler_type(handler))) };
    // It fails for want of memory alone.
    debug_assert_eq!(code, 0);
}

fn handler_type(handler: extern "C" fn()) -> unsafe extern "C" fn() {
    handler
}

/// Makes the descriptor of `file` one of `other`, as a program does that closes all descriptors.
#[cfg(test)]
pub(super) fn replace_descriptor(file: &File, other: &File) {
    // SAFETY: both are open; what `file` was is not used by this number any more.
    let code = unsafe { libc::dup2(other.as_raw_fd(), file.as_raw_fd()) };
    assert_eq!(code, file.as_raw_fd());
}

#[cfg(test)]
mod tests {
    use super::whole_pages;

    /// Chunks may be smaller than a page.
    #[test]
    fn a_mapping_begins_at_a_page() {
        let part = 0x7f00_0003_4000..0x7f00_0005_8000;
        for (page, start) in [
            (4 << 10, 0x7f00_0003_4000),
            (16 << 10, 0x7f00_0003_4000),
            (64 << 10, 0x7f00_0003_0000),
        ] {
            assert_eq!(whole_pages(part.clone(), page), start..part.end);
        }
    }
}
