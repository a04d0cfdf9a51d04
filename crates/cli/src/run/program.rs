//! Finds the program, and names the reason if the loader would not preload a library into it.
//!
//! The loader is the dynamic linker that the program's file names. A static program has none; one of another architecture or
//! C library cannot use this library; and in secure-execution mode (`ld.so(8)`) it ignores `LD_PRELOAD`.

use std::env;
use std::ffi::{CString, OsStr};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::child::SHELL;
use super::elf;
use super::failure::Failure;

/// How many scripts may be each other's interpreters.
const SCRIPTS: usize = 5;

/// The program's file: `name` itself if it has a slash, or the first executable one in the folders of `PATH`.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let shown = || name.to_string_lossy().into_owned();
    if name.is_empty() {
        return Err(Failure::NotFound { name: shown() });
    }
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match fs::metadata(&path) {
            Ok(_) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Failure::NotFound { name: shown() })
            }
            Err(error) => Err(Failure::NotExecutable {
                path,
                why: error.to_string(),
            }),
        };
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let files = env::split_paths(&path).map(|folder| match folder.as_os_str().is_empty() {
        // An empty entry is the current folder.
        true => Path::new(".").join(name),
        false => folder.join(name),
    });
    let files: Vec<_> = files.filter(|file| file.is_file()).collect();
    let executable = files.iter().find(|file| is_executable(file));
    let found = executable.or(files.first());
    found
        .cloned()
        .ok_or_else(|| Failure::NotFound { name: shown() })
}

fn path_of(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

fn is_executable(path: &Path) -> bool {
    // SAFETY: the name ends in a null byte.
    path_of(path).is_some_and(|path| unsafe { libc::access(path.as_ptr(), libc::X_OK) } == 0)
}

/// Checks that the library can be preloaded into the program.
pub(super) fn check(path: &Path) -> Result<(), Failure> {
    check_file(path, SCRIPTS)
}

fn check_file(path: &Path, scripts: usize) -> Result<(), Failure> {
    let not_executable = |why: String| Failure::NotExecutable {
        path: path.to_owned(),
        why,
    };
    let info = fs::metadata(path).map_err(|error| not_executable(error.to_string()))?;
    if info.is_dir() {
        return Err(not_executable("it is a folder".to_owned()));
    }
    if !is_executable(path) {
        let why = "it has no permission to be executed (chmod +x)";
        return Err(not_executable(why.to_owned()));
    }
    // What cannot be read can still be executed.
    let Ok(mut file) = File::open(path) else {
        return check_privileges(path, &info);
    };
    let mut start = [0; 256];
    let length = read_up_to(&mut file, &mut start);
    let start = &start[..length];
    if let Some(line) = start.strip_prefix(b"#!") {
        // Privileges of scripts do not count.
        let Some(interpreter) = interpreter(line) else {
            return Err(not_executable(
                "its first line names no interpreter".to_owned(),
            ));
        };
        return match scripts.checked_sub(1) {
            Some(scripts) if interpreter.exists() => check_file(&interpreter, scripts),
            Some(_) => {
                let interpreter = interpreter.display();
                Err(not_executable(format!(
                    "its interpreter {interpreter} was not found"
                )))
            }
            None => Err(not_executable(
                "its interpreter is a script, too many times".to_owned(),
            )),
        };
    }
    check_privileges(path, &info)?;
    if !start.starts_with(b"\x7fELF") {
        // Without a magic number it is run by the shell.
        return match scripts.checked_sub(1) {
            Some(scripts) => check_file(Path::new(SHELL), scripts),
            None => Ok(()),
        };
    }
    elf::check(start, &mut file).map_err(|(why, help)| Failure::NotAudited {
        path: path.to_owned(),
        why,
        help,
    })
}

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> usize {
    let mut length = 0;
    while let Ok(read @ 1..) = file.read(&mut buffer[length..]) {
        length += read;
    }
    length
}

/// The interpreter in the first line of a script, without `#!`.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    words
        .next()
        .map(|word| PathBuf::from(OsStr::from_bytes(word)))
}

/// In secure-execution mode the loader ignores `LD_PRELOAD`.
fn check_privileges(path: &Path, info: &Metadata) -> Result<(), Failure> {
    // SAFETY: these always succeed.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let capabilities = || {
        let path = path_of(path)?;
        // SAFETY: both names end in a null byte; nothing is written without a buffer.
        let size = unsafe {
            libc::getxattr(
                path.as_ptr(),
                c"security.capability".as_ptr(),
                std::ptr::null_mut(),
                0,
            )
        };
        (size > 0 && user != 0).then_some("it has file capabilities")
    };
    let reason = if info.mode() & libc::S_ISUID != 0 && info.uid() != user {
        Some("it is set-user-ID")
    } else if info.mode() & libc::S_ISGID != 0
        && info.mode() & libc::S_IXGRP != 0
        && info.gid() != group
    {
        Some("it is set-group-ID")
    } else {
        capabilities()
    };
    reason.map_or(Ok(()), |why| {
        Err(Failure::NotAudited {
            path: path.to_owned(),
            why: format!("{why}, and the loader ignores LD_PRELOAD for it"),
            help: "run a copy of the file, which has no privileges, or run it as the user that it changes to",
        })
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::PathBuf;

    use super::{find, interpreter};

    #[test]
    fn programs_are_found_as_by_a_shell() {
        let shell = find(OsStr::new("sh")).expect("there is a shell");
        assert!(shell.is_absolute() && shell.ends_with("sh"));
        assert_eq!(
            find(OsStr::new("/bin/sh")).ok(),
            Some(PathBuf::from("/bin/sh"))
        );
        let missing = find(OsStr::new("does-not-exist")).expect_err("it does not exist");
        assert_eq!(
            missing.to_string(),
            "does-not-exist: not found in the folders of PATH"
        );
        let missing = find(OsStr::new("./does-not-exist")).expect_err("it does not exist");
        assert_eq!(missing.to_string(), "./does-not-exist: not found");
        assert!(find(OsStr::new("")).is_err());
    }

    #[test]
    fn the_first_line_names_the_interpreter() {
        for (line, name) in [
            (&b"/bin/sh\necho"[..], Some("/bin/sh")),
            (b" /usr/bin/env python3\n", Some("/usr/bin/env")),
            (b"\n/bin/sh", None),
            (b"", None),
        ] {
            assert_eq!(interpreter(line), name.map(PathBuf::from));
        }
    }
}
