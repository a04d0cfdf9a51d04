//! The private folder in which all processes of a run leave their records.

use std::collections::hash_map::RandomState;
use std::env;
use std::fs::{self, DirBuilder};
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::cache;
use super::failure::Failure;

/// A folder that only this user can enter. Removed on drop.
#[derive(Debug)]
pub(super) struct RunFolder(PathBuf);

impl RunFolder {
    /// Creates a folder with a random name. The name ends in this process's id, by which the library in the program knows that
    /// it is in the command's own child.
    pub(super) fn create() -> Result<Self, Failure> {
        let parent = parent();
        let mut tries = 0;
        loop {
            let random = RandomState::new().hash_one(tries);
            let name = format!("cuguard-run-{random:016x}-{}", std::process::id());
            let path = parent.join(name);
            // Fails if there is something with that name, a link too.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 100 => {
                    tries += 1
                }
                Err(error) => {
                    return Err(Failure::Folder {
                        path: parent,
                        error,
                    });
                }
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves the folder.
    pub(super) fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }

    /// Removes the folder now.
    pub(super) fn remove(self) {}
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// The user's own folder for such files, or the one of all users, unless another user could replace what is created there: under `sudo`,
/// the first may be the other user's. The name is made absolute: the program may change its folder.
fn parent() -> PathBuf {
    let own = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.filter(|folder| folder.is_absolute() && folder.is_dir());
    let temporary = env::temp_dir();
    let first = own.as_deref().unwrap_or(&temporary);
    let folders = [first, &temporary, Path::new("/tmp")];
    let mut trusted = folders
        .into_iter()
        .filter_map(|folder| cache::resolve_parent(folder).ok());
    // In a container where root's files seem to be another user's there is none.
    trusted
        .next()
        .unwrap_or_else(|| fs::canonicalize(first).unwrap_or_else(|_| first.to_owned()))
}
