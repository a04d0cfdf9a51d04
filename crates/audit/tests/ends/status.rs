//! The exit status of every end, and its one report.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::program::{assert_end, built, code, command, folder, program, run, text, without_core};
use cuguard_testing::{Requirement, not_run};

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
        ("default is restored", libc::SIGTERM, &["SIGTERM"]),
        ("SIGTERM with threads", libc::SIGTERM, &["SIGTERM"]),
        ("exit with threads", code(9), &["exit"]),
        ("exit in a thread", code(10), &["exit"]),
        ("pthread_exit", code(0), &["exit"]),
        ("main is cancelled", code(0), &["exit"]),
        ("main is not cancelled", code(3), &["exit"]),
        ("own real-time signal", code(5), &["_exit"]),
    ] {
        eprintln!("{end}");
        assert_end(&without_core(&run(program, end)), status, reasons);
    }
}

/// Every signal that ends a process by default, but crashes and `SIGKILL`.
#[test]
fn every_signal_has_its_report() {
    let Some(program) = program() else { return };
    let first = libc::SIGRTMIN();
    for (signal, name) in [
        (libc::SIGHUP, "SIGHUP".to_owned()),
        (libc::SIGQUIT, "SIGQUIT".to_owned()),
        (libc::SIGUSR1, "SIGUSR1".to_owned()),
        (libc::SIGUSR2, "SIGUSR2".to_owned()),
        (libc::SIGALRM, "SIGALRM".to_owned()),
        (libc::SIGSTKFLT, "SIGSTKFLT".to_owned()),
        (libc::SIGXCPU, "SIGXCPU".to_owned()),
        (libc::SIGXFSZ, "SIGXFSZ".to_owned()),
        (libc::SIGVTALRM, "SIGVTALRM".to_owned()),
        (libc::SIGPROF, "SIGPROF".to_owned()),
        (libc::SIGIO, "SIGIO".to_owned()),
        (libc::SIGPWR, "SIGPWR".to_owned()),
        (first, "SIGRTMIN".to_owned()),
        (first + 1, "SIGRTMIN+1".to_owned()),
        (
            libc::SIGRTMAX(),
            format!("SIGRTMIN+{}", libc::SIGRTMAX() - first),
        ),
    ] {
        let mut command = command(program, "signal");
        // One of them would request a report otherwise.
        command.env("LEAK_REPORT", "json,dump-signal=none");
        let output = command.arg(signal.to_string()).output().expect("it runs");
        assert_end(&without_core(&output), signal, &[&name]);
    }
}

/// Compiles a library.
fn shared_library(name: &str, code: &str) -> PathBuf {
    let library = folder().join(format!("{name}.so"));
    cuguard_testing::compile(&library, code, ["-shared", "-fPIC"]).expect("it compiled the program")
}

/// The dynamic linker's locks are held by the thread that exits, so no other thread can look anything up.
#[test]
fn an_exit_with_a_lock_of_the_dynamic_linker_has_a_report() {
    let Some(program) = program() else { return };
    let library = shared_library(
        "exits",
        "#include <stdlib.h>
__attribute__((constructor)) static void construct(void) { exit(28); }\n",
    );
    for (end, status, reasons) in [
        ("exit in a constructor", 28, &["exit"][..]),
        ("exit in a callback", 28, &["exit"]),
        ("_exit in a callback", 29, &[]),
    ] {
        eprintln!("{end}");
        let mut command = command(program, end);
        let output = command
            .arg(&library)
            .arg("+leak")
            .output()
            .expect("it runs");
        assert_end(&output, code(status), reasons);
        let stderr = text(&output.stderr);
        match reasons.is_empty() {
            // Stale copies of the address may be on the stack, in frames of the dynamic linker.
            false => assert!(stderr.contains("\"live_bytes\":1048576,"), "{stderr}"),
            true => assert!(
                stderr.ends_with(": no report: the dynamic linker is locked\n"),
                "{stderr}"
            ),
        }
    }
}

