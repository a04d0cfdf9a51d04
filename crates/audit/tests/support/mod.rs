//! C programs under the audit library, on the simulated GPU.
//!
//! They need a C compiler. Without one, a test prints that it was not run.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub use cuguard_testing::Folder;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A library that cargo built for this test: in the folder of the test program, or its parent.
fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("this program has a file");
    let folders = program.ancestors().skip(1).take(2);
    let candidates: Vec<_> = folders.map(|folder| folder.join(name)).collect();
    let newest = candidates
        .iter()
        .filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file)))
        .max();
    match newest {
        Some((_, file)) => file.clone(),
        None => panic!("{name} was not built; looked for {candidates:?}"),
    }
}

/// The audit library.
pub fn library() -> PathBuf {
    built("libcuguard_audit.so")
}

/// A folder with the simulated driver as `libcuda.so.1`.
pub fn simulated_driver_folder() -> Folder {
    let folder = Folder::new("audit");
    std::os::unix::fs::symlink(built("libcuda_sim.so"), folder.join("libcuda.so.1"))
        .expect("a link can be created");
    folder
}

/// The text that a program wrote.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Fails with the program's output unless it succeeded.
#[track_caller]
pub fn assert_success(output: &Output) {
    assert!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// The folder of the C sources.
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Compiles `source` to `name` in a folder, and returns its path. Libraries in the folder are found, and headers in
/// `tests/programs`. `None` without a C compiler, with a line on standard error.
pub fn compile(folder: &Folder, name: &str, source: &str, arguments: &[&str]) -> Option<PathBuf> {
    let headers = programs();
    let mut all: Vec<&OsStr> = ["-std=gnu11", "-g", "-Wall", "-Werror", "-I"]
        .map(OsStr::new)
        .into();
    all.extend([
        headers.as_os_str(),
        OsStr::new("-L"),
        folder.path().as_os_str(),
    ]);
    all.extend(arguments.iter().map(OsStr::new));
    all.extend(["-ldl", "-lpthread"].map(OsStr::new));
    cuguard_testing::compile(&folder.join(name), source, all)
}

/// A program that is run under the audit library, with the driver in a folder.
pub fn audited(program: &Path, driver: &Folder) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", library())
        .env("LD_LIBRARY_PATH", driver.path())
        .env_remove("LEAK_REPORT");
    command
}

/// Runs a program under the audit library with further environment variables.
pub fn run<V: AsRef<OsStr>>(program: &Path, driver: &Folder, variables: &[(&str, V)]) -> Output {
    let mut command = audited(program, driver);
    for (name, value) in variables {
        command.env(name, value);
    }
    command.output().expect("the program can be started")
}

/// The report of a program as JSON. The program must succeed.
#[track_caller]
pub fn json(program: &Path, driver: &Folder) -> serde_json::Value {
    let file = driver.join("report.json");
    let _ = std::fs::remove_file(&file);
    let words = format!("json,file={}", file.display());
    let output = run(program, driver, &[("LEAK_REPORT", words)]);
    assert_success(&output);
    let report = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("no report: {error}\n{}", text(&output.stderr)));
    match serde_json::from_str(&report) {
        Ok(report) => report,
        Err(error) => panic!("{error}: {report}"),
    }
}
