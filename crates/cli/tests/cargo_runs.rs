//! `cargo cuguard`: what it has cargo run, and how it ends.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use cuguard_testing::{Requirement, not_run};

use crate::support::audited::{output, stderr, subfolder, text};
use crate::support::leaky_crate::{cargo, cargo_cuguard, found, of_test};
use crate::support::program;

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

#[test]
fn its_lines_have_its_name() {
    let arguments = ["run", "--quiet", "--metrics", "127.0.0.1:0", "--record"];
    let Some(mut command) = cargo_cuguard(&arguments) else {
        return;
    };
    let output = output(command.arg(subfolder("recorded").join("a.cgr")));
    let stderr = stderr(&output);
    let metrics = "cargo cuguard: metrics at http://127.0.0.1:";
    assert!(stderr.starts_with(metrics), "{stderr}");
    assert!(
        stderr.contains("\ncargo cuguard: recording in "),
        "{stderr}"
    );
    assert!(!stderr.contains("cuguard run: "), "{stderr}");
}
