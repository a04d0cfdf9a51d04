//! A connection that is not waited for longer than permitted, and that raises no signal when the other end closes it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Connects to a socket. A process that is stopped accepts no connection, and its queue may be full: the standard library
/// would wait for it without a limit.
pub(crate) fn connect(path: &Path, within: Duration) -> io::Result<UnixStream> {
    // SAFETY: plain data, for which zero is valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // One byte ends the path.
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    // SAFETY: creates a descriptor.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(socket) });
    // Holds for the connection too.
    stream.set_write_timeout(Some(within.max(Duration::from_millis(1))))?;
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: an address of this length.
    let code = unsafe { libc::connect(socket, (&raw const address).cast(), length) };
    match code {
        0 => Ok(stream),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends all bytes. The program that asks may not ignore the signal for a closed connection.
pub(crate) fn send(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let flags = libc::MSG_NOSIGNAL;
        // SAFETY: the bytes can be read.
        let sent = unsafe {
            libc::send(
                stream.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                flags,
            )
        };
        match usize::try_from(sent) {
            Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::PathBuf;
    use std::time::Duration;

    use super::{connect, send};

    #[test]
    fn a_process_that_accepts_nothing_is_not_waited_for() -> io::Result<()> {
        // Not `temp_dir`, whose name may be too long for a socket.
        let path = PathBuf::from(format!("/tmp/cuguard-connect-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        // The standard library's queue may have more places than this process may open files.
        // SAFETY: a socket that listens.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
        let mut waiting = Vec::new();
        let refused = loop {
            match connect(&path, Duration::from_millis(10)) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(!waiting.is_empty());
        drop(listener);
        std::fs::remove_file(&path)?;
        let error = connect(&path, Duration::from_secs(1)).expect_err("there is none");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        Ok(())
    }

    #[test]
    fn a_closed_connection_is_an_error() -> io::Result<()> {
        let (near, far) = UnixStream::pair()?;
        drop(far);
        let error = send(&near, b"report\n").expect_err("it is closed");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        Ok(())
    }
}
