//! `cargo cuguard`: the tests and the program of a crate that knows nothing of cuguard, built here.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use cuguard_testing::{Requirement, not_run};

use crate::support::audited::{folder, output, stderr, subfolder, text};
use crate::support::program;

const FILES: [(&str, &str); 5] = [
    ("Cargo.toml", MANIFEST),
    ("src/lib.rs", include_str!("support/leaky/lib.rs")),
    ("src/main.rs", include_str!("support/leaky/main.rs")),
    ("tests/other.rs", include_str!("support/leaky/other.rs")),
    (
        "tests/leaky_crate.rs",
        include_str!("support/leaky/namesake.rs"),
    ),
];

const MANIFEST: &str = r#"
[package]
name = "leaky-crate"
version = "0.1.0"
edition = "2021"
[profile.dev]
debug = "line-tables-only"
[workspace]
"#;

/// The folder of the crate. `None` without cargo.
fn leaky() -> Option<&'static Path> {
    static CRATE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = CRATE.get_or_init(|| {
        let version = Command::new(cargo()).arg("--version").output();
        version.ok().filter(|output| output.status.success())?;
        let own = subfolder("leaky-crate");
        for (file, content) in FILES {
            let path = own.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("own folder");
            fs::write(path, content).expect("own folder");
        }
        Some(own)
    });
    if found.is_none() {
        not_run(Requirement::Rustc, "");
    }
    found.as_deref()
}

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// `cargo cuguard` in the folder of the crate, as cargo starts it, on the simulated GPU.
fn cargo_cuguard(arguments: &[&str]) -> Option<Command> {
    let own = leaky()?;
    let mut command = Command::new(program().with_file_name("cargo-cuguard"));
    command
        .arg("cuguard")
        .args(arguments)
        .current_dir(own)
        .env("CARGO", cargo())
        .env("CUGUARD_DRIVER", "sim")
        .env("XDG_CACHE_HOME", folder().join("cache"))
        .env("CARGO_TARGET_DIR", own.join("target"))
        .env("CARGO_NET_OFFLINE", "true")
        .env("RUST_BACKTRACE", "0");
    // Of the run of these tests.
    for name in [
        "CUGUARD_SIM",
        "LEAK_REPORT",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "XDG_RUNTIME_DIR",
        "NEXTEST",
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUST_TEST_THREADS",
    ] {
        command.env_remove(name);
    }
    Some(command)
}

/// What the command itself printed: all from the sums on.
fn found(output: &Output) -> Vec<String> {
    let stderr = stderr(output);
    let lines = stderr.lines();
    let lines = lines.skip_while(|line| !line.starts_with("cargo cuguard: "));
    lines.map(str::to_owned).collect()
}

/// The lines of a test, without frames.
fn of_test<'l>(lines: &'l [String], test: &str) -> Vec<&'l str> {
    let lines = lines.iter().map(String::as_str);
    let mut of_test = lines.skip_while(|line| *line != test);
    assert!(of_test.next().is_some(), "{test} is not listed");
    let of_test = of_test.take_while(|line| !line.is_empty());
    of_test.filter(|line| !line.starts_with("    ")).collect()
}

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

