//! The process at the other end of a connection.

use std::io;
use std::os::fd::RawFd;

/// Who is at the other end.
pub(crate) fn credentials(stream: RawFd) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure can be written to, and its size is given.
    let code = unsafe {
        libc::getsockopt(
            stream,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut length,
        )
    };
    match code {
        0 => Ok(peer),
        _ => Err(io::Error::last_os_error()),
    }
}
