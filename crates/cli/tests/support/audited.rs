//! A C program that ends in every way, for `cuguard run`. It is that of the audit library's tests.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::support::cuguard;
use cuguard_testing::{Requirement, not_run};

/// What the simulated driver prints in each process that uses it.
pub const SIMULATED: &str =
    "cuguard: using the simulated GPU (this libcuda.so.1 is cuguard-libcuda-sim)";

/// A folder of its own for this test program, which is removed when it exits.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    extern "C" fn remove() {
        if let Some(folder) = FOLDER.get() {
            let _ = fs::remove_dir_all(folder);
        }
    }
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("cuguard-run-tests-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder can be created");
        // SAFETY: the function does not unwind.
        unsafe { libc::atexit(remove) };
        fs::canonicalize(folder).expect("it exists")
    })
}

/// A new folder in it.
pub fn subfolder(name: &str) -> PathBuf {
    let folder = folder().join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder can be created");
    folder
}

/// The simulated driver that cargo built for this test: in the folder of the test program, or its parent.
fn simulated_driver() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a file");
    let folders = program.ancestors().skip(1).take(2);
    let mut files = folders.map(|folder| folder.join("libcuda_sim.so"));
    files
        .find(|file| file.is_file())
        .expect("the simulated driver is built")
}

/// Compiles the program against the simulated driver, once. `None` without a C compiler.
pub fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    // The first time, `compile` says so.
    if let Some(None) = PROGRAM.get() {
        not_run(Requirement::CCompiler, "");
    }
    let program = PROGRAM.get_or_init(|| {
        let folder = subfolder("program");
        // It exists where a test before this one panicked for want of a compiler.
        let _ = std::os::unix::fs::symlink(simulated_driver(), folder.join("libcuda.so.1"));
        let source = include_str!("../../../audit/tests/ends/ends.c");
        compile_against(
            &folder,
            &folder.join("ends"),
            source,
            &["-std=gnu11", "-pthread"],
        )
    });
    program.as_deref()
}

/// Compiles the program that runs until its input ends, once. `None` without a C compiler, with a line on standard error.
pub fn live_program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    // Says so in each test, without a compiler.
    program()?;
    let program = PROGRAM.get_or_init(|| {
        let program = folder().join("program").join("live");
        compile(&program, include_str!("live.c"), &[])
    });
    program.as_deref()
}

/// Compiles a C program or library against the simulated driver, with debug information. `None` without a C compiler, with a
/// line on standard error.
pub fn compile(to: &Path, source: &str, flags: &[&str]) -> Option<PathBuf> {
    // Puts the simulated driver into the folder.
    program()?;
    let mut all = vec!["-std=gnu11", "-g", "-Wall", "-pthread"];
    all.extend(flags);
    compile_against(&folder().join("program"), to, source, &all)
}

/// Compiles against the driver in a folder.
fn compile_against(driver: &Path, to: &Path, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let flags = flags.iter().map(OsStr::new).chain([OsStr::new("-L")]);
    let libraries = ["-l:libcuda.so.1", "-ldl"].map(OsStr::new);
    let all = flags.chain([driver.as_os_str()]).chain(libraries);
    cuguard_testing::compile(to, source, all)
}

/// `cuguard run` with these arguments, with the simulated driver and a cache folder of the tests.
pub fn cuguard_run(arguments: &[&str]) -> Command {
    let mut command = cuguard("auto", &[]);
    command
        .arg("run")
        .args(arguments)
        .env_remove("LEAK_REPORT")
        .env_remove("LD_PRELOAD")
        .env_remove("XDG_RUNTIME_DIR")
        .env("XDG_CACHE_HOME", folder().join("cache"))
        .env("LD_LIBRARY_PATH", folder().join("program"));
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

pub fn output(command: &mut Command) -> Output {
    command.output().expect("the command can be started")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard error without the lines of the simulated driver, and without those that cargo prints while another cargo holds a lock.
pub fn stderr(output: &Output) -> String {
    let stderr = text(&output.stderr);
    let waits = |line: &str| {
        line.trim_start()
            .starts_with("Blocking waiting for file lock on ")
    };
    let lines = stderr
        .lines()
        .filter(|line| *line != SIMULATED && !waits(line));
    lines.map(|line| format!("{line}\n")).collect()
}

/// How many reports of processes are on standard error.
pub fn reports(output: &Output) -> usize {
    let stderr = stderr(output);
    let lines = stderr.lines();
    lines
        .filter(|line| line.starts_with("cuguard: process "))
        .count()
}
