//! Every end of a process: its own exit status, and one report.
//!
//! `ends.c` ends as it is asked to. It needs a C compiler; without one, the tests print that they were not run.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;

/// A library that cargo built for this test: in the folder of the test program, or its parent.
fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("this program has a file");
    let folders = program.ancestors().skip(1).take(2);
    let mut files = folders.map(|folder| folder.join(name));
    files
        .find(|file| file.is_file())
        .expect("the library is built")
}

/// A folder of its own for this test program, which is removed when it exits.
fn folder() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    extern "C" fn remove() {
        if let Some(folder) = FOLDER.get() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
    let folder = FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("cuguard-ends-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be created");
        // SAFETY: the function does not unwind.
        unsafe { libc::atexit(remove) };
        folder
    });
    folder.clone()
}

/// Compiles the program against the simulated driver, once. `None` without a C compiler, with a line on stderr.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let folder = folder();
        let (program, source) = (folder.join("ends"), folder.join("ends.c"));
        std::fs::write(&source, include_str!("ends.c")).expect("a file can be written");
        std::os::unix::fs::symlink(built("libcuda_sim.so"), folder.join("libcuda.so.1"))
            .expect("a link can be created");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let output = Command::new(&compiler)
            .args(["-std=gnu11", "-Wall", "-pthread", "-o"])
            .args([&program, &source])
            .arg("-L")
            .arg(&folder)
            .args(["-l:libcuda.so.1", "-ldl"])
            .output();
        match output {
            Ok(output) if output.status.success() => Some(program),
            Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => panic!("cannot run {}: {error}", compiler.display()),
        }
    });
    if program.is_none() {
        not_run("needs a C compiler");
    }
    program.as_deref()
}

