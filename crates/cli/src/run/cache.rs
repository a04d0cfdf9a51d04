//! The user's cache folder for libraries: where it is, whether others can change what is in it, and what is removed from it.
//!
//! Whoever can replace the library between its check and the start of the program runs code as this user. So the folder is this
//! user's alone, and so are all folders above it, or root's.

use std::env;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Libraries of other builds that were not used for this long are removed.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A use is noted in the file's time of change, at most this often.
const NOTED: Duration = Duration::from_secs(24 * 60 * 60);

/// How the names of libraries begin in the folder, of those that a killed run has left unfinished, and of the folders for the simulated
/// GPU.
pub(super) const AUDIT: &str = "libcuguard_audit-";
const UNFINISHED_AUDIT: &str = ".libcuguard_audit-";
pub(super) const SIMULATION: &str = "sim-";

/// `$XDG_CACHE_HOME/cuguard` or `~/.cache/cuguard`, with all links resolved. It is created.
pub(super) fn folder() -> Result<PathBuf, String> {
    let absolute = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let home = || absolute("HOME").map(|home| home.join(".cache"));
    let cache = absolute("XDG_CACHE_HOME").or_else(home);
    let cache = cache.ok_or("neither XDG_CACHE_HOME nor HOME is set")?;
    let folder = cache.join("cuguard");
    let resolved = create_private(&folder).and_then(|()| resolve(&folder));
    resolved.map_err(|error| in_folder(&folder, &error))
}

pub(super) fn in_folder(folder: &Path, error: &io::Error) -> String {
    format!("in {}: {error}", folder.display())
}

pub(super) fn user() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

fn refused(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, text.into())
}

/// Creates a folder of this user alone, or checks that it is one.
pub(super) fn create_private(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Of the name itself: a link is none.
    let info = fs::symlink_metadata(folder)?;
    if !info.is_dir() || info.uid() != user() || info.mode() & 0o022 != 0 {
        return Err(refused("is not a folder that this user alone can write to"));
    }
    Ok(())
}

/// The folder without links, if only this user and root can replace it. A link may lead elsewhere the next moment.
fn resolve(folder: &Path) -> io::Result<PathBuf> {
    let folder = fs::canonicalize(folder)?;
    if let Some(parent) = folder.parent() {
        resolve_parent(parent)?;
    }
    Ok(folder)
}

/// The same for a folder in which no other user can replace what is this user's.
pub(super) fn resolve_parent(folder: &Path) -> io::Result<PathBuf> {
    let folder = fs::canonicalize(folder)?;
    for above in folder.ancestors() {
        let info = fs::symlink_metadata(above)?;
        let is_trusted = [0, user()].contains(&info.uid());
        // In a sticky folder, others cannot rename what is this user's.
        let is_closed = info.mode() & 0o022 == 0 || info.mode() & libc::S_ISVTX != 0;
        if !is_trusted || !is_closed {
            return Err(refused(format!(
                "another user can replace it: {} belongs to one, or others can write to it",
                above.display()
            )));
        }
    }
    Ok(folder)
}

fn is_older(info: &Metadata, age: Duration) -> bool {
    let changed = info.modified().unwrap_or(SystemTime::now());
    changed.elapsed().is_ok_and(|elapsed| elapsed > age)
}

/// Notes that a library is used.
pub(super) fn note_use(file: &fs::File) {
    if file.metadata().is_ok_and(|info| is_older(&info, NOTED)) {
        // The file system may be read-only.
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Removes libraries that were not used for long. A process that has loaded one keeps it.
pub(super) fn remove_unused(folder: &Path, driver: &str) {
    let is_unused = |path: &Path| {
        let info = fs::symlink_metadata(path);
        info.is_ok_and(|info| info.uid() == user() && is_older(&info, UNUSED))
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        if name.starts_with(AUDIT) || name.starts_with(UNFINISHED_AUDIT) {
            if is_unused(&path) {
                let _ = fs::remove_file(&path);
            }
        } else if name.starts_with(SIMULATION) && is_unused(&path) {
            // Its own time is that of the last file which was created in it.
            let library = path.join(driver);
            if is_unused(&library) || fs::symlink_metadata(&library).is_err() {
                let _ = fs::remove_dir_all(&path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::path::{Path, PathBuf};
    use std::time::{Duration, SystemTime};

    use super::{create_private, remove_unused, resolve};

    fn folder(name: &str) -> PathBuf {
        let name = format!("cuguard-cache-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder can be created");
        set_mode(&folder, 0o700);
        fs::canonicalize(folder).expect("it exists")
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("own file");
    }

    #[test]
    fn folders_that_others_can_write_to_and_links_are_refused() {
        let parent = folder("private");
        let own = parent.join("own");
        assert!(create_private(&own).is_ok());
        assert!(create_private(&own).is_ok());
        set_mode(&own, 0o777);
        assert!(create_private(&own).is_err());
        set_mode(&own, 0o700);
        let link = parent.join("link");
        symlink(&own, &link).expect("a link can be created");
        assert!(create_private(&link).is_err());
        fs::remove_dir_all(parent).expect("own folder");
    }

    #[test]
    fn folders_that_another_user_can_replace_are_refused() {
        let parent = folder("replaced");
        let own = parent.join("above/own");
        fs::create_dir_all(&own).expect("own folder");
        let above = parent.join("above");
        set_mode(&above, 0o755);
        assert_eq!(resolve(&own).ok(), Some(own.clone()));
        // Of a sticky folder, only what is their own can others rename.
        set_mode(&above, 0o1777);
        assert_eq!(resolve(&own).ok(), Some(own.clone()));
        for mode in [0o777, 0o775] {
            set_mode(&above, mode);
            let error = resolve(&own).expect_err("others can write to it");
            let line = format!("{} belongs to one, or others can", above.display());
            assert!(error.to_string().contains(&line), "{error}");
        }
        set_mode(&above, 0o755);
        // What a link names is looked at, and used from then on.
        let link = parent.join("link");
        symlink(&above, &link).expect("a link can be created");
        assert_eq!(resolve(&link.join("own")).ok(), Some(own.clone()));
        if chown(&above, Some(65_534), None).is_ok() {
            assert!(resolve(&own).is_err());
            assert!(resolve(&link.join("own")).is_err());
        } else {
            cuguard_testing::not_run(cuguard_testing::Requirement::Root, "");
        }
        fs::remove_dir_all(parent).expect("own folder");
    }

    #[test]
    fn libraries_that_were_not_used_for_long_are_removed() {
        let folder = folder("unused");
        let old = SystemTime::now() - Duration::from_secs(31 * 24 * 60 * 60);
        let create = |name: &str, is_old: bool| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("own folder");
            let file = fs::File::create(&path).expect("own file");
            if is_old {
                file.set_modified(old).expect("own file");
            }
        };
        for name in ["libcuguard_audit-1.so", "other", ".libcuguard_audit-1.so.7"] {
            create(name, true);
        }
        create("libcuguard_audit-2.so", false);
        for (name, is_old) in [("sim-1", true), ("sim-2", false)] {
            create(&format!("{name}/lib"), is_old);
            let time = fs::File::open(folder.join(name)).expect("own folder");
            time.set_modified(old).expect("own folder");
        }
        remove_unused(&folder, "lib");
        let names = fs::read_dir(&folder).expect("own folder").flatten();
        let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["libcuguard_audit-2.so", "other", "sim-2"]);
        fs::remove_dir_all(folder).expect("own folder");
    }
}
