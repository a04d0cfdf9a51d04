//! Where sockets are: `$XDG_RUNTIME_DIR/cuguard`, or `/tmp/cuguard-UID`. The folder belongs to the user and has mode 0700: no other user
//! but root can open a socket in it, or put one there. Nor can one replace it: a server does not use `$XDG_RUNTIME_DIR` where it
//! belongs to another user, as under `sudo -E`, or others can write to it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::connect::connect;

/// How many servers a process can have.
pub(crate) const SERVERS: usize = 8;

/// How many sockets of ended processes a start removes at most.
const SWEPT: usize = 256;

/// The folders of a user, the preferred first. `runtime` is `XDG_RUNTIME_DIR`.
pub(crate) fn candidates(runtime: Option<OsString>, user: u32) -> Vec<PathBuf> {
    let runtime = runtime.map(PathBuf::from).filter(|path| path.is_absolute());
    let runtime = runtime.map(|path| path.join("cuguard"));
    let temporary = PathBuf::from(format!("/tmp/cuguard-{user}"));
    runtime.into_iter().chain([temporary]).collect()
}

/// The name of a process's socket.
pub(crate) fn socket_name(process: u32, server: usize) -> String {
    match server {
        0 => format!("{process}.sock"),
        server => format!("{process}-{}.sock", server + 1),
    }
}

/// The process of a socket's name.
fn process_of(name: &str) -> Option<u32> {
    let stem = name.strip_suffix(".sock")?;
    let process = stem.split_once('-').map_or(stem, |(process, _)| process);
    process.parse().ok()
}

/// The processes that have, or had, a socket in a folder.
pub(crate) fn processes(path: &Path) -> Vec<u32> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| process_of(&name)).collect()
}

/// `XDG_RUNTIME_DIR`, if it is a folder of the user that no other user can write to.
pub(crate) fn own_runtime(runtime: Option<OsString>, user: u32) -> Option<OsString> {
    runtime.filter(|path| {
        // A link may be changed.
        fs::symlink_metadata(path)
            .is_ok_and(|info| info.is_dir() && info.uid() == user && info.mode() & 0o022 == 0)
    })
}

/// Sets the mode of a file of the user, without following a link in its place.
pub(crate) fn set_mode(path: &Path, user: u32, mode: u32) -> io::Result<()> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let info = file.metadata()?;
    if info.uid() != user || info.is_symlink() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if info.mode() & 0o777 == mode {
        return Ok(());
    }
    // A socket, and a folder without the right to read it, can be opened in no other way; `fchmod` refuses such descriptors.
    let by_number = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::set_permissions(by_number, fs::Permissions::from_mode(mode))
}

/// Creates the folder, unless it exists, and checks it.
pub(crate) fn prepare(path: &Path, user: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        // The umask may have removed bits.
        Ok(()) => set_mode(path, user, 0o700)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    check(path, user)
}