fn command(program: &Path, end: &str) -> Command {
    let mut command = Command::new(program);
    command
        .arg(end)
        .env("LD_PRELOAD", built("libcuguard_audit.so"))
        .env("LD_LIBRARY_PATH", folder())
        .env("LEAK_REPORT", "json")
        .env_remove("CUGUARD_RUN");
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

fn run(program: &Path, end: &str) -> Output {
    command(program, end)
        .output()
        .expect("the program can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The reasons of the reports on standard error, sorted. They are JSON.
fn reasons(output: &Output) -> Vec<String> {
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
fn assert_end(output: &Output, status: i32, expected: &[&str]) {
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
const fn code(code: i32) -> i32 {
    code << 8
}

/// A signal that dumps core, or would.
fn without_core(output: &Output) -> Output {
    let mut output = output.clone();
    output.status = ExitStatus::from_raw(output.status.into_raw() & !0x80);
    output
}

/// What the simulated driver prints.
const SIMULATED: &str =
    "cuguard: using the simulated GPU (this libcuda.so.1 is cuguard-libcuda-sim)\n";

#[test]
fn every_end_has_its_status_and_one_report() {
    let Some(program) = program() else { return };
    for (end, status, reasons) in [
        ("return", code(3), &["exit"][..]),
        ("exit", code(4), &["exit"]),
        ("_exit", code(5), &["_exit"]),
        ("_Exit", code(6), &["_exit"]),
        ("quick_exit", code(7), &["quick_exit"]),
        ("abort", libc::SIGABRT, &["SIGABRT"]),
        ("assert", libc::SIGABRT, &["SIGABRT"]),
        ("SIGTERM", libc::SIGTERM, &["SIGTERM"]),
        ("SIGINT", libc::SIGINT, &["SIGINT"]),
        ("SIGHUP", libc::SIGHUP, &["SIGHUP"]),
        ("SIGPIPE", libc::SIGPIPE, &["SIGPIPE"]),
        ("SIGKILL", libc::SIGKILL, &[]),
        ("own handler", code(5), &["_exit"]),
        ("ignored", code(8), &["exit"]),
        ("default is seen", libc::SIGTERM, &["SIGTERM"]),
        ("SIGTERM with threads", libc::SIGTERM, &["SIGTERM"]),
        ("exit with threads", code(9), &["exit"]),
        ("exit in a thread", code(10), &["exit"]),
        ("pthread_exit", code(0), &["exit"]),
    ] {
        eprintln!("{end}");
        assert_end(&without_core(&run(program, end)), status, reasons);
    }
}

/// What is lost is lost at every end: nothing that this library does with an address counts as the program's.
#[test]
fn a_leak_is_lost_at_every_end() {
    let Some(program) = program() else { return };
    for end in [
        "return",
        "exit",
        "_exit",
        "_Exit",
        "quick_exit",
        "abort",
        "assert",
        "SIGTERM",
        "SIGINT",
        "exec",
        "execlp",
        "execvp",
        "exit in a thread",
        "SIGTERM with threads",
        "exit with threads",
        "_exit while exiting",
        "SIGTERM while exiting",
    ] {
        let output = command(program, end)
            .arg("+leak")
            .output()
            .expect("it runs");
        let stderr = text(&output.stderr);
        let reports: Vec<_> = stderr
            .lines()
            .filter(|line| line.starts_with('{'))
            .collect();
        let [report] = reports[..] else {
            panic!("{end}: {stderr}")
        };
        let report: serde_json::Value = serde_json::from_str(report).expect("JSON");
        assert_eq!(report["lost"]["bytes"], 1 << 20, "{end}: {report}");
        assert_eq!(
            report["search"]["cut_short"],
            serde_json::Value::Null,
            "{end}: {report}"
        );
    }
}

#[test]
fn a_process_that_does_not_use_the_driver_prints_nothing() {
    let Some(program) = program() else { return };
    for (end, status) in [
        ("unused", code(3)),
        ("unused _exit", code(3)),
        ("unused SIGTERM", libc::SIGTERM),
    ] {
        let output = run(program, end);
        assert_end(&output, status, &[]);
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn no_report_is_made_twice() {
    let Some(program) = program() else { return };
    assert_end(&run(program, "_exit while exiting"), code(7), &["_exit"]);
    let output = run(program, "SIGTERM while exiting");
    assert_end(&output, libc::SIGTERM, &["SIGTERM"]);
}

/// The report is made before, as the memory that it is about does not survive. A failed exec leaves the process as it is:
/// it is reported once more at its end.
#[test]
fn an_exec_is_an_end() {
    let Some(program) = program() else { return };
    for (end, status, reasons) in [
        ("exec", 3, &["exec"][..]),
        ("exec of a user", 3, &["exec", "exit"]),
        ("execlp", 12, &["exec"]),
        ("execle", 13, &["exec"]),
        ("execvp", 14, &["exec"]),
        ("exec of nothing", 15, &["exit"]),
        ("exec of no program", 16, &["exec", "exit"]),
        ("unused exec", 3, &["exit"]),
    ] {
        eprintln!("{end}");
        assert_end(&run(program, end), code(status), reasons);
    }
}

#[test]
fn each_process_has_its_own_report() {
    let Some(program) = program() else { return };
    for (end, status, reasons) in [
        ("fork", 17, &["exit"][..]),
        ("unused fork", 3, &["_exit"]),
        ("vfork", 18, &["exit"]),
        ("children", 19, &["SIGTERM", "_exit", "exit"]),
        ("forked use", 26, &["exit"]),
        ("unused exec of many", 0, &["exit", "exit", "exit"]),
    ] {
        eprintln!("{end}");
        assert_end(&run(program, end), code(status), reasons);
    }
}

/// From outside, in the middle of calls of several threads; many times, as each is at another point.
#[test]
fn sigterm_in_the_middle_of_calls() {
    let Some(program) = program() else { return };
    for _ in 0..10 {
        let mut child = command(program, "wait")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        let read = BufReader::new(stdout).read_line(&mut line);
        assert_eq!((read.ok(), line.as_str()), (Some(6), "ready\n"));
        for _ in 0..2 {
            // SAFETY: the child has not been waited for.
            unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
        }
        let output = child.wait_with_output().expect("it can be waited for");
        assert_end(&output, libc::SIGTERM, &["SIGTERM"]);
    }
}

#[test]
fn closed_descriptors_and_other_files_are_left_alone() {
    let Some(program) = program() else { return };
    assert_end(&run(program, "close all"), code(20), &[]);

    // A file that happens to be descriptor 2.
    let file = folder().join("data");
    std::fs::write(&file, "data").expect("a file can be written");
    let mut other = command(program, "other file as stderr");
    let output = other.arg(&file).output().expect("it runs");
    assert_end(&output, code(21), &[]);
    assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), Some("data"));

    // A log that the program writes its standard error to.
    let file = folder().join("log");
    let mut log = command(program, "log as stderr");
    let output = log.arg(&file).output().expect("it runs");
    assert_end(&output, code(22), &[]);
    let log = std::fs::read_to_string(&file).expect("the log can be read");
    assert_eq!(log.matches("\"reason\":\"exit\"").count(), 1, "{log}");
}

#[test]
fn a_report_goes_to_the_file_of_the_folder_that_the_program_started_in() {
    let Some(program) = program() else { return };
    let folder = folder().join("start");
    std::fs::create_dir_all(&folder).expect("a folder can be created");
    let output = command(program, "chdir")
        .current_dir(&folder)
        .env("LEAK_REPORT", "1,file=report-%p.txt")
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(23));
    let files = std::fs::read_dir(&folder).expect("the folder can be read");
    let files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    let [file] = &files[..] else {
        panic!("{files:?}")
    };
    let report = std::fs::read_to_string(file).expect("the report can be read");
    assert!(report.starts_with("cuguard: process "), "{report}");
    let stderr = text(&output.stderr);
    let ending = format!("; report in {}", file.display());
    let lines = stderr
        .lines()
        .filter(|line| line.starts_with("cuguard: process "));
    let lines: Vec<_> = lines.collect();
    assert!(
        matches!(lines[..], [line] if line.ends_with(&ending)),
        "{stderr}"
    );
}

#[test]
fn the_words_of_leak_report_apply() {
    let Some(program) = program() else { return };
    let run = |words: &str, end: &str| {
        let output = command(program, end).env("LEAK_REPORT", words).output();
        output.expect("it runs")
    };
    let output = run("0", "return");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stderr), SIMULATED);
    let text_report = text(&run("", "return").stderr);
    assert!(text_report.contains("\ncuguard: process "), "{text_report}");
    let output = run("json,colour=purple", "return");
    let stderr = text(&output.stderr);
    let problem = "cuguard: LEAK_REPORT: cannot use \"colour=purple\": \"purple\" is none of auto, always, never\n";
    assert_eq!(stderr.matches(problem).count(), 1, "{stderr}");
    assert_end(&output, code(3), &["exit"]);
    // Without `cuguard run`, the library sets the exit code.
    assert_end(&run("json,exitcode=44", "leak"), code(44), &["exit"]);
    assert_end(&run("json,exitcode=44", "return"), code(3), &["exit"]);
    assert_end(
        &run("json,exitcode=44,fail_on=growth", "leak"),
        code(3),
        &["exit"],
    );
    // What the process started with holds.
    assert_end(&run("json", "setenv"), code(25), &["exit"]);
    // Nothing is printed about words in a process that does not use the driver.
    let output = run("bogus", "unused");
    assert_eq!(text(&output.stderr), "");
    // The program's own output is not lost.
    assert_eq!(text(&run("json", "stdio").stdout), "printed");
    assert_eq!(
        text(&run("json,exitcode=44", "leak after output").stdout),
        "printed"
    );
}

/// The one report of a program, which ends with this code.
#[track_caller]
fn report(command: &mut Command, expected: i32) -> serde_json::Value {
    let output = command.output().expect("it runs");
    assert_end(&output, code(expected), &["exit"]);
    let stderr = text(&output.stderr);
    let line = stderr.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.expect("a report")).expect("the report is JSON")
}

/// The report is made last, so what exit handlers and destructors free is not in it.
#[test]
fn what_is_freed_at_exit_is_no_leak() {
    let Some(program) = program() else { return };
    for end in ["freed in a destructor", "freed in an exit handler"] {
        let report = report(&mut command(program, end), 3);
        assert_eq!(report["lost"]["bytes"], 4096, "{end}: {report}");
        assert_eq!(report["reachable"]["bytes"], 0, "{end}: {report}");
    }
}

/// A kernel has accessed an illegal address: the driver fails every call from then on, frees too.
#[test]
fn a_failed_device_is_named() {
    let Some(program) = program() else { return };
    let folder = folder().join("failed");
    std::fs::create_dir_all(&folder).expect("a folder can be created");
    let source = folder.join("driver.c");
    let code = "#include <stddef.h>
int cuInit(unsigned flags) { return (int)flags; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(0x1000 + (size_t)device); return 0; }
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)0x1000; return 0; }
int cuMemAlloc_v2(unsigned long long *memory, size_t bytes) {
    static unsigned long long next = 0x7f0000000000;
    *memory = next;
    next += (bytes + 0xffff) & ~(size_t)0xffff;
    return 0;
}
int cuCtxSynchronize(void) { return 700; }
int cuMemFree_v2(unsigned long long memory) { (void)memory; return 700; }\n";
    std::fs::write(&source, code).expect("a file can be written");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(compiler)
        .args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"])
        .args([&folder.join("libcuda.so.1"), &source])
        .output()
        .expect("it compiled the program");
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let mut command = command(program, "illegal address");
    let report = report(command.env("LD_LIBRARY_PATH", &folder), 27);
    let failure = serde_json::json!({"function": "cuCtxSynchronize", "code": 700});
    assert_eq!(report["failure"], failure, "{report}");
    // It was not freed, and is not forgotten.
    let live = &report["totals"][0];
    assert_eq!(live["live_bytes"], (1 << 20) + 4096, "{report}");
    let text_report = text(
        &command
            .env("LEAK_REPORT", "1")
            .output()
            .expect("it runs")
            .stderr,
    );
    assert!(
        text_report.contains("cuCtxSynchronize") && text_report.contains("700"),
        "{text_report}"
    );
}

