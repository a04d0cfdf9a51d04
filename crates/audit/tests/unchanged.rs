//! What the library must not change in a program: its files, its limits, its signals, and that signals end it.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Output;

use crate::support::{
    Folder, assert_success, audited, compile, json, programs, simulated_driver_folder, text,
};

fn program() -> Option<(Folder, PathBuf)> {
    let folder = simulated_driver_folder();
    let source = programs().join("unchanged.c");
    let source = std::fs::read_to_string(source).expect("the program's text is there");
    let program = compile(&folder, "unchanged", &source, &["-l:libcuda.so.1"])?;
    Some((folder, program))
}

/// Runs the program with `LEAK_REPORT=1`.
fn run((folder, program): &(Folder, PathBuf), what: &str) -> Output {
    let mut command = audited(program, folder);
    command.arg(what).env("LEAK_REPORT", "1");
    command.env("CUGUARD_REPORT_LIMIT", "1");
    command.current_dir(folder.path());
    command.output().expect("the program can be started")
}

/// The driver accepts that, so it is no leak.
#[test]
fn plain_memory_that_is_freed_on_a_stream() {
    let Some((folder, program)) = program() else {
        return;
    };
    let report = json(&program, &folder);
    let totals = report["totals"].as_array().expect("an array");
    let device = totals.iter().find(|total| total["kind"] == "device");
    let device = device.expect("device memory");
    assert_eq!(device["live_count"], 0, "{report:#}");
    assert_eq!(device["allocated_count"], 1, "{report:#}");
}

/// A process that never uses CUDA, and limits its address space itself.
#[test]
fn a_limit_on_the_address_space_that_the_program_sets() {
    let Some(program) = program() else { return };
    assert_success(&run(&program, "limit"));
}

/// The program opened a file of its own where standard error was.
#[test]
fn a_diagnosis_does_not_go_into_a_file_of_the_program() {
    let Some(program) = program() else { return };
    assert_success(&run(&program, "diagnosis in a file"));
    let written = std::fs::read_to_string(program.0.join("data")).expect("the file can be read");
    assert!(written.ends_with("DATA\nMORE\n"), "{written}");
}

#[test]
fn a_diagnosis_into_a_pipe_without_a_reader() {
    let Some(program) = program() else { return };
    assert_success(&run(&program, "diagnosis into a pipe"));
}

/// Nobody reads standard error: neither the diagnosis nor the report keeps the program.
#[test]
fn a_full_pipe_does_not_keep_the_program() {
    let Some(program) = program() else { return };
    for what in ["full pipe", "full pipe that blocks"] {
        let status = run(&program, what).status;
        assert_eq!(status.signal(), Some(libc::SIGTERM), "{what}: {status}");
    }
}

/// The program takes the signal that the first search used.
#[test]
fn a_program_that_takes_the_signal_of_a_search() {
    let Some(program) = program() else { return };
    let output = run(&program, "taken signal");
    assert_success(&output);
    let stderr = text(&output.stderr);
    assert!(!stderr.contains("could not be stopped"), "{stderr}");
}

#[track_caller]
fn is_terminated(what: &str, why: &str) {
    let Some(program) = program() else { return };
    let output = run(&program, what);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{stderr}");
    assert!(stderr.contains(why), "{stderr}");
}

/// A limit forbids the thread that makes the report.
#[test]
fn a_signal_ends_a_process_without_a_reporting_thread() {
    is_terminated(
        "no thread",
        "cuguard: no report: the reporting thread could not be started",
    );
}

/// A thread holds a lock of the dynamic linker for ever, and the report needs it.
#[test]
fn a_signal_ends_a_process_whose_report_hangs() {
    is_terminated("locked", ": no report: it was not complete after 1 s");
}

/// A thread is cancelled at a cancellation point of its own, and not in this library's work, which has some.
#[test]
fn a_thread_that_is_cancelled() {
    let folder = simulated_driver_folder();
    let source = include_str!("programs/cancelled.c");
    let Some(program) = compile(&folder, "cancelled", source, &["-l:libcuda.so.1"]) else {
        return;
    };
    let program = (folder, program);
    for place in ["first use", "refused", "report", "asynchronous", "signal"] {
        let output = run(&program, place);
        let stderr = text(&output.stderr);
        assert!(
            output.status.success(),
            "{place}: {}: {stderr}",
            output.status
        );
        assert_eq!(text(&output.stdout), "still works\n", "{place}: {stderr}");
    }
    let output = run(&program, "exit");
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
}
