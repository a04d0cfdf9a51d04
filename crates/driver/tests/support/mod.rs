//! Child processes and libraries made for a test.

pub mod cust_raw_names;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The variable that names what a child runs.
pub(crate) const ROLE: &str = "CUGUARD_TEST_ROLE";
/// The variable that gives it an argument.
pub(crate) const ARGUMENT: &str = "CUGUARD_TEST_ARGUMENT";

/// A child process that is not started yet.
pub(crate) struct Child {
    command: Command,
}

impl Child {
    /// A child that runs the function `role`, with no driver chosen by the environment.
    pub(crate) fn new(role: &str) -> Self {
        let mut command = cuguard_testing::test_command("child::run");
        command
            .arg("--ignored")
            .env(ROLE, role)
            .env_remove("CUGUARD_DRIVER")
            .stdin(Stdio::null());
        Self { command }
    }

    /// Sets `CUGUARD_DRIVER`.
    pub(crate) fn driver(mut self, value: impl AsRef<OsStr>) -> Self {
        self.command.env("CUGUARD_DRIVER", value);
        self
    }

    /// Gives the child an argument.
    pub(crate) fn argument(mut self, value: impl AsRef<OsStr>) -> Self {
        self.command.env(ARGUMENT, value);
        self
    }

    /// Puts the folder of `library` first in `LD_LIBRARY_PATH`.
    pub(crate) fn search(mut self, library: &Path) -> Self {
        let mut folders = OsString::from(library.parent().expect("a file lies in a folder"));
        if let Some(others) = std::env::var_os("LD_LIBRARY_PATH") {
            folders.push(":");
            folders.push(others);
        }
        self.command.env("LD_LIBRARY_PATH", folders);
        self
    }

    /// Runs it until it ends.
    pub(crate) fn run(mut self) -> Finished {
        let output = self.command.output().expect("a child can be started");
        Finished {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// How a child ended.
#[derive(Debug)]
pub(crate) struct Finished {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Finished {
    /// It ended with code 0 and printed `text`.
    #[track_caller]
    pub(crate) fn succeeded_with(&self, text: &str) {
        assert_eq!(self.code, Some(0), "{self:#?}");
        assert!(self.stdout.contains(text), "{text:?} is not in {self:#?}");
    }

    /// It ended with the code of an error that was handled (a panic has another one, and a crash
    /// has none), and printed `text` on stderr.
    #[track_caller]
    pub(crate) fn failed_with(&self, text: &str) {
        assert_eq!(self.code, Some(1), "{self:#?}");
        assert!(self.stderr.contains(text), "{text:?} is not in {self:#?}");
    }

    /// How many lines on stderr begin with `start`.
    pub(crate) fn lines_of_stderr(&self, start: &str) -> usize {
        let lines = self.stderr.lines();
        lines.filter(|line| line.starts_with(start)).count()
    }

    /// The lines on stdout that begin with `start`.
    pub(crate) fn lines_of_stdout(&self, start: &str) -> Vec<&str> {
        let lines = self.stdout.lines();
        lines.filter(|line| line.starts_with(start)).collect()
    }

    /// It ended with code 0 and printed on stderr, in one line, that the GPU is simulated, and why.
    #[track_caller]
    pub(crate) fn announced(&self, why: &str) {
        assert_eq!(self.code, Some(0), "{self:#?}");
        let line = format!("cuguard: using the simulated GPU ({why}");
        let announcements = self
            .stderr
            .lines()
            .filter(|line| line.starts_with("cuguard:"));
        let announcements: Vec<_> = announcements.collect();
        assert_eq!(announcements.len(), 1, "{self:#?}");
        assert!(
            announcements[0].starts_with(&line),
            "{line:?} is not in {self:#?}"
        );
    }
}

/// A folder for files of this process's tests, which is removed when it exits: in cargo's, or in the system's if this
/// program runs on another machine than it was built on.
fn scratch() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    extern "C" fn remove() {
        if let Some(folder) = FOLDER.get() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = match folder.is_dir() {
            true => folder.to_path_buf(),
            false => std::env::temp_dir(),
        };
        // SAFETY: the function does not unwind.
        unsafe { libc::atexit(remove) };
        folder.join(format!("cuguard-driver-{}", std::process::id()))
    })
}

/// Compiles a shared library from C source, to a file of this name. `None`, and a line on stderr, where
/// there is no C compiler.
pub(crate) fn compile(name: &str, source: &str) -> Option<PathBuf> {
    compile_with(name, source, &[])
}

/// Does the same with more arguments for the compiler.
pub(crate) fn compile_with(name: &str, source: &str, arguments: &[&OsStr]) -> Option<PathBuf> {
    let mut library = scratch().join(name);
    if library.extension().is_none() {
        library.set_extension("so");
    }
    let folder = library.parent().expect("a file lies in a folder");
    std::fs::create_dir_all(folder).expect("the folder can be made");
    let shared = ["-shared", "-fPIC", "-w"].map(OsStr::new);
    cuguard_testing::compile(&library, source, shared.iter().chain(arguments))
}

/// The driver that is installed on this machine, if there is one.
pub(crate) fn installed_driver() -> Option<String> {
    let child = Child::new("load").driver("real").run();
    // The test harness may have printed the beginning of the line.
    let (_, found) = child.stdout.split_once("loaded: ")?;
    found.lines().next().map(str::to_owned)
}
