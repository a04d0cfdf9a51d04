//! The program that ends as it is asked to, and how it ended.

use cuguard_testing::{Requirement, not_run};
use std::ffi::OsStr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::sync::OnceLock;

/// A library that cargo built for this test: in the folder of the test program, or its parent.
pub(crate) fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("this program has a file");
    let folders = program.ancestors().skip(1).take(2);
    let mut files = folders.map(|folder| folder.join(name));
    files
        .find(|file| file.is_file())
        .expect("the library is built")
}

/// A folder of its own for this test program, which is removed when it exits.
pub(crate) fn folder() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    extern "C" fn remove() {
        if let Some(folder) = FOLDER.get() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
    let folder = FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("cuguard-ends-{}", std::process::id()));
        // One may be left of a process that was killed.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder can be created");
        // SAFETY: the function does not unwind.
        unsafe { libc::atexit(remove) };
        folder
    });
    folder.clone()
}

/// Compiles the program against the simulated driver, once. `None` without a C compiler, with a line on stderr.
pub(crate) fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    // The first time, `compile` says so.
    if let Some(None) = PROGRAM.get() {
        not_run(Requirement::CCompiler, "");
    }
    let program = PROGRAM.get_or_init(|| {
        let folder = folder();
        // It exists where a test before this one panicked for want of a compiler.
        let _ = std::os::unix::fs::symlink(built("libcuda_sim.so"), folder.join("libcuda.so.1"));
        let options = ["-std=gnu11", "-Wall", "-pthread", "-L"].map(OsStr::new);
        let libraries = ["-l:libcuda.so.1", "-ldl"].map(OsStr::new);
        let all = options
            .into_iter()
            .chain([folder.as_os_str()])
            .chain(libraries);
        cuguard_testing::compile(&folder.join("ends"), include_str!("ends.c"), all)
    });
    program.as_deref()
}

pub(crate) fn command(program: &Path, end: &str) -> Command {
    let mut command = Command::new(program);
    command
        .arg(end)
        .env("LD_PRELOAD", built("libcuguard_audit.so"))
        .env("LD_LIBRARY_PATH", folder())
        .env("LEAK_REPORT", "json")
        .env_remove("CUGUARD_RUN")
        .env_remove("CUGUARD_RUN_REPORT");
    // A shell ignores these in background processes, which inherit that.
    // SAFETY: the calls are async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command
}

pub(crate) fn run(program: &Path, end: &str) -> Output {
    command(program, end)
        .output()
        .expect("the program can be started")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The reasons of the reports on standard error, sorted. They are JSON.
pub(crate) fn reasons(output: &Output) -> Vec<String> {
    let stderr = text(&output.stderr);
    let reports = stderr
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| {
            let report: serde_json::Value = serde_json::from_str(line).expect("the report is JSON");
            report["reason"].as_str().expect("a reason").to_owned()
        });
    let mut reports: Vec<_> = reports.collect();
    reports.sort();
    reports
}

#[track_caller]
pub(crate) fn assert_end(output: &Output, status: i32, expected: &[&str]) {
    let all = format!(
        "{}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    assert_eq!(output.status, ExitStatus::from_raw(status), "{all}");
    assert_eq!(reasons(output), expected, "{all}");
}

/// The raw status of an exit code.
pub(crate) const fn code(code: i32) -> i32 {
    code << 8
}

/// A signal that dumps core, or would.
pub(crate) fn without_core(output: &Output) -> Output {
    let mut output = output.clone();
    output.status = ExitStatus::from_raw(output.status.into_raw() & !0x80);
    output
}

/// What the simulated driver prints.
pub(crate) const SIMULATED: &str =
    "cuguard: using the simulated GPU (this libcuda.so.1 is cuguard-libcuda-sim)\n";

/// The one report of a program, which ends with this code.
#[track_caller]
pub(crate) fn report(command: &mut Command, expected: i32) -> serde_json::Value {
    let output = command.output().expect("it runs");
    assert_end(&output, code(expected), &["exit"]);
    let stderr = text(&output.stderr);
    let line = stderr.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.expect("a report")).expect("the report is JSON")
}