/// Checks that the folder belongs to the user, and that no other user can open it.
pub(crate) fn check(path: &Path, user: u32) -> io::Result<()> {
    let info = fs::symlink_metadata(path)?;
    let problem = if !info.is_dir() {
        "is not a folder"
    } else if info.uid() != user {
        "belongs to another user"
    } else if info.mode() & 0o077 != 0 {
        "can be opened by other users"
    } else {
        return Ok(());
    };
    let text = format!("{} {problem}", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// How long a process that does not accept connections is waited for: it may be stopped, with a full queue.
const ACCEPTS: Duration = Duration::from_millis(100);

/// Whether no process listens at a socket: it is left over from one that ended without removing it.
pub(crate) fn is_stale(path: &Path) -> bool {
    let connected = connect(path, ACCEPTS);
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Removes the sockets of processes that do not exist any more.
pub(crate) fn sweep(path: &Path) {
    let Ok(entries) = fs::read_dir(path) else {
        return;
    };
    for entry in entries.flatten().take(SWEPT) {
        let name = entry.file_name();
        let process = name.to_str().and_then(process_of);
        let is_ended = |process: u32| fs::symlink_metadata(format!("/proc/{process}")).is_err();
        // The process may exist in another PID namespace, and listen.
        if process.is_some_and(is_ended) && is_stale(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::{
        candidates, check, connect, own_runtime, prepare, process_of, set_mode, socket_name, sweep,
    };

    /// A folder that is removed with this value.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            // Not `temp_dir`, whose name may be too long for a socket.
            let path = PathBuf::from(format!("/tmp/cuguard-live-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn user() -> u32 {
        // SAFETY: always succeeds.
        unsafe { libc::geteuid() }
    }

    #[test]
    fn the_runtime_folder_comes_first_if_it_is_absolute() {
        let paths = |runtime: Option<&str>| candidates(runtime.map(Into::into), 7);
        let temporary = "/tmp/cuguard-7";
        assert_eq!(paths(None), [temporary].map(PathBuf::from));
        assert_eq!(paths(Some("relative")), [temporary].map(PathBuf::from));
        let both = ["/run/user/7/cuguard", temporary].map(PathBuf::from);
        assert_eq!(paths(Some("/run/user/7")), both);
    }

    #[test]
    fn names_have_the_process() {
        for server in 0..3 {
            assert_eq!(process_of(&socket_name(4711, server)), Some(4711));
        }
        assert_eq!(socket_name(4711, 0), "4711.sock");
        assert_eq!(process_of("x.sock"), None);
        assert_eq!(process_of("4711"), None);
    }

    #[test]
    fn a_folder_of_others_is_refused() {
        let folder = Folder::new("folder");
        let own = folder.0.join("own");
        prepare(&own, user()).unwrap();
        let mode = fs::metadata(&own).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        prepare(&own, user()).unwrap();
        let error = check(&own, user() + 1).unwrap_err().to_string();
        assert!(error.ends_with("belongs to another user"), "{error}");
        let link = folder.0.join("link");
        symlink(&own, &link).unwrap();
        let error = prepare(&link, user()).unwrap_err().to_string();
        assert!(error.ends_with("is not a folder"), "{error}");
        fs::set_permissions(&own, fs::Permissions::from_mode(0o750)).unwrap();
        let error = prepare(&own, user()).unwrap_err().to_string();
        assert!(error.ends_with("can be opened by other users"), "{error}");
    }

    #[test]
    fn a_runtime_folder_that_others_can_change_is_not_used() {
        let folder = Folder::new("runtime");
        let (own, link) = (folder.0.join("own"), folder.0.join("link"));
        fs::create_dir(&own).unwrap();
        symlink(&own, &link).unwrap();
        let is_used = |path: &PathBuf, user| own_runtime(Some(path.into()), user).is_some();
        for (mode, used) in [
            (0o700, true),
            (0o755, true),
            (0o775, false),
            (0o1777, false),
        ] {
            fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_used(&own, user()), used, "{mode:o}");
        }
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
        // As root with the variable of another user.
        assert!(!is_used(&own, user() + 1));
        assert!(!is_used(&link, user()));
        assert!(!is_used(&folder.0.join("missing"), user()));
        assert_eq!(own_runtime(None, user()), None);
    }

    #[test]
    fn modes_are_set_and_links_are_not_followed() {
        let folder = Folder::new("mode");
        let (socket, link) = (folder.0.join("socket"), folder.0.join("link"));
        let _listener = UnixListener::bind(&socket).unwrap();
        symlink(&socket, &link).unwrap();
        let mode = || fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
        let before = mode();
        assert!(set_mode(&link, user(), 0o600).is_err());
        assert!(set_mode(&socket, user() + 1, 0o600).is_err());
        assert_eq!(mode(), before);
        set_mode(&socket, user(), 0o600).unwrap();
        assert_eq!(mode(), 0o600);
        // As where the umask removes all.
        let closed = folder.0.join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        set_mode(&closed, user(), 0o700).unwrap();
        assert_eq!(
            fs::metadata(&closed).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }

    /// One of another PID namespace that is stopped: every start of a program would add a connection to its queue.
    #[test]
    fn a_process_that_accepts_nothing_is_not_waited_for() {
        let folder = Folder::new("stopped");
        let path = folder.0.join("99999998.sock");
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: a socket that listens.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
        let connect = || connect(&path, Duration::from_millis(10));
        let waiting: Vec<_> = std::iter::from_fn(|| connect().ok()).collect();
        sweep(&folder.0);
        assert!(path.exists() && !waiting.is_empty());
    }

    #[test]
    fn sockets_of_ended_processes_are_removed() {
        let folder = Folder::new("sweep");
        // Larger than any process id, and one that exists.
        let (ended, alive) = (folder.0.join("99999999.sock"), folder.0.join("1.sock"));
        let (served, other) = (folder.0.join("99999998.sock"), folder.0.join("notes"));
        for path in [&ended, &alive] {
            drop(UnixListener::bind(path).unwrap());
        }
        fs::write(&other, "").unwrap();
        let _listener = UnixListener::bind(&served).unwrap();
        sweep(&folder.0);
        assert!(!ended.exists());
        assert!(alive.exists() && served.exists() && other.exists());
    }
}
