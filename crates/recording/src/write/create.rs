//! Creating the file: under its name from the moment on at which it is locked, and never over a recording that is in use or
//! of this process.
//!
//! ```text
//! FILE.PID.new  created and locked ──► FILE              if there is none
//!                                  ──► FILE              over an old one, whose lock is held meanwhile
//!                                  ──► FILE.PID          else, or FILE.PID-2 …
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::mapped;
use crate::format::{MAGIC, MAX_CHUNK_SIZE};
use crate::meta;

/// How often another process may replace the file meanwhile.
const ATTEMPTS: u32 = 64;

/// The ticks that the start of a process is counted in, with some to spare.
const TICK: Duration = Duration::from_millis(50);

/// Creates a file that no other process uses, and returns its path.
///
/// A file that exists is unlinked and not truncated: another process may have it mapped, and would get `SIGBUS`.
pub(super) fn create(path: &Path, replace: bool) -> io::Result<(File, PathBuf)> {
    // Before the file is created beside it, and opened: opening a pipe would wait.
    if let Ok(metadata) = std::fs::metadata(path)
        && !metadata.is_file()
    {
        let text = "it exists and is not a regular file";
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    let (file, temporary) = create_temporary(path)?;
    let named = name(&temporary, path, replace);
    if named.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    Ok((file, named?))
}

/// A path with something appended.
fn appended(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// A locked file beside `path`.
fn create_temporary(path: &Path) -> io::Result<(File, PathBuf)> {
    let pid = std::process::id();
    for attempt in 1..=ATTEMPTS {
        // One may be left of a process that was killed.
        let temporary = appended(path, &format!(".{pid}-{attempt}.new"));
        let created = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&temporary);
        match created {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => {
                // Some file systems have no locks; then two processes must have different files.
                let _ = mapped::lock(&file);
                return Ok((file, temporary));
            }
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Gives the file its name, and returns it.
fn name(temporary: &Path, path: &Path, replace: bool) -> io::Result<PathBuf> {
    if put(temporary, path)? || (replace && replace_old(temporary, path)?) {
        return Ok(path.to_owned());
    }
    let pid = std::process::id();
    for number in 1..=u32::MAX {
        let other = match number {
            1 => appended(path, &format!(".{pid}")),
            _ => appended(path, &format!(".{pid}-{number}")),
        };
        if put(temporary, &other)? {
            return Ok(other);
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Gives the file a name that no other has. Returns whether that was so.
fn put(temporary: &Path, path: &Path) -> io::Result<bool> {
    let renamed = mapped::rename_new(temporary, path).or_else(|error| match error.kind() {
        ErrorKind::AlreadyExists => Err(error),
        // Some file systems cannot.
        _ => std::fs::hard_link(temporary, path).map(|()| {
            let _ = std::fs::remove_file(temporary);
        }),
    });
    match renamed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Replaces an old file that is not in use. Returns whether that was so.
fn replace_old(temporary: &Path, path: &Path) -> io::Result<bool> {
    for _ in 0..ATTEMPTS {
        let mut options = OpenOptions::new();
        let opened = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let old = match opened {
            Ok(old) => old,
            // It was removed, or is a link to nowhere.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if put(temporary, path)? {
                    return Ok(true);
                }
                continue;
            }
            // It may be in use.
            Err(_) => return Ok(false),
        };
        if is_foreign(&old) {
            let text = "it exists and is not a recording";
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let would_block = |error: io::Error| error.kind() == ErrorKind::WouldBlock;
        if mapped::lock(&old).is_err_and(would_block) || is_of_this_process(&old) {
            return Ok(false);
        }
        // The lock is held until the file has its name: of two processes one is here, and the other one finds its file.
        let now = std::fs::metadata(path).and_then(|_| identity(&File::open(path)?));
        if now.is_ok_and(|now| identity(&old).is_ok_and(|old| old == now)) {
            return std::fs::rename(temporary, path).map(|()| true);
        }
    }
    Ok(false)
}

/// Whether the file is something else than a recording. Empty it may be, or one whose process was killed as it began.
fn is_foreign(file: &File) -> bool {
    let mut first = [0; MAGIC.len()];
    let read = file.read_at(&mut first, 0).unwrap_or(0);
    first != *MAGIC && first[..read].iter().any(|byte| *byte != 0)
}

/// Whether this process recorded into the file before it executed another program. The id alone does not say so:
/// containers use the same ones again.
fn is_of_this_process(file: &File) -> bool {
    let mut bytes = Vec::new();
    let _ = file.take(MAX_CHUNK_SIZE.into()).read_to_end(&mut bytes);
    let Some(meta) = meta::of_file(&bytes) else {
        return false;
    };
    let began = mapped::process_age().and_then(|age| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        now.checked_sub(age)?.checked_sub(TICK)
    });
    let recorded = Duration::from_nanos(meta.started);
    meta.pid == std::process::id() && began.is_none_or(|began| recorded >= began)
}

/// Device and inode.
pub(super) fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata()
        .map(|metadata| (metadata.dev(), metadata.ino()))
}
