//! Opens and writes the file of a report, and not a file that another user put in its way.
//!
//! In a folder that others can write to, such as `/tmp`, a symbolic link with the name of the report could lead to any
//! file of the user who runs the program. Linux prevents that in folders with the sticky bit if
//! `fs.protected_symlinks` is set, which not every machine has.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// `O_NOFOLLOW`. The standard library sets `O_CLOEXEC`.
#[cfg(any(target_arch = "aarch64", target_arch = "arm"))]
pub(crate) const NO_FOLLOW: i32 = 0o100000;
#[cfg(not(any(target_arch = "aarch64", target_arch = "arm")))]
pub(crate) const NO_FOLLOW: i32 = 0o400000;

/// Opens or creates a file to append to.
///
/// Where others can write to a folder on the way, symbolic links in it are not followed unless they belong to this user or
/// to root, and a file in it must be this user's.
///
/// # Errors
///
/// Those of the system, and [`io::ErrorKind::PermissionDenied`] for such a link or file, with its name.
///
/// ```
/// use std::io::Write;
///
/// let path = std::env::temp_dir().join(format!("cuguard-open-{}.txt", std::process::id()));
/// cuguard_report::open_report_file(&path)?.write_all(b"a report")?;
/// assert_eq!(std::fs::read_to_string(&path)?, "a report");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn open_report_file(path: &Path) -> io::Result<File> {
    let user = user();
    check_links(path, user, MAX_LINKS)?;
    let before = fs::symlink_metadata(path);
    let is_link = before.as_ref().is_ok_and(Metadata::is_symlink);
    let shared = folder_of(path).is_some_and(|folder| is_shared(&folder));
    let is_own = |info: &Metadata| user.is_none_or(|user| info.uid() == user);
    let refuses = |info: &Metadata| shared && !is_link && !is_own(info);
    // Before it is opened: a named pipe of another user would block until that user reads it.
    if before.as_ref().is_ok_and(refuses) {
        return Err(refused(path, NOT_OWN));
    }
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o666);
    if !is_link {
        // Also if the name becomes a link now.
        options.custom_flags(NO_FOLLOW);
    }
    let file = options.open(path)?;
    // Also if another file got the name meanwhile.
    match refuses(&file.metadata()?) {
        true => Err(refused(path, NOT_OWN)),
        false => Ok(file),
    }
}

/// Writes a report to a file in one piece. The file is truncated if it is a regular one and `is_first`, which is called when the
/// file exists; otherwise the report is appended.
///
/// The program's own standard output or standard error, as with `/dev/stderr`, is never truncated. Returns whether the
/// file is one of these or `/dev/null`: a line that names the file would repeat the report, or be what nobody wants.
///
/// # Errors
///
/// Those of [`open_report_file`] and of writing.
///
/// ```
/// let path = std::env::temp_dir().join(format!("cuguard-write-{}.txt", std::process::id()));
/// cuguard_report::write_report_file(&path, "first\n", || true)?;
/// let needs_no_line = cuguard_report::write_report_file(&path, "second\n", || false)?;
/// assert_eq!(std::fs::read_to_string(&path)?, "first\nsecond\n");
/// assert!(!needs_no_line);
/// assert!(cuguard_report::write_report_file("/dev/null".as_ref(), "discarded\n", || true)?);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write_report_file(
    path: &Path,
    text: &str,
    is_first: impl FnOnce() -> bool,
) -> io::Result<bool> {
    let mut file = open_report_file(path)?;
    let is_first = is_first();
    let info = file.metadata()?;
    let mut needs_no_line = is_null(&info);
    if info.is_file() {
        match own_output(&file) {
            Some(own) => (file, needs_no_line) = (own, true),
            None if is_first => file.set_len(0)?,
            None => {}
        }
    }
    file.write_all(text.as_bytes())?;
    file.flush()?;
    Ok(needs_no_line)
}

/// Whether reports are discarded: the file is `/dev/null`. Then a leak is no line on standard error either, which it is
/// otherwise: another tool reads the figures of the process and reports them, as the plugin of pytest does.
#[must_use]
pub fn discards_reports(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|info| is_null(&info))
}

fn is_null(info: &fs::Metadata) -> bool {
    // The device with the numbers 1 and 3, under whatever name.
    info.file_type().is_char_device() && info.rdev() == 0x103
}

/// The program's own output, if that is this file. Its content is not a report of an earlier run. Written through a
/// duplicate, so that the program's later output follows the report.
fn own_output(file: &File) -> Option<File> {
    let identity = |file: &File| file.metadata().map(|info| (info.dev(), info.ino())).ok();
    let wanted = identity(file)?;
    let (out, err) = (io::stdout(), io::stderr());
    [out.as_fd(), err.as_fd()]
        .into_iter()
        .filter_map(|own| own.try_clone_to_owned().ok())
        .map(File::from)
        .find(|own| identity(own) == Some(wanted))
}

