//! Searches that something hinders: what they do not find is not called lost.

use std::path::PathBuf;

use crate::support::{
    Folder, assert_success, audited, compile, programs, simulated_driver_folder, text,
};

/// The program, and the folder that it is in. `None` without a C compiler.
fn program() -> Option<(Folder, PathBuf)> {
    let folder = simulated_driver_folder();
    let source = programs().join("search_hindered.c");
    let source = std::fs::read_to_string(source).expect("the program's text is there");
    let arguments = ["-O1", "-l:libcuda.so.1"];
    let program = compile(&folder, "hindered", &source, &arguments)?;
    Some((folder, program))
}

/// What the program prints: where the address was found, and what was searched.
#[track_caller]
fn search(program: &(Folder, PathBuf), arguments: &[&str]) -> [String; 2] {
    let (folder, program) = program;
    let mut command = audited(program, folder);
    command.args(arguments).env("LEAK_REPORT", "0");
    let output = command.output().expect("the program can be started");
    assert_success(&output);
    let printed = text(&output.stdout);
    let mut lines = printed.lines().map(str::to_owned);
    [(); 2].map(|()| lines.next().unwrap_or_default())
}

#[test]
fn nothing_is_lost_without_a_free_file_descriptor() {
    let Some(program) = program() else { return };
    let [fate, searched] = search(&program, &["all descriptors used", "held"]);
    assert_eq!(fate, "alive", "{searched}");
    let words = "the memory map of the process could not be read; the threads of the process could not be listed";
    assert!(searched.contains(words), "{searched}");
}

#[test]
fn nothing_is_lost_where_memory_cannot_be_read() {
    let Some(program) = program() else { return };
    let [fate, searched] = search(&program, &["no reading", "held"]);
    assert_eq!(fate, "alive", "{searched}");
    assert!(searched.starts_with("searched 0 bytes"), "{searched}");
    assert!(
        searched.ends_with("MiB of memory could not be read"),
        "{searched}"
    );
}

#[test]
fn a_sandbox_without_process_vm_readv() {
    let Some(program) = program() else { return };
    let [fate, searched] = search(&program, &["no process_vm_readv", "held"]);
    assert_eq!(fate, "reachable: global `held` in hindered", "{searched}");
    let [fate, searched] = search(&program, &["no process_vm_readv"]);
    assert_eq!(fate, "lost", "{searched}");
}

#[test]
fn after_the_main_thread_has_ended() {
    let Some(program) = program() else { return };
    let [fate, searched] = search(&program, &["main thread ended", "held"]);
    assert_eq!(fate, "reachable: global `held` in hindered", "{searched}");
    let [fate, searched] = search(&program, &["main thread ended"]);
    assert_eq!(fate, "lost", "{searched}");
}

/// Such a thread cannot be stopped, so its registers are not known.
#[test]
fn nothing_is_lost_beside_a_thread_that_blocks_signals() {
    let Some(program) = program() else { return };
    let [fate, searched] = search(&program, &["register of a thread that blocks signals"]);
    assert_eq!(fate, "alive", "{searched}");
    let words = "the registers of one thread could not be read";
    assert!(searched.ends_with(words), "{searched}");
    // What is found is found.
    let arguments = ["register of a thread that blocks signals", "held"];
    let [fate, searched] = search(&program, &arguments);
    assert_eq!(fate, "reachable: global `held` in hindered", "{searched}");
}

/// The thread that exits waits inside of the library, so its registers are known though it cannot be stopped.
#[test]
fn a_program_that_exits_with_signals_blocked_has_leaks() {
    let Some((folder, program)) = program() else {
        return;
    };
    for (arguments, lost) in [
        (&["exit with signals blocked"][..], 4096),
        (&["exit with signals blocked", "held"], 0),
    ] {
        let mut command = audited(&program, &folder);
        command.args(arguments).env("LEAK_REPORT", "json");
        let output = command.output().expect("the program can be started");
        assert_success(&output);
        let stderr = text(&output.stderr);
        let report = stderr.lines().find(|line| line.starts_with('{'));
        let report: serde_json::Value = serde_json::from_str(report.expect(&stderr)).expect("JSON");
        assert_eq!(report["lost"]["bytes"], lost, "{report}");
        assert!(report["search"]["cut_short"].is_null(), "{report}");
    }
}

/// The signal that stops threads is not for a program that waits for signals.
#[test]
fn a_thread_that_waits_for_signals() {
    let Some((folder, program)) = program() else {
        return;
    };
    for (shape, fate) in [
        ("a thread waits for all signals", "alive"),
        ("a thread waits for a signal", "lost"),
    ] {
        let mut command = audited(&program, &folder);
        command.arg(shape).env("LEAK_REPORT", "0");
        let output = command.output().expect("the program can be started");
        assert_success(&output);
        let printed = text(&output.stdout);
        let lines: Vec<_> = printed.lines().collect();
        let signal = format!("the program got signal {}", libc::SIGTERM);
        assert_eq!((lines[0], &lines[2..]), (fate, &[signal.as_str()][..]));
    }
}
