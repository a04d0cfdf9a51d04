//! C programs and libraries that tests compile.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::requirement::{Requirement, not_run};

/// Compiles C code with `$CC`, or `cc`, to `output`, and returns that. The source is put beside it. The arguments follow
/// the source, so they may name libraries. `None` without a compiler, after [`not_run`].
///
/// # Panics
/// If the code has an error, with the compiler's messages, or a file cannot be written.
#[track_caller]
pub fn compile(
    output: &Path,
    code: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Option<PathBuf> {
    let source = output.with_extension("c");
    std::fs::write(&source, code).expect("a file can be written");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let run = Command::new(&compiler)
        .arg("-o")
        .args([output, &source])
        .args(arguments)
        .output();
    match run {
        Ok(run) => {
            let messages = String::from_utf8_lossy(&run.stderr);
            assert!(run.status.success(), "{}: {messages}", source.display());
            Some(output.to_owned())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            not_run(Requirement::CCompiler, "");
            None
        }
        Err(error) => panic!("cannot run {}: {error}", compiler.display()),
    }
}

/// The C++ compiler: `$CXX`, or `c++`.
pub fn cxx() -> OsString {
    std::env::var_os("CXX").unwrap_or_else(|| "c++".into())
}
