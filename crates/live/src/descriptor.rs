//! File descriptors of a process that this library does not own: a program may close all descriptors, and its next file then has the
//! number of one of ours. So a descriptor is used only while it is still the same file.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// A descriptor and the file that it is.
#[derive(Debug)]
pub(crate) struct Descriptor {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Descriptor {
    pub(crate) const fn none() -> Self {
        Self {
            number: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }

    /// Sets the descriptor. The caller owns it, and does not close it any more.
    pub(crate) fn set(&self, number: RawFd) {
        if let Some([device, inode]) = identity(number) {
            self.device.store(device, Ordering::Relaxed);
            self.inode.store(inode, Ordering::Relaxed);
            self.number.store(number, Ordering::Release);
        }
    }

    /// Whether it was never set, or is closed.
    pub(crate) fn is_none(&self) -> bool {
        self.number.load(Ordering::Acquire) < 0
    }

    /// The number, if it is still this file. Async-signal-safe.
    pub(crate) fn get(&self) -> Option<RawFd> {
        let number = self.number.load(Ordering::Acquire);
        let own = [&self.device, &self.inode].map(|word| word.load(Ordering::Relaxed));
        (number >= 0 && identity(number) == Some(own)).then_some(number)
    }

    /// Closes it, if it is still this file. Async-signal-safe.
    pub(crate) fn close(&self) {
        if let Some(number) = self.get() {
            // SAFETY: a descriptor of this library, which nothing uses after this.
            unsafe { libc::close(number) };
        }
        self.number.store(-1, Ordering::Release);
    }
}

/// Device and inode.
fn identity(number: RawFd) -> Option<[u64; 2]> {
    // SAFETY: plain data, for which zero is valid.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: writes to the variable.
    let code = unsafe { libc::fstat(number, &mut status) };
    (code == 0).then_some([status.st_dev, status.st_ino])
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, IntoRawFd};

    use super::Descriptor;

    #[test]
    fn a_descriptor_that_another_file_has_is_not_used() {
        let descriptor = Descriptor::none();
        assert_eq!(descriptor.get(), None);
        let folder = File::open("/proc").unwrap();
        let other = File::open("/").unwrap();
        let number = folder.into_raw_fd();
        descriptor.set(number);
        assert_eq!(descriptor.get(), Some(number));
        // SAFETY: both are open; the number becomes another file, as after a close and an open.
        unsafe { libc::dup2(other.as_raw_fd(), number) };
        assert_eq!(descriptor.get(), None);
        descriptor.close();
        // SAFETY: still open, as `close` left it alone.
        assert_eq!(unsafe { libc::close(number) }, 0);
    }
}
