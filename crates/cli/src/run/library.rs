//! The audit library and the simulated GPU, as files that the dynamic linker can load.
//!
//! The command contains both (`build.rs`), unless it is built without optimisation: then cargo has built them beside the
//! command. They are written once to the user's cache folder, under names with a hash of their content, so that processes which
//! outlive the command still find them; where that is not possible, to the run's private folder.

use std::borrow::Cow;
use std::collections::hash_map::{DefaultHasher, RandomState};
use std::env;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::cache::{self, create_private, in_folder, user};
use super::failure::Failure;

/// A library that the command contains.
struct Contained {
    /// What an error calls it.
    what: &'static str,
    /// The package that builds it.
    package: &'static str,
    /// The file that cargo builds.
    file: &'static str,
    /// Empty in a build without optimisation.
    content: &'static [u8],
    hash: &'static str,
}

const AUDIT: Contained = Contained {
    what: "audit library",
    package: "cuguard-audit",
    file: "libcuguard_audit.so",
    content: include_bytes!(concat!(env!("OUT_DIR"), "/libcuguard_audit.so")),
    hash: env!("CUGUARD_AUDIT_HASH"),
};

const SIMULATION: Contained = Contained {
    what: "simulated GPU",
    package: "cuguard-libcuda-sim",
    file: "libcuda_sim.so",
    content: include_bytes!(concat!(env!("OUT_DIR"), "/libcuda_sim.so")),
    hash: env!("CUGUARD_SIMULATION_HASH"),
};

/// The name under which programs load the driver.
const DRIVER: &str = "libcuda.so.1";

/// The name of CUDA's stub for linkers, which some programs open first (cudarc, numba).
const DRIVER_OF_LINKERS: &str = "libcuda.so";

/// The file of the audit library: in the cache folder, or in `run_folder`.
pub(super) fn provide_audit(run_folder: &Path) -> Result<PathBuf, Failure> {
    let content = AUDIT.load()?;
    let library = Library {
        name: format!("{}{}.so", cache::AUDIT, content.hash),
        content: content.bytes,
        link: None,
    };
    library.provide(&AUDIT, run_folder, |folder| folder.to_owned())
}

/// The folder of the simulated GPU as `libcuda.so.1` and `libcuda.so`, likewise.
pub(super) fn provide_simulation(run_folder: &Path) -> Result<PathBuf, Failure> {
    let content = SIMULATION.load()?;
    let subfolder = format!("{}{}", cache::SIMULATION, content.hash);
    let library = Library {
        name: DRIVER.to_owned(),
        content: content.bytes,
        link: Some(DRIVER_OF_LINKERS),
    };
    let mut path = library.provide(&SIMULATION, run_folder, |folder| folder.join(&subfolder))?;
    path.pop();
    Ok(path)
}

/// The bytes of a library, and a hash of them.
struct Content {
    bytes: Cow<'static, [u8]>,
    hash: Cow<'static, str>,
}

impl Contained {
    /// What the command contains, or the file beside it.
    fn load(&self) -> Result<Content, Failure> {
        if !self.content.is_empty() {
            return Ok(Content {
                bytes: self.content.into(),
                hash: self.hash.into(),
            });
        }
        let program = env::current_exe().unwrap_or_default();
        let folder = program.parent().unwrap_or(Path::new("/"));
        // Cargo has it in `deps` in any case, and beside the command where it was asked for.
        let files = ["deps", "."].map(|name| folder.join(name).join(self.file));
        let bytes = files.iter().find_map(|file| fs::read(file).ok());
        let bytes = bytes.ok_or(Failure::NoLibrary {
            what: self.what,
            package: self.package,
        })?;
        // What a linker writes of all content is at the start: its own hash, and offsets.
        let mut hasher = DefaultHasher::new();
        (&bytes[..bytes.len().min(4096)], bytes.len()).hash(&mut hasher);
        Ok(Content {
            bytes: bytes.into(),
            hash: format!("{:016x}", hasher.finish()).into(),
        })
    }
}

/// A file to be written.
struct Library {
    name: String,
    content: Cow<'static, [u8]>,
    /// Another name of the file, in the same folder. A link: the dynamic linker loads a file once, and a copy of it twice.
    link: Option<&'static str>,
}

