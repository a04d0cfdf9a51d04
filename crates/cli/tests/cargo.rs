//! `cargo cuguard test`: which test each leak of a crate is attributed to.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use cuguard_testing::{Requirement, not_run};

use crate::support::audited::{output, stderr, subfolder, text};
use crate::support::leaky_crate::{cargo, cargo_cuguard, found, of_test};

#[test]
fn each_leak_is_attributed_to_its_test() {
    let arguments = ["test", "--lib", "--test", "other", "--no-fail-fast"];
    // On threads of their own, which have names, and all on the main thread.
    for threads in ["--test-threads=4", "--test-threads=1"] {
        let Some(mut command) = cargo_cuguard(&arguments) else {
            return;
        };
        let output = output(command.args(["--", threads, "--skip", "killed"]));
        // As of cargo alone.
        assert_eq!(output.status.code(), Some(101), "{}", stderr(&output));
        let stdout = text(&output.stdout);
        assert!(
            stdout.contains("test tests::inner::fails ... FAILED"),
            "{stdout}"
        );
        let lines = found(&output);
        let all = lines.join("\n");
        let sums = "cargo cuguard: 2 processes used CUDA: lost 16.00 MiB in 6 allocations; 32 KiB in 1 allocation not freed before their context was destroyed; reachable 8 MiB in 1 allocation and 2 contexts";
        assert_eq!(lines[0], sums, "{all}");
        for (test, expected) in [
            ("tests::leaks (leaky-crate):", "lost 3 MiB in 2"),
            ("tests::inner::fails (leaky-crate):", "lost 4 MiB in 1"),
            ("tests::leaks_on_a_thread (leaky-crate):", "lost 1 MiB in 1"),
            (
                "tests::has_a_context_of_its_own (leaky-crate):",
                "32 KiB in 1",
            ),
            ("leaks (leaky-crate::other):", "lost 1 KiB in 1"),
            // A function of the crate runs on this thread, and none of a test.
            (
                "not attributed to a test: leaky-crate, thread worker:",
                "lost 8 MiB in 1",
            ),
        ] {
            let lines = of_test(&lines, test);
            assert_eq!(lines.len(), 1, "{test} {all}");
            let line = lines[0].trim_start();
            assert!(line.starts_with(expected), "{test} {all}");
        }
        assert!(!all.contains("tests::clean") && !all.contains("tests::keeps"));
        // From the line that allocated to the test.
        let at = lines
            .iter()
            .position(|line| line.starts_with("tests::leaks (leaky"));
        let frames = &lines[at.expect("it is listed") + 2..];
        let functions = ["allocate_here", "allocate", "tests::leaks"];
        for (frame, function) in frames.iter().zip(functions) {
            assert!(
                frame.contains(&format!("    leaky_crate::{function} ")),
                "{all}"
            );
            assert!(frame.contains("src/lib.rs:"), "{all}");
        }
        assert_eq!(frames[functions.len()], "", "{all}");
    }
}

/// Functions of the crate, of a module, and a thread that another test has started have names of tests that leak nothing.
#[test]
fn what_is_named_like_a_test_is_not_blamed() {
    let unknown = "not attributed to a test: leaky-crate, thread";
    for options in [&[][..], &["--release"]] {
        let Some(mut command) = cargo_cuguard(&["test", "--test", "leaky_crate"]) else {
            return;
        };
        let output = output(command.args(options).args(["--", "--test-threads=8"]));
        let lines = found(&output);
        let all = lines.join("\n");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let owners: Vec<_> = lines.iter().filter(|line| line.ends_with(':')).collect();
        assert!(lines[0].contains(": lost 25.00 MiB in 5 "), "{all}");
        let leaks = of_test(&lines, "other (leaky-crate):");
        assert_eq!(leaks.len(), 1, "{all}");
        assert!(leaks[0].starts_with("  lost 7 MiB in 1 "), "{all}");
        for owner in &owners[1..] {
            assert!(owner.starts_with(unknown), "{all}");
        }
        assert!(owners.len() > 1, "{all}");
    }
}

