//! Searches beside signal handlers of the program, and in processes that a signal ends.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Output;

use crate::support::{
    Folder, assert_success, audited, compile, programs, simulated_driver_folder, text,
};

/// The program, and the folder that it is in. `None` without a C compiler.
fn program() -> Option<(Folder, PathBuf)> {
    let folder = simulated_driver_folder();
    let source = programs().join("search_signals.c");
    let source = std::fs::read_to_string(source).expect("the program's text is there");
    let arguments = ["-O1", "-l:libcuda.so.1"];
    let program = compile(&folder, "signals", &source, &arguments)?;
    Some((folder, program))
}

fn run((folder, program): &(Folder, PathBuf), arguments: &[&str], report: &str) -> Output {
    let mut command = audited(program, folder);
    command.args(arguments).env("LEAK_REPORT", report);
    command.output().expect("the program can be started")
}

/// Where the program says that the address was found.
#[track_caller]
fn fate(program: &(Folder, PathBuf), arguments: &[&str]) -> String {
    let output = run(program, arguments, "0");
    assert_success(&output);
    let printed = text(&output.stdout);
    printed.lines().next().unwrap_or_default().to_owned()
}

/// The report that the program writes as JSON.
#[track_caller]
fn report(output: &Output) -> serde_json::Value {
    let stderr = text(&output.stderr);
    let report = stderr.lines().find(|line| line.starts_with('{'));
    let report = report.unwrap_or_else(|| panic!("{}: no report: {stderr}", output.status));
    serde_json::from_str(report).expect("JSON")
}

/// The handler that stops the thread has little room below the kernel's signal frame.
#[test]
fn a_thread_with_a_small_alternate_stack_is_stopped() {
    let Some(program) = program() else { return };
    assert_eq!(fate(&program, &["small stack, search"]), "lost");
}

/// As in programs in Rust, whose alternate stacks have 8 KiB: two signal frames of AVX-512 do not fit. The thread that the
/// signal ends is not stopped, and what it was at is known.
#[test]
fn a_small_alternate_stack_has_room_for_the_signal_that_ends_the_process() {
    let Some(program) = program() else { return };
    let output = run(&program, &["small stack, SIGTERM"], "json");
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{output:?}");
    let report = report(&output);
    assert_eq!(report["lost"]["bytes"], 4096, "{report}");
    assert!(report["search"]["cut_short"].is_null(), "{report}");
}

/// A system call that the search interrupts does not return to a program that the signal would have ended.
#[test]
fn a_thread_does_not_run_on_after_the_signal_that_ends_the_process() {
    let Some(program) = program() else { return };
    let output = run(&program, &["small stack, SIGTERM"], "json");
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{output:?}");
    assert_eq!(text(&output.stdout), "");
}

/// The interrupted frames are below the handler's: the array is in a frame further up.
#[test]
fn frames_that_a_handler_on_an_array_has_interrupted_are_searched() {
    let Some(program) = program() else { return };
    let found = fate(&program, &["handler on an array", "searches"]);
    assert!(found.starts_with("reachable: "), "{found}");
    let arguments = ["another thread's handler on an array", "waits"];
    let found = fate(&program, &arguments);
    assert!(found.starts_with("reachable: "), "{found}");
    let output = run(&program, &["handler on an array", "exits"], "json");
    assert_success(&output);
    assert_eq!(report(&output)["lost"]["bytes"], 0, "{output:?}");
}

#[test]
fn a_thread_in_code_that_cannot_be_read_is_stopped() {
    let Some(program) = program() else { return };
    assert_eq!(fate(&program, &["execute-only code"]), "lost");
}

/// A search stops threads by a signal. What they wait in goes on, though a handler interrupts it.
#[test]
#[cfg(target_arch = "x86_64")]
fn system_calls_are_restarted() {
    let folder = simulated_driver_folder();
    let source = std::fs::read_to_string(programs().join("restarts.c")).expect("it is there");
    let arguments = ["-O1", "-pthread", "-l:libcuda.so.1"];
    let Some(program) = compile(&folder, "restarts", &source, &arguments) else {
        return;
    };
    let program = (folder, program);
    let result = |arguments: &[&str]| {
        let output = run(&program, arguments, "0");
        assert_success(&output);
        let printed = text(&output.stdout);
        printed.lines().last().unwrap_or_default().to_owned()
    };
    let calls = [
        "sleep",
        "nanosleep",
        "usleep",
        "clock_nanosleep",
        "poll",
        "ppoll",
        "select",
        "epoll_wait",
        "sem_timedwait",
        "recv",
        "sigsuspend",
        "pause",
    ];
    for call in calls {
        assert_eq!(result(&[call]), "0", "{call}");
    }
    // A handler of the program still interrupts it.
    let interrupted = libc::EINTR.to_string();
    for call in ["nanosleep", "poll", "epoll_wait", "sem_timedwait"] {
        assert_eq!(result(&[call, "signal"]), interrupted, "{call}");
    }
}