/// Level `sites` captures fewer frames, and `counts` none; the fate is known at all levels.
#[test]
fn the_level_is_how_much_is_recorded() {
    let Some(program) = program() else { return };
    let frames = |level: &str| {
        let words = format!("json,frames=all,depth=128,level={level}");
        let output = command(program, "leak deep down")
            .env("LEAK_REPORT", words)
            .output();
        let output = output.expect("it runs");
        assert_end(&output, code(3), &["exit"]);
        let stderr = text(&output.stderr);
        let line = stderr
            .lines()
            .find(|line| line.starts_with('{'))
            .expect("a report");
        let report: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(report["lost"]["bytes"], 1 << 20, "{report}");
        let groups = report["groups"].as_array().expect("groups");
        let lost = groups
            .iter()
            .find(|group| group["fate"] == "lost")
            .expect("a leak");
        lost["stack"].as_array().expect("frames").len()
    };
    assert!(frames("stacks") > 60);
    assert!((2..=24).contains(&frames("sites")));
    assert_eq!(frames("counts"), 0);
}

/// A pipe without a reader blocks whoever opens it.
#[test]
fn a_report_that_hangs_does_not_keep_the_process() {
    let Some(program) = program() else { return };
    let pipe = folder().join("pipe");
    let _ = std::fs::remove_file(&pipe);
    let name = std::ffi::CString::new(pipe.to_str().expect("Unicode")).expect("no null byte");
    // SAFETY: the name ends in a null byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let ends = [
        ("return", code(3)),
        ("_exit", code(5)),
        ("SIGTERM", libc::SIGTERM),
    ];
    for (end, status) in ends {
        let output = command(program, end)
            .env("LEAK_REPORT", format!("text,file={}", pipe.display()))
            .env("CUGUARD_REPORT_LIMIT", "1")
            .output()
            .expect("it runs");
        assert_end(&output, status, &[]);
        let stderr = text(&output.stderr);
        assert!(
            stderr.ends_with("no report: it was not complete after 1 s (CUGUARD_REPORT_LIMIT)\n"),
            "{stderr}"
        );
    }
}