#[test]
fn a_clean_run_has_one_line() {
    let Some(mut command) = cargo_cuguard(&["test", "--quiet", "--lib", "clean"]) else {
        return;
    };
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(0));
    let line = "cargo cuguard: 1 process used CUDA: nothing is lost; reachable 1 context\n";
    assert_eq!(stderr(&output), line);
}

/// As nextest starts tests: each in a process of its own, of which all belongs to the test.
#[test]
fn what_a_process_of_one_test_leaks_is_of_that_test() {
    let arguments = ["test", "--lib", "--", "--exact", "tests::leaks_in_a_pool"];
    let Some(mut command) = cargo_cuguard(&arguments) else {
        return;
    };
    let output = output(command.env("NEXTEST", "1"));
    let lines = found(&output);
    let lines = of_test(&lines, "tests::leaks_in_a_pool (leaky-crate):");
    assert!(lines[0].starts_with("  lost 8 MiB in 1 "), "{lines:?}");
}

#[test]
fn a_test_program_that_is_killed_is_named() {
    let Some(mut command) = cargo_cuguard(&["test", "--lib", "is_killed"]) else {
        return;
    };
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(101));
    let lines = found(&output);
    assert!(
        lines[0].starts_with("cargo cuguard: 1 process used CUDA, without a report"),
        "{lines:?}"
    );
    assert!(
        lines[1].ends_with(": no report: it was killed, or crashed"),
        "{lines:?}"
    );
    assert_eq!(lines.len(), 2);
}

/// A crate on cuguard: its guards report. In place of cargo, a script has the runner start this program.
#[test]
fn what_guards_leak_is_attributed() {
    let Some(mut command) = cargo_cuguard(&["test", "--fail-on", "lost"]) else {
        return;
    };
    let script = subfolder("other-cargo").join("cargo");
    let content = r#"#!/bin/sh
[ "$1" = -vV ] && exec "$REAL_CARGO" -vV
runner=$(env | sed -n 's/^CARGO_TARGET_.*_RUNNER=//p')
exec $runner "$PROGRAM" --exact crate_inside::leaks_a_guard
"#;
    fs::write(&script, content).expect("own folder");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("own file");
    command
        .env("CARGO", &script)
        .env("REAL_CARGO", cargo())
        .env("PROGRAM", std::env::current_exe().expect("it has a file"))
        .env("CUGUARD_TEST_CHILD", "1");
    let output = output(&mut command);
    let lines = found(&output);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(
        lines[0],
        "cargo cuguard: 1 process used CUDA: lost 7 MiB in 1 allocation"
    );
    assert!(
        lines[2].starts_with("crate_inside::leaks_a_guard ("),
        "{lines:?}"
    );
    assert_eq!(lines[3], "  lost 7 MiB in 1 allocation of device memory");
    assert!(
        lines
            .last()
            .is_some_and(|line| line.contains("crate_inside::leaks_a_guard ")),
        "{lines:?}"
    );
}

#[test]
fn doctests_run_with_the_audit_library() {
    let Some(mut command) = cargo_cuguard(&["test", "--doc"]) else {
        return;
    };
    let version = text(&output(Command::new(cargo()).arg("--version")).stdout);
    let minor = version
        .split('.')
        .nth(1)
        .and_then(|minor| minor.parse().ok());
    if minor.is_none_or(|minor: u32| minor < 89) {
        return not_run(Requirement::Rustc, "of version 1.89 or newer");
    }
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = found(&output);
    let doctest = lines
        .iter()
        .position(|line| line.starts_with("a doctest of leaky-crate, thread"));
    let leak = &lines[doctest.expect("it is listed") + 1];
    assert!(leak.starts_with("  lost 6 MiB in 1 "), "{lines:?}");
}
