//! Why the program is not run.

use std::io;
use std::path::PathBuf;

/// The exit code where the program cannot be audited.
pub(super) const NOT_AUDITED: u8 = 125;

/// Why the program is not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("there is no program")]
    NoProgram,
    #[error("--output {}: {why}", path.display())]
    Output { path: PathBuf, why: String },
    #[error("--suppress {}: {why}", path.display())]
    Suppress { path: PathBuf, why: String },
    #[error("LEAK_REPORT: file={}: {why}", path.display())]
    File { path: PathBuf, why: String },
    #[error(
        "CUGUARD_DRIVER: `{}` names no driver; use real, sim, auto, or the path of a library (with a / in it)",
        word.escape_debug()
    )]
    Driver { word: String },
    #[error("LEAK_REPORT: {}", problems.join("; LEAK_REPORT: "))]
    Words { problems: Vec<String> },
    #[error("{name}: not found{}", where_to_look(name))]
    NotFound { name: String },
    #[error("{}: cannot be executed: {why}", path.display())]
    NotExecutable { path: PathBuf, why: String },
    #[error("{}: {why}. Nothing can be preloaded into it: {help}", path.display())]
    NotAudited {
        path: PathBuf,
        why: String,
        help: &'static str,
    },
    #[error(
        "this build of cuguard has no {what}: it is built for Linux with glibc, on x86_64 and aarch64{}",
        for_debug(package)
    )]
    NoLibrary {
        what: &'static str,
        package: &'static str,
    },
    #[error("{why}")]
    Cargo { why: String },
    #[error("{why}")]
    Metrics { why: String },
    #[error("cannot record into {}: {why}", path.display())]
    Record { path: PathBuf, why: String },
    #[error(
        "the {what} cannot be loaded into the program: {why}. Set XDG_CACHE_HOME or TMPDIR to another folder: it must be your own, not be mounted noexec, have no space, colon, semicolon or $ in its path, and every folder above it must belong to you or root"
    )]
    Library { what: &'static str, why: String },
    #[error("cannot create a private folder in {}: {error}", path.display())]
    Folder { path: PathBuf, error: io::Error },
    #[error("{}: cannot be started: {error}", path.display())]
    Start { path: PathBuf, error: io::Error },
}

/// Builds without optimisation look for the library beside the command.
fn for_debug(package: &str) -> String {
    match cfg!(debug_assertions) {
        true => format!("; for a debug build, `cargo build -p {package}` builds it"),
        false => String::new(),
    }
}

fn where_to_look(name: &str) -> &'static str {
    match name.contains('/') {
        true => "",
        false => " in the folders of PATH",
    }
}

impl Failure {
    /// The exit code, as of `env` and `timeout`.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::NoProgram
            | Self::Cargo { .. }
            | Self::Output { .. }
            | Self::Record { .. }
            | Self::Metrics { .. }
            | Self::Suppress { .. }
            | Self::File { .. }
            | Self::Driver { .. }
            | Self::Words { .. } => 2,
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Start { error, .. } if error.kind() == io::ErrorKind::NotFound => 127,
            Self::Start { .. } => 126,
            Self::NotAudited { .. }
            | Self::NoLibrary { .. }
            | Self::Library { .. }
            | Self::Folder { .. } => NOT_AUDITED,
        }
    }
}