/// The report at this end of a program that leaks 1 MiB.
#[track_caller]
fn report_of_leak(program: &Path, end: &str, how: &str) -> serde_json::Value {
    report_of(command(program, end).arg(how))
}

/// The one report of a program whose memory could be searched.
#[track_caller]
fn report_of(command: &mut Command) -> serde_json::Value {
    let output = command.output().expect("it runs");
    let stderr = text(&output.stderr);
    let reports: Vec<_> = stderr
        .lines()
        .filter(|line| line.starts_with('{'))
        .collect();
    let [report] = reports[..] else {
        panic!("{command:?}: {stderr}")
    };
    let report: serde_json::Value = serde_json::from_str(report).expect("JSON");
    let cut_short = &report["search"]["cut_short"];
    assert!(cut_short.is_null(), "{command:?}: {report}");
    report
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
        let report = report_of_leak(program, end, "+leak");
        assert_eq!(report["lost"]["bytes"], 1 << 20, "{end}: {report}");
    }
}

/// The program's part of a stack ends where it called this library, or where a signal interrupted it. Below it are frames of this
/// library, of the driver and of the kernel, whose padding has remains of earlier calls.
#[test]
fn remains_below_the_program_hold_nothing() {
    let Some(program) = program() else { return };
    for (end, how) in [
        ("return", "+remains"),
        ("exit", "+remains"),
        ("_exit", "+remains"),
        ("_Exit", "+remains"),
        ("SIGINT", "+remains"),
        ("exec", "+remains"),
        ("execlp", "+remains"),
        ("execvp", "+remains"),
        ("exit in a thread", "+remains"),
        ("SIGTERM with threads", "+remains"),
        ("SIGINT", "+alternate stack"),
        ("SIGTERM with threads", "+alternate stack"),
    ] {
        let report = report_of_leak(program, end, how);
        assert_eq!(report["lost"]["bytes"], 1 << 20, "{end} {how}: {report}");
    }
}

/// A thread is stopped in a call: what the driver has in its frames is not the program's.
#[test]
fn frames_of_the_driver_hold_nothing() {
    let Some(program) = program() else { return };
    let code = "#include <unistd.h>
static volatile unsigned long long stored;
void hold(unsigned long long masked) { stored = masked; }
int cuCtxSynchronize(void) {
    volatile unsigned long long held = stored ^ 0x5555555555555555ull;
    for (;;) pause();
    return held != 0;
}\n";
    let library = shared_library("holds", code);
    let preloaded = [built("libcuguard_audit.so"), library];
    let preloaded = preloaded.map(|library| library.display().to_string());
    let mut command = command(program, "exit while another calls");
    command.arg("+leak").env("LD_PRELOAD", preloaded.join(":"));
    let report = report_of(&mut command);
    assert_eq!(report["lost"]["bytes"], 1 << 20, "{report}");
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
fn an_uncaught_exception_is_an_end() {
    let Some(_) = program() else { return };
    let (program, source) = (folder().join("thrown"), folder().join("thrown.cc"));
    let code = "extern \"C\" int cuInit(unsigned);
int main(int count, char **) { if (cuInit(0) == 0) throw count; return 1; }\n";
    std::fs::write(&source, code).expect("a file can be written");
    let compiled = Command::new(cuguard_testing::cxx())
        .arg("-o")
        .args([&program, &source])
        .arg("-L")
        .arg(folder())
        .arg("-l:libcuda.so.1")
        .output();
    match compiled {
        Ok(compiled) if compiled.status.success() => {}
        Ok(compiled) => panic!("{}", text(&compiled.stderr)),
        Err(_) => return not_run(Requirement::CxxCompiler, ""),
    }
    assert_end(
        &without_core(&run(&program, "")),
        libc::SIGABRT,
        &["SIGABRT"],
    );
}