#[test]
fn what_is_found_sets_the_exit_code() {
    for (options, tests, code) in [
        (&[][..], "leaks_on", 0),
        (&["--fail-on", "lost"], "leaks_on", 1),
        (&["--exitcode=23"], "leaks_on", 23),
        (&["--fail-on", "oom", "--exitcode", "23"], "leaks_on", 0),
        (&["--fail-on", "destroyed"], "own", 1),
        (&["--fail-on", "reachable"], "keeps", 1),
        (&["--fail-on", "lost"], "keeps", 0),
    ] {
        // Options of both kinds, in any order.
        let Some(mut command) = cargo_cuguard(&["test", "--lib"]) else {
            return;
        };
        let output = output(command.args(options).args([tests, "--quiet"]));
        let lines = found(&output).join("\n");
        assert_eq!(output.status.code(), Some(code), "{options:?} {lines}");
        let has_list = tests != "keeps" || code == 1;
        assert_eq!(lines.contains("\n\ntests::"), has_list, "{lines}");
    }
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

/// After Ctrl-C, cargo ends before the programs. Here a script does that takes its place.
#[test]
fn what_cargo_leaves_running_is_waited_for() {
    let Some(mut command) = cargo_cuguard(&["test", "--fail-on", "lost"]) else {
        return;
    };
    let script = subfolder("hasty-cargo").join("cargo");
    let content = r#"#!/bin/sh
[ "$1" = -vV ] && exec "$REAL_CARGO" -vV
runner=$(env | sed -n 's/^CARGO_TARGET_.*_RUNNER=//p')
$runner "$PROGRAM" --exact crate_inside::leaks_a_guard &
until [ -s "${runner%%/cuguard *}/programs" ]; do sleep 0.01; done
kill -INT $$
"#;
    fs::write(&script, content).expect("own folder");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("own file");
    command
        .env("CARGO", &script)
        .env("REAL_CARGO", cargo())
        .env("PROGRAM", std::env::current_exe().expect("it has a file"))
        .env("CUGUARD_TEST_CHILD", "1");
    let output = output(&mut command);
    let stderr = stderr(&output);
    let line = "cargo cuguard: 1 process used CUDA: lost 7 MiB in 1 allocation\n";
    assert!(stderr.contains(line), "{stderr}");
    assert!(!stderr.contains("\"groups\""), "{stderr}");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
}

#[test]
fn the_own_target_has_another_name() {
    for (arguments, variable) in [
        (&["--target", "host-tuple"][..], ("A", "")),
        (&[], ("CARGO_BUILD_TARGET", "host-tuple")),
    ] {
        let Some(mut command) = cargo_cuguard(&["test", "--fail-on=lost", "--test=other"]) else {
            return;
        };
        let output = output(command.args(arguments).env(variable.0, variable.1));
        if stderr(&output).contains("host-tuple") {
            return not_run(Requirement::Rustc, "of a version that knows host-tuple");
        }
        let lines = found(&output);
        of_test(&lines, "leaks (leaky-crate::other):");
        assert_eq!(output.status.code(), Some(1), "{lines:?}");
    }
}

/// A script that takes the place of cargo uses no runner.
#[test]
fn that_nothing_was_started_is_no_success() {
    let line = "cargo cuguard: cargo started no program with the audit library\n";
    for (options, ends, code) in [
        (&["test"][..], "0", 0),
        (&["test", "--fail-on", "lost"], "0", 125),
        (&["test", "--exitcode=7"], "0", 125),
        (&["run", "--exitcode=7"], "0", 125),
        (&["test", "--exitcode=7"], "101", 101),
        (&["test", "--exitcode=7", "--no-run"], "0", 0),
        (&["test", "--exitcode=7", "--", "--no-run"], "0", 125),
    ] {
        let Some(mut command) = cargo_cuguard(options) else {
            return;
        };
        let script = subfolder("idle-cargo").join("cargo");
        let content = "#!/bin/sh\n[ \"$1\" = -vV ] && exec \"$REAL_CARGO\" -vV\nexit \"$ENDS\"\n";
        fs::write(&script, content).expect("own folder");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("own file");
        command.env("CARGO", &script).env("REAL_CARGO", cargo());
        let output = output(command.env("ENDS", ends));
        assert_eq!(stderr(&output), line, "{options:?}");
        assert_eq!(output.status.code(), Some(code), "{options:?}");
    }
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

#[test]
fn a_program_runs_as_under_cuguard_run() {
    for (arguments, code) in [
        (&["run", "--quiet", "--", "one", "--exitcode", "9"][..], 7),
        (
            &[
                "run",
                "--exitcode",
                "9",
                "-q",
                "--",
                "one",
                "--exitcode",
                "9",
            ],
            9,
        ),
    ] {
        let Some(mut command) = cargo_cuguard(arguments) else {
            return;
        };
        let output = output(&mut command);
        let stderr = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert_eq!(text(&output.stdout), "one --exitcode 9\n");
        let first = stderr.lines().next().unwrap_or_default();
        assert!(first.starts_with("cuguard: process "), "{stderr}");
        assert!(
            first.ends_with("): lost 5 MiB in 1 allocation; reachable 1 context"),
            "{stderr}"
        );
        assert!(stderr.contains("    leaky_crate::main "), "{stderr}");
    }
}

#[test]
fn the_runner_of_the_user_stays() {
    let Some(mut command) = cargo_cuguard(&["run", "--quiet"]) else {
        return;
    };
    let script = subfolder("runner").join("run.sh");
    fs::write(
        &script,
        "#!/bin/sh\necho \"runner: $1\"\nshift\nexec \"$@\"\n",
    )
    .expect("own folder");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&script, mode).expect("own file");
    let option = format!("runner = [{script:?}, \"a word\"]");
    let home = subfolder("cargo-home");
    fs::write(
        home.join("config.toml"),
        format!("[target.'cfg(unix)']\n{option}\n"),
    )
    .expect("own folder");
    let output = output(command.env("CARGO_HOME", &home));
    assert_eq!(
        text(&output.stdout),
        "runner: a word\n\n",
        "{}",
        stderr(&output)
    );
    assert_eq!(output.status.code(), Some(7));
    assert!(stderr(&output).contains("): lost 5 MiB in 1 allocation"));
}

#[test]
fn what_cannot_be_used_is_named() {
    for (arguments, variable, code, line) in [
        (
            &["test", "--suppress", "/nowhere"][..],
            ("A", ""),
            2,
            "cargo cuguard: --suppress /nowhere: No such file or directory (os error 2)",
        ),
        (
            &["test"],
            ("LEAK_REPORT", "max=some"),
            2,
            "cargo cuguard: LEAK_REPORT: cannot use \"max=some\": ",
        ),
        (
            &["test"],
            ("CUGUARD_DRIVER", "simm"),
            2,
            "cargo cuguard: CUGUARD_DRIVER: `simm` names no driver; use real, sim, auto, ",
        ),
        (
            &["bench"],
            ("A", ""),
            2,
            "error: unrecognized subcommand 'bench'",
        ),
        (
            &["test"],
            ("CARGO", "/nowhere"),
            127,
            "cargo cuguard: /nowhere: not found",
        ),
        (
            &["runner", "/nowhere", "x", "true"],
            ("A", ""),
            2,
            "cargo cuguard: /nowhere/plan.json: No such file or directory (os error 2). Only `cargo cuguard` starts its runner",
        ),
        (
            &["test", "--config", "target.a.runner = 'b'"],
            ("A", ""),
            2,
            "cargo cuguard: --config target.a.runner = 'b': it would replace the runner of this command; set it in ",
        ),
        // Cargo's own message; nothing was started.
        (
            &["test", "--test", "missing"],
            ("A", ""),
            101,
            "error: no test target named `missing`",
        ),
        (
            &["test", "--quiet", "--no-run", "--lib"],
            ("A", ""),
            0,
            "cargo cuguard: cargo started no program with the audit library",
        ),
    ] {
        let Some(mut command) = cargo_cuguard(arguments) else {
            return;
        };
        let output = output(command.env(variable.0, variable.1));
        let stderr = stderr(&output);
        assert!(stderr.starts_with(line), "{arguments:?}: {stderr}");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn the_help_names_all_options() {
    let Some(mut command) = cargo_cuguard(&["test", "--help"]) else {
        return;
    };
    let help = text(&output(&mut command).stdout);
    for option in [
        "--exitcode <N>",
        "--fail-on <FINDINGS>",
        "--suppress <FILE>",
    ] {
        assert!(help.contains(option), "{help}");
    }
    assert!(
        help.contains("Usage: cargo cuguard test [OPTIONS] [OPTIONS OF CARGO TEST]"),
        "{help}"
    );
    // The command itself has it, too.
    let mut command = Command::new(program());
    let same = text(
        &output(command.args([OsStr::new("cargo"), "test".as_ref(), "--help".as_ref()])).stdout,
    );
    assert_eq!(same, help);
}