impl Library {
    /// The file in the cache folder, or in `run_folder`; `place` is the folder within either.
    fn provide(
        &self,
        contained: &Contained,
        run_folder: &Path,
        place: impl Fn(&Path) -> PathBuf,
    ) -> Result<PathBuf, Failure> {
        let in_folder_of = |parent: &Path| {
            let private =
                |folder: &Path| create_private(folder).map_err(|error| in_folder(folder, &error));
            private(parent)?;
            let folder = place(parent);
            private(&folder)?;
            self.in_private_folder(&folder)
        };
        let cached = cache::folder().and_then(|folder| {
            let (path, is_new) = in_folder_of(&folder)?;
            if is_new {
                cache::remove_unused(&folder, DRIVER);
            }
            Ok(path)
        });
        cached.or_else(|first| {
            let (path, _) = in_folder_of(run_folder).map_err(|second| Failure::Library {
                what: contained.what,
                why: format!("{first}; {second}"),
            })?;
            Ok(path)
        })
    }

    /// The library in a folder that only this user can write to, and whether it was written now.
    fn in_private_folder(&self, folder: &Path) -> Result<(PathBuf, bool), String> {
        let path = folder.join(&self.name);
        // They separate names in these variables, or stand before a name that the loader replaces (`$ORIGIN`, `$LIB`).
        if path
            .to_str()
            .is_none_or(|path| path.contains([' ', ':', ';', '$']))
        {
            return Err(format!(
                "{} cannot be in LD_PRELOAD or LD_LIBRARY_PATH",
                path.display()
            ));
        }
        let failed = |error: io::Error| in_folder(folder, &error);
        let existing = self.existing(&path);
        let is_new = existing.is_none();
        let file = match existing {
            Some(file) => file,
            None => {
                self.write(&path).map_err(failed)?;
                // Another run may have replaced it meanwhile, by the same.
                let file = self.existing(&path);
                file.ok_or_else(|| failed(io::Error::other("another process replaces the file")))?
            }
        };
        cache::note_use(&file);
        check_executable(&file).map_err(failed)?;
        if let Some(link) = self.link {
            self.provide_link(&folder.join(link)).map_err(failed)?;
        }
        Ok((path, is_new))
    }

    /// The file, if it is there and is what it must be.
    fn existing(&self, path: &Path) -> Option<File> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .ok()?;
        let info = file.metadata().ok()?;
        let is_own = info.is_file() && info.uid() == user() && info.mode() & 0o022 == 0;
        if !is_own || info.len() != self.content.len() as u64 {
            return None;
        }
        let mut content = Vec::with_capacity(self.content.len());
        file.read_to_end(&mut content).ok()?;
        (content == *self.content).then_some(file)
    }

    /// Writes the file.
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW);
        let create = |own: &Path| options.open(own);
        replace(path, create, |mut file| {
            file.write_all(&self.content)?;
            file.set_permissions(fs::Permissions::from_mode(0o500))
        })
    }

    /// The other name of the file.
    fn provide_link(&self, path: &Path) -> io::Result<()> {
        let is_link = |target: PathBuf| target == Path::new(&self.name);
        if fs::read_link(path).is_ok_and(is_link) {
            return Ok(());
        }
        replace(path, |own| symlink(&self.name, own), Ok)
    }
}

/// Creates a file under another name, completes it, and renames it: another run must not load a part of it. `create` must fail if
/// the name exists.
fn replace<T>(
    path: &Path,
    create: impl Fn(&Path) -> io::Result<T>,
    complete: impl FnOnce(T) -> io::Result<()>,
) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut tries = 0;
    let (own, created) = loop {
        // Processes of two containers may have the same number.
        let random = RandomState::new().hash_one(tries);
        let own = path.with_file_name(format!(".{name}.{}-{random:016x}", std::process::id()));
        match create(&own) {
            Ok(created) => break (own, created),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 100 => tries += 1,
            Err(error) => return Err(error),
        }
    };
    let replaced = complete(created).and_then(|()| fs::rename(&own, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&own);
    }
    replaced
}