const NOT_OWN: &str = "is not a file of this user";

/// As many links are followed one after the other.
const MAX_LINKS: usize = 40;

/// The user whose files this process writes. `/proc/self` belongs to it.
fn user() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|info| info.uid())
}

fn refused(path: &Path, why: &str) -> io::Error {
    let text = format!(
        "{} {why}, and others can write to its folder",
        path.display()
    );
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// The folder that the name is in.
fn folder_of(path: &Path) -> Option<PathBuf> {
    match path.parent()? {
        folder if folder.as_os_str().is_empty() => Some(PathBuf::from(".")),
        folder => Some(folder.to_owned()),
    }
}

/// Whether users other than root and the folder's owner can write to it.
fn is_shared(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|info| info.mode() & 0o022 != 0)
}

/// Fails for a link of another user in a folder that others can write to, also on the way that links lead.
fn check_links(path: &Path, user: Option<u32>, links: usize) -> io::Result<()> {
    let mut way = PathBuf::new();
    for component in path.components() {
        way.push(component);
        if !matches!(component, Component::Normal(_)) {
            continue;
        }
        let link = fs::symlink_metadata(&way);
        let Ok(link) = link.as_ref().map_err(|_| ()) else {
            return Ok(());
        };
        let is_trusted = |info: &Metadata| info.uid() == 0 || Some(info.uid()) == user;
        let shared = || folder_of(&way).is_some_and(|folder| is_shared(&folder));
        if link.is_symlink() && !is_trusted(link) && shared() {
            return Err(refused(&way, "is a symbolic link of another user"));
        }
        if link.is_symlink()
            && links > 0
            && let (Ok(target), Some(folder)) = (fs::read_link(&way), folder_of(&way))
        {
            check_links(&folder.join(target), user, links - 1)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{ErrorKind, Write};
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
    use std::path::PathBuf;

    use super::open_report_file;

    fn folder(name: &str, mode: u32) -> PathBuf {
        let name = format!("cuguard-open-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn own_links_and_plain_files_are_opened_and_appended_to() {
        for mode in [0o700, 0o777, 0o1777] {
            let folder = folder(&format!("own-{mode:o}"), mode);
            let target = folder.join("target");
            fs::write(&target, "1").unwrap();
            symlink(&target, folder.join("link")).unwrap();
            for name in ["target", "link", "new"] {
                let file = open_report_file(&folder.join(name));
                file.unwrap().write_all(b"2").unwrap();
            }
            assert_eq!(fs::read_to_string(&target).unwrap(), "122");
            assert_eq!(fs::read_to_string(folder.join("new")).unwrap(), "2");
            fs::remove_dir_all(folder).unwrap();
        }
    }

    #[test]
    fn links_and_files_of_other_users_in_shared_folders_are_refused() {
        let shared = folder("other", 0o1777);
        let target = shared.join("target");
        fs::write(&target, "1").unwrap();
        let link = shared.join("link");
        symlink(&target, &link).unwrap();
        if lchown(&link, Some(65_534), None).is_err() {
            cuguard_testing::not_run(cuguard_testing::Requirement::Root, "");
            return;
        }
        let error = open_report_file(&link).unwrap_err();
        // The kernel refuses it too, where `fs.protected_symlinks` is set.
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(
            error
                .to_string()
                .contains("is a symbolic link of another user")
        );

        let way = folder("way", 0o700);
        lchown(&link, Some(0), None).unwrap();
        fs::remove_file(&link).unwrap();
        symlink(&way, &link).unwrap();
        lchown(&link, Some(65_534), None).unwrap();
        let error = open_report_file(&link.join("new")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(!way.join("new").exists());

        // A link of this user that leads there.
        let own = way.join("own");
        symlink(link.join("new"), &own).unwrap();
        let error = open_report_file(&own).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        // The same in a folder that a group can write to.
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o2770)).unwrap();
        let error = open_report_file(&own).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(!way.join("new").exists());
        // A named pipe of another user, which is not read, does not block.
        let pipe = shared.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        chown(&pipe, Some(65_534), None).unwrap();
        let error = open_report_file(&pipe).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);

        chown(&target, Some(65_534), None).unwrap();
        let error = open_report_file(&target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert_eq!(fs::read_to_string(&target).unwrap(), "1");
        fs::remove_dir_all(shared).unwrap();
        fs::remove_dir_all(way).unwrap();
    }
}
