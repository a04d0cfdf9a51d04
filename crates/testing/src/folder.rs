//! Folders of tests.

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// An empty folder for temporary files, which is removed on drop.
///
/// Not in `CARGO_TARGET_TMPDIR`: the test program may be copied to another machine.
///
/// ```
/// let folder = cuguard_testing::Folder::new("example");
/// std::fs::write(folder.join("file"), "text")?;
/// let path = folder.path().to_owned();
/// drop(folder);
/// assert!(!path.exists());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates the folder. The name is part of its path.
    ///
    /// # Panics
    /// If it cannot be created.
    #[must_use]
    #[track_caller]
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("cuguard-{name}-{process}-{count}"));
        // One may be left of a process that was killed.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the folder can be created");
        Self(path)
    }

    /// The folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<OsStr> for Folder {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
