//! A C program that ends in every way, for `cuguard run`. It is that of the audit library's tests.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::io::ErrorKind;
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
    let program = PROGRAM.get_or_init(|| {
        let folder = subfolder("program");
        let (program, source) = (folder.join("ends"), folder.join("ends.c"));
        fs::write(&source, include_str!("../../../audit/tests/ends/ends.c"))
            .expect("a file can be written");
        std::os::unix::fs::symlink(simulated_driver(), folder.join("libcuda.so.1"))
            .expect("a link can be created");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let output = Command::new(&compiler)
            .args(["-std=gnu11", "-pthread", "-o"])
            .args([&program, &source])
            .arg("-L")
            .arg(&folder)
            .args(["-l:libcuda.so.1", "-ldl"])
            .output();
        match output {
            Ok(output) if output.status.success() => Some(program),
            Ok(output) => panic!("{}", text(&output.stderr)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => panic!("cannot run {}: {error}", compiler.display()),
        }
    });
    if program.is_none() {
        not_run(Requirement::CCompiler, "");
    }
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
    let file = to.with_extension("c");
    fs::write(&file, source).expect("a file can be written");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(&compiler)
        .args(["-std=gnu11", "-g", "-Wall", "-pthread"])
        .args(flags)
        .arg("-o")
        .args([to, &file])
        .arg("-L")
        .arg(folder().join("program"))
        .args(["-l:libcuda.so.1", "-ldl"])
        .output();
    match compiled {
        Ok(compiled) if compiled.status.success() => Some(to.to_owned()),
        Ok(compiled) => panic!("{}", text(&compiled.stderr)),
        Err(error) => panic!("cannot run {}: {error}", compiler.display()),
    }
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

/// Standard error without the lines of the simulated driver.
pub fn stderr(output: &Output) -> String {
    let stderr = text(&output.stderr);
    let lines = stderr.lines().filter(|line| *line != SIMULATED);
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