/// Prints that the calling test was not run.
fn not_run(why: &str) {
    let test = std::thread::current();
    let test = test.name().unwrap_or("a test");
    // Written past the test harness, which captures the output of passing tests.
    let _ = std::io::stderr().write_all(format!("{test}: NOT RUN: {why}\n").as_bytes());
}

#[test]
fn an_uncaught_exception_is_an_end() {
    let Some(_) = program() else { return };
    let (program, source) = (folder().join("thrown"), folder().join("thrown.cc"));
    let code = "extern \"C\" int cuInit(unsigned);
int main(int count, char **) { if (cuInit(0) == 0) throw count; return 1; }\n";
    std::fs::write(&source, code).expect("a file can be written");
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let compiled = Command::new(compiler)
        .arg("-o")
        .args([&program, &source])
        .arg("-L")
        .arg(folder())
        .arg("-l:libcuda.so.1")
        .output();
    match compiled {
        Ok(compiled) if compiled.status.success() => {}
        Ok(compiled) => panic!("{}", text(&compiled.stderr)),
        Err(_) => return not_run("needs a C++ compiler"),
    }
    assert_end(
        &without_core(&run(&program, "")),
        libc::SIGABRT,
        &["SIGABRT"],
    );
}

/// A Python interpreter's own teardown, its ways to end, and its ways to start other processes.
#[test]
fn python_ends_as_without_the_library() {
    let Some(_) = program() else { return };
    let python = Path::new("python3");
    let version = Command::new(python).arg("--version").output();
    if !version.is_ok_and(|version| version.status.success()) {
        return not_run("needs Python");
    }
    const USE: &str = "
import ctypes, os, signal, subprocess, sys, threading, time
def use():
    assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0
def fork(child):
    process = os.fork()
    if process == 0:
        child()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
";
    for (script, status, reasons) in [
        ("use()", code(0), &["exit"][..]),
        ("use(); sys.exit(3)", code(3), &["exit"]),
        ("use(); os._exit(4)", code(4), &["_exit"]),
        ("use(); raise ValueError", code(1), &["exit"]),
        ("use(); os.abort()", libc::SIGABRT, &["SIGABRT"]),
        // Python raises KeyboardInterrupt, and ends itself by the signal after its teardown.
        (
            "use(); os.kill(os.getpid(), signal.SIGINT); time.sleep(9)",
            libc::SIGINT,
            &["SIGINT"],
        ),
        (
            "use(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)",
            libc::SIGTERM,
            &["SIGTERM"],
        ),
        // A daemon thread still runs at the end.
        (
            "use(); threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
            code(0),
            &["exit"],
        ),
        (
            "use(); os.execvp('sh', ['sh', '-c', 'exit 5'])",
            code(5),
            &["exec"],
        ),
        (
            "use(); assert subprocess.call(['sh', '-c', 'exit 6']) == 6",
            code(0),
            &["exit"],
        ),
        (
            "use(); assert fork(lambda: os._exit(7)) == 7",
            code(0),
            &["exit"],
        ),
        (
            "assert fork(lambda: (use(), os._exit(8))) == 8",
            code(0),
            &["_exit"],
        ),
        (
            "assert fork(lambda: (use(), sys.exit(9))) == 9",
            code(0),
            &["exit"],
        ),
        ("pass", code(0), &[]),
    ] {
        eprintln!("{script}");
        let mut command = command(python, "-c");
        let output = command
            .arg(format!("{USE}{script}"))
            .output()
            .expect("Python starts");
        assert_end(&without_core(&output), status, reasons);
    }
}