/// Whether code of the file can be mapped, as the loader does. It cannot on a file system that is mounted with `noexec`.
fn check_executable(file: &File) -> io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: a new mapping of one page, of which nothing is read.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            1,
            protection,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        let error = io::Error::last_os_error();
        let text = format!("its code cannot be mapped; is it mounted with noexec? ({error})");
        return Err(io::Error::new(error.kind(), text));
    }
    // SAFETY: the mapping that was made above.
    unsafe { libc::munmap(mapped, 1) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::io::{ErrorKind, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};
    use std::time::{Duration, SystemTime};

    use super::{Library, replace};

    fn library() -> Library {
        Library {
            name: "lib.so".to_owned(),
            content: b"content".to_vec().into(),
            link: None,
        }
    }

    fn folder(name: &str) -> PathBuf {
        let name = format!("cuguard-library-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder can be created");
        folder
    }

    #[test]
    fn the_library_is_written_once_and_replaced_if_it_was_changed() {
        let folder = folder("written");
        let library = library();
        let Ok((path, true)) = library.in_private_folder(&folder) else {
            panic!("the library can be written")
        };
        let first = fs::metadata(&path).and_then(|info| info.modified()).ok();
        assert_eq!(
            library.in_private_folder(&folder),
            Ok((path.clone(), false))
        );
        let second = fs::metadata(&path).and_then(|info| info.modified()).ok();
        assert_eq!(first, second);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("own file");
        fs::write(&path, "changed").expect("own file");
        assert!(library.existing(&path).is_none());
        let written = Ok((path.clone(), true));
        assert_eq!(library.in_private_folder(&folder), written);
        assert!(library.existing(&path).is_some());

        // A link is replaced, and not followed.
        let target = folder.join("target");
        fs::write(&target, "target").expect("own file");
        fs::remove_file(&path).expect("own file");
        symlink(&target, &path).expect("a link can be created");
        assert_eq!(library.in_private_folder(&folder), written);
        assert_eq!(fs::read_to_string(&target).ok().as_deref(), Some("target"));
        let names = fs::read_dir(&folder).expect("own folder").count();
        assert_eq!(names, 2, "no other file is left");
        fs::remove_dir_all(folder).expect("own folder");
    }

    /// Another container may have a process of the same number, and be writing.
    #[test]
    fn what_another_process_writes_is_left_alone() {
        let folder = folder("two");
        let path = folder.join("lib.so");
        let tries = Cell::new(0);
        let create = |own: &Path| {
            tries.set(tries.get() + 1);
            match tries.get() {
                // The names of both processes are the same.
                1 => fs::write(own, "other").and(Err(ErrorKind::AlreadyExists.into())),
                _ => fs::File::create_new(own),
            }
        };
        let done = replace(&path, create, |mut file| file.write_all(b"content"));
        assert!(done.is_ok(), "{done:?}");
        assert_eq!(fs::read(&path).ok().as_deref(), Some(&b"content"[..]));
        let others = fs::read_dir(&folder).expect("own folder").flatten();
        let others = others.filter(|entry| entry.path() != path);
        let others: Vec<_> = others.map(|entry| fs::read(entry.path()).ok()).collect();
        assert_eq!(others, [Some(b"other".to_vec())]);
        // Where it cannot be completed, nothing of it is left.
        let failed = replace(&path, create, |_| Err(ErrorKind::StorageFull.into()));
        assert!(failed.is_err());
        assert_eq!(fs::read_dir(&folder).expect("own folder").count(), 2);
        fs::remove_dir_all(folder).expect("own folder");
    }

    #[test]
    fn a_use_is_noted() {
        let folder = folder("used");
        let library = library();
        let Ok((path, _)) = library.in_private_folder(&folder) else {
            panic!("the library can be written")
        };
        let old = SystemTime::now() - Duration::from_secs(40 * 24 * 60 * 60);
        let file = fs::File::open(&path).expect("own file");
        file.set_modified(old).expect("own file");
        assert_eq!(library.in_private_folder(&folder), Ok((path, false)));
        let changed = file.metadata().and_then(|info| info.modified());
        let age = changed
            .expect("it has a time")
            .elapsed()
            .unwrap_or_default();
        assert!(age < Duration::from_secs(60 * 60), "{age:?}");
        fs::remove_dir_all(folder).expect("own folder");
    }

    #[test]
    fn names_that_separate_are_refused() {
        for name in ["a b", "a:b", "a;b", "a$LIB"] {
            let folder = folder(name);
            let library = library();
            let error = library.in_private_folder(&folder).expect_err("a separator");
            assert!(
                error.ends_with("cannot be in LD_PRELOAD or LD_LIBRARY_PATH"),
                "{error}"
            );
            fs::remove_dir_all(folder).expect("own folder");
        }
    }
}
