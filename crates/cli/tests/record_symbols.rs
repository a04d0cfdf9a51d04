//! Names of functions in recordings: of libraries that replace each other, and of programs that the machine does not have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use crate::support::audited::{compile, cuguard_run, live_program, output, subfolder, text};
use crate::support::cuguard;
use cuguard_testing::{Requirement, not_run};

/// Runs a program under `cuguard run --record` with further options.
fn record(file: &Path, options: &[&str], program: &Path, arguments: &[&Path]) -> Output {
    let mut command = cuguard_run(&["--record", file.to_str().unwrap()]);
    let command = command.args(options).arg("--").arg(program);
    let folder = file.parent().unwrap();
    let run = output(
        command
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null()),
    );
    assert!(run.status.success(), "{}", text(&run.stderr));
    run
}

/// The stacks of what is alive at the end, outermost function first, with their bytes.
fn folded(file: &Path) -> Vec<(String, u64)> {
    let arguments = ["report", "--at", "exit", "--folded"];
    let report = output(cuguard("auto", &arguments).arg(file));
    assert!(report.status.success(), "{}", text(&report.stderr));
    let lines = text(&report.stdout);
    let lines = lines.lines().map(|line| {
        let (stack, bytes) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        (stack.to_owned(), bytes.parse().expect("a number of bytes"))
    });
    lines.collect()
}

/// The stack with these bytes.
#[track_caller]
fn stack_of(stacks: &[(String, u64)], bytes: u64) -> &str {
    let mut found = stacks.iter().filter(|(_, alive)| *alive == bytes);
    match (found.next(), found.next()) {
        (Some((stack, _)), None) => stack,
        _ => panic!("{stacks:?}"),
    }
}

/// Records a program that unloads a library and loads another at its addresses. `None` where that cannot be done.
/// In the second library, call sites are at offsets that are `shift` bytes larger.
fn replaced(name: &str, options: &[&str], shift: u32) -> Option<(PathBuf, [PathBuf; 2])> {
    let folder = subfolder(name);
    let program = compile(
        &folder.join("replaces"),
        include_str!("support/replaces.c"),
        &[],
    )?;
    let library = |name: &str, shift: u32| {
        let (inner, shift) = (format!("-DINNER={name}"), format!("-DSHIFT=\"{shift}\""));
        let flags = ["-shared", "-fPIC", "-Wl,--build-id=sha1", &inner, &shift];
        let file = folder.join(format!("lib{name}.so"));
        compile(&file, include_str!("support/library.c"), &flags)
    };
    let libraries = [library("first", 16)?, library("second", 16 + shift)?];
    let file = folder.join("run.cgr");
    // The recording is read from another folder.
    let paths = ["./libfirst.so", "./libsecond.so"].map(Path::new);
    let run = record(&file, options, &program, &paths);
    match text(&run.stdout).trim() {
        "same" => Some((file, libraries)),
        _ => {
            not_run(Requirement::SameAddress, "");
            None
        }
    }
}

/// Also where the calls have the same addresses.
#[test]
fn a_library_that_replaces_another_has_its_names() {
    for (name, shift) in [("replaced", 48), ("replaced-exactly", 0)] {
        let Some((file, _)) = replaced(name, &[], shift) else {
            return;
        };
        assert_both(&folded(&file));
    }
}

/// The names are looked up at the exit, when the second library is loaded.
#[test]
fn embedded_names_are_those_of_the_library_that_was_unloaded() {
    for (name, shift) in [("replaced-embedded", 48), ("replaced-embedded-exactly", 0)] {
        let Some((file, libraries)) = replaced(name, &["--embed-symbols"], shift) else {
            return;
        };
        for library in &libraries {
            fs::rename(library, library.with_extension("moved")).unwrap();
        }
        assert_both(&folded(&file));
    }
}

#[track_caller]
fn assert_both(stacks: &[(String, u64)]) {
    for (bytes, name) in [(1 << 20, "first"), (2 << 20, "second")] {
        let stack = stack_of(stacks, bytes);
        let expected = format!("main;use_library;allocate;{name}");
        assert!(stack.ends_with(&expected), "{stack}");
    }
}

/// The program is not where it was: as on another machine.
#[test]
fn embedded_names_need_no_program() {
    if live_program().is_none() {
        return;
    }
    let folder = subfolder("embedded");
    for (name, options) in [("with", &["--embed-symbols"][..]), ("without", &[])] {
        let source = include_str!("support/live.c");
        let program = compile(&folder.join(name), source, &[]).expect("there is a compiler");
        let file = folder.join(format!("{name}.cgr"));
        record(&file, options, &program, &[]);
        fs::rename(&program, folder.join(format!("{name}.moved"))).unwrap();
        let stacks = folded(&file);
        let hold = stack_of(&stacks, 3 << 20);
        let shown = output(cuguard("auto", &["report", "--at", "exit"]).arg(&file));
        let shown = text(&shown.stdout);
        if options.is_empty() {
            assert!(
                hold.contains("without+0x") && !hold.contains("hold"),
                "{hold}"
            );
            continue;
        }
        assert!(hold.ends_with("main;allocate;hold"), "{hold}");
        assert!(stack_of(&stacks, 1 << 20).ends_with("main;allocate;lose"));
        assert!(shown.contains("with.c:"), "{shown}");
    }
}
