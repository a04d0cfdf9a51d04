//! `cuguard run`: exit codes, signals, reports of several processes, and its options.

use crate::support;
use crate::support::audited;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;

use cuguard_report::phrase::short_command;

use crate::support::audited::{cuguard_run, output, program, reports, stderr, subfolder, text};

#[test]
fn the_exit_status_is_the_programs() {
    let Some(program) = program() else { return };
    let program = program.to_str().expect("Unicode");
    for (end, code, signal) in [
        ("return", Some(3), None),
        ("_exit", Some(5), None),
        ("quick_exit", Some(7), None),
        ("SIGTERM", None, Some(libc::SIGTERM)),
        ("SIGINT", None, Some(libc::SIGINT)),
        ("abort", None, Some(libc::SIGABRT)),
        ("leak", Some(3), None),
    ] {
        let output = output(&mut cuguard_run(&["--", program, end]));
        let status = (output.status.code(), output.status.signal());
        assert_eq!(status, (code, signal), "{end}: {}", stderr(&output));
        assert_eq!(reports(&output), 1, "{end}: {}", stderr(&output));
        // One process needs no summary.
        assert!(
            !stderr(&output).contains("cuguard run:"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn a_program_that_does_not_use_the_driver_is_as_without_the_command() {
    let Some(program) = program() else { return };
    let program = program.to_str().expect("Unicode");
    let unused = output(&mut cuguard_run(&[program, "unused"]));
    let nothing = "cuguard run: no process used CUDA\n";
    assert_eq!(
        (unused.status.code(), text(&unused.stderr)),
        (Some(3), nothing.to_owned())
    );
    // Not where no report is wanted.
    let mut silent = cuguard_run(&[program, "unused"]);
    let silent = output(silent.env("LEAK_REPORT", "0"));
    assert_eq!(text(&silent.stderr), "");
    // Options after the program's name are the program's; standard input is too.
    let mut child = cuguard_run(&["sh", "-c", "cat; exit $0", "9"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command can be started");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(b"through").expect("it can be written to");
    drop(stdin);
    let output = child.wait_with_output().expect("it can be waited for");
    assert_eq!(output.status.code(), Some(9));
    assert_eq!(text(&output.stdout), "through");
    assert_eq!(text(&output.stderr), nothing);
}

#[test]
fn what_was_found_sets_the_exit_code() {
    let Some(program) = program() else { return };
    let program = program.to_str().expect("Unicode");
    for (options, environment, end, code) in [
        (&["--exitcode", "23"][..], None, "leak", 23),
        (&["--exitcode", "23"], None, "return", 3),
        (
            &["--exitcode", "23", "--fail-on", "growth"],
            None,
            "leak",
            3,
        ),
        (
            &["--exitcode", "23", "--fail-on", "growth,lost"],
            None,
            "leak",
            23,
        ),
        (&[], Some("exitcode=24"), "leak", 24),
        (
            &["--exitcode", "25"],
            Some("exitcode=24,fail_on=lost"),
            "leak",
            25,
        ),
        (&[], Some("exitcode=24,fail_on=growth"), "leak", 3),
        // Without a code it is 1.
        (&["--fail-on", "lost"], None, "leak", 1),
        (&["--fail-on", "growth"], None, "leak", 3),
        (&["--fail-on", "reachable"], None, "leak", 1),
        (&[], Some("fail_on=lost"), "leak", 1),
        (&["--exitcode", "26"], Some("0"), "leak", 26),
        (&["--exitcode", "26"], Some("off"), "return", 3),
        // A leak of any process counts; otherwise the code is that of the program itself.
        (&["--exitcode", "26"], None, "leak in children", 26),
        (&[], None, "leak in children", 4),
        (&["--exitcode", "27"], None, "children", 19),
    ] {
        let mut command = cuguard_run(options);
        if let Some(words) = environment {
            command.env("LEAK_REPORT", words);
        }
        let output = output(command.args(["--", program, end]));
        assert_eq!(
            output.status.code(),
            Some(code),
            "{options:?} {end}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn several_processes_have_a_summary() {
    let Some(program) = program() else { return };
    let program = program.to_str().expect("Unicode");
    let run = output(&mut cuguard_run(&["--", program, "leak in children"]));
    assert_eq!(reports(&run), 4, "{}", stderr(&run));
    let stderr = stderr(&run);
    let lines = stderr
        .lines()
        .skip_while(|line| !line.starts_with("cuguard run: "));
    let summary: Vec<_> = lines.collect();
    assert_eq!(summary.len(), 5, "{stderr}");
    let sum = "cuguard run: 4 processes used CUDA: lost 3 MiB in 3 ";
    assert!(summary[0].starts_with(sum), "{stderr}");
    for (end, count) in [("leak in children", 1), ("leak", 2), ("return", 1)] {
        let named = format!(" ({}): ", short_command(&format!("{program} {end}")));
        let lines = summary
            .iter()
            .filter(|line| line.starts_with("  process ") && line.contains(&named));
        assert_eq!(lines.count(), count, "{end}: {stderr}");
    }
}

/// The report of a child counts only if it has ended before the program.
#[test]
fn a_process_that_outlives_the_program_is_named() {
    let Some(program) = program() else { return };
    let program = program.to_str().expect("Unicode");
    let log = subfolder("outlived").join("log");
    let file = fs::File::create(&log).expect("a file can be created");
    let arguments = [
        "--exitcode",
        "9",
        "--",
        program,
        "unused, outlived by a child",
    ];
    let mut command = cuguard_run(&arguments)
        .stdin(Stdio::piped())
        .stderr(file)
        .spawn()
        .expect("the command can be started");
    // `wait` would close it.
    let stdin = command.stdin.take();
    let status = command.wait().expect("it can be waited for");
    let stderr = fs::read_to_string(&log).expect("the file is there");
    assert_eq!(status.code(), Some(3), "{stderr}");
    let lines = stderr.lines().filter(|line| *line != audited::SIMULATED);
    let lines: Vec<_> = lines.collect();
    assert_eq!(
        lines[0],
        "cuguard run: 1 process used CUDA, without a report; 1 still runs"
    );
    let line = "): still runs; its report will follow, and does not count";
    assert!(lines[1].ends_with(line), "{stderr}");
    assert_eq!(lines.len(), 2, "{stderr}");
    drop(stdin);
    let has_report = || {
        let stderr = fs::read_to_string(&log).expect("the file is there");
        stderr.contains("): lost 4 KiB in 1 allocation")
    };
    for _ in 0..3000 {
        if has_report() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("the child has no report");
}

#[test]
fn a_process_that_is_killed_is_named() {
    let Some(program) = program() else { return };
    let program = program.to_str().expect("Unicode");
    let output = output(&mut cuguard_run(&["--", program, "SIGKILL"]));
    assert_eq!(output.status.signal(), Some(libc::SIGKILL));
    let stderr = stderr(&output);
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(
        lines[0],
        "cuguard run: 1 process used CUDA, without a report"
    );
    assert!(
        lines[1].ends_with(" SIGKILL): no report: SIGKILL ended it"),
        "{stderr}"
    );
    assert_eq!(lines[2..], [RECORD], "{stderr}");
    // Not who records already.
    let file = support::audited::folder().join("killed.cgr");
    let file = file.to_str().expect("Unicode");
    let mut recorded = cuguard_run(&["--record", file, "--", program, "SIGKILL"]);
    let stderr = self::stderr(&self::output(&mut recorded));
    assert!(!stderr.contains(RECORD), "{stderr}");
}

/// What is printed where a process has no report, and nothing was to be recorded.
const RECORD: &str =
    "cuguard run: a recording survives that: cuguard run --record FILE … and cuguard report FILE";

#[test]
fn a_report_without_standard_error_is_printed_by_the_command() {
    let Some(program) = program() else { return };
    let program = program.to_str().expect("Unicode");
    let output = output(&mut cuguard_run(&["--", program, "close all"]));
    assert_eq!(output.status.code(), Some(20));
    let stderr = stderr(&output);
    assert!(
        stderr.starts_with("cuguard run: the standard error of process "),
        "{stderr}"
    );
    assert_eq!(reports(&output), 1, "{stderr}");
}

#[test]
fn signals_are_forwarded_once_the_program_runs() {
    let Some(program) = program() else { return };
    let program = program.to_str().expect("Unicode");
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1] {
        let mut child = cuguard_run(&["--", program, "wait"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("the command can be started");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        let read = BufReader::new(stdout).read_line(&mut line);
        assert_eq!((read.ok(), line.as_str()), (Some(6), "ready\n"));
        // SAFETY: the child has not been waited for.
        unsafe { libc::kill(child.id().cast_signed(), signal) };
        let output = child.wait_with_output().expect("it can be waited for");
        assert_eq!(output.status.signal(), Some(signal));
        assert_eq!(reports(&output), 1, "{}", stderr(&output));
    }
}

#[test]
fn a_signal_that_the_command_ignores_is_ignored_by_the_program() {
    for (name, signal) in [("HUP", libc::SIGHUP), ("PIPE", libc::SIGPIPE)] {
        let script = format!("kill -{name} $$; exit 6");
        let mut command = cuguard_run(&["--", "sh", "-c", &script]);
        // SAFETY: the call is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                libc::signal(signal, libc::SIG_IGN);
                Ok(())
            });
        }
        assert_eq!(output(&mut command).status.code(), Some(6), "{name}");
    }
    // And no other.
    let script = ["--", "sh", "-c", "kill -PIPE $$; exit 6"];
    let status = output(&mut cuguard_run(&script)).status;
    assert_eq!(status.signal(), Some(libc::SIGPIPE));
}

#[test]
fn reports_go_to_the_file_of_the_folder_that_the_command_started_in() {
    let Some(program) = program() else { return };
    let program = program.to_str().expect("Unicode");
    let folder = subfolder("output");
    let mut command = cuguard_run(&["--output", "report.txt", "--", program, "chdir"]);
    let run = output(command.current_dir(&folder));
    assert_eq!(run.status.code(), Some(23));
    let report = fs::read_to_string(folder.join("report.txt")).expect("there is a report");
    assert_eq!(report.matches("cuguard: process ").count(), 1, "{report}");
    let ending = format!("; report in {}\n", folder.join("report.txt").display());
    assert!(stderr(&run).ends_with(&ending), "{}", stderr(&run));

    // All processes append to one file, which the next run truncates.
    for _ in 0..2 {
        let mut command = cuguard_run(&["--report", "json", "--output", "all.json"]);
        output(
            command
                .args(["--", program, "leak in children"])
                .current_dir(&folder),
        );
        let reports = fs::read_to_string(folder.join("all.json")).expect("there are reports");
        assert_eq!(reports.lines().count(), 4, "{reports}");
        for report in reports.lines() {
            let parsed: Result<serde_json::Value, _> = serde_json::from_str(report);
            assert!(parsed.is_ok(), "{report}");
        }
    }

    // Or each to its own.
    let folder = subfolder("own-files");
    let mut command = cuguard_run(&["--output", "report-%p.txt", "--", program]);
    output(command.arg("leak in children").current_dir(&folder));
    assert_eq!(fs::read_dir(&folder).expect("the folder exists").count(), 4);
}

#[test]
fn options_win_over_the_environment() {
    let Some(program) = program() else { return };
    let program = program.to_str().expect("Unicode");
    let run = |words: &str, options: &[&str]| {
        let mut command = cuguard_run(options);
        output(
            command
                .args(["--", program, "leak"])
                .env("LEAK_REPORT", words),
        )
    };
    assert!(stderr(&run("json", &[])).starts_with('{'));
    assert!(stderr(&run("json", &["--report", "text"])).starts_with("cuguard: process "));
    let off = run("0", &["--sites"]);
    assert_eq!((off.status.code(), stderr(&off)), (Some(3), String::new()));
    assert_eq!(reports(&run("off", &["--report", "text"])), 1);
    let on = run("0", &["--exitcode", "9"]);
    assert_eq!((on.status.code(), reports(&on)), (Some(9), 1));
}

#[test]
fn a_word_of_leak_report_that_cannot_be_used_is_an_error() {
    let run = |words: &str| {
        let mut command = cuguard_run(&["--", "sh", "-c", "echo started"]);
        output(command.env("LEAK_REPORT", words))
    };
    for (words, problem) in [
        (
            "1,bogus",
            "LEAK_REPORT: unknown word \"bogus\"; known words: 0 (off",
        ),
        (
            "json,level=some",
            "LEAK_REPORT: cannot use \"level=some\": \"some\" is none of counts, sites, stacks",
        ),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert_eq!(text(&output.stdout), "", "the program was started");
        let stderr = text(&output.stderr);
        let line = format!("cuguard run: {problem}");
        assert!(stderr.starts_with(&line), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn a_file_or_driver_of_the_environment_that_cannot_be_used_is_named() {
    for (name, value, line) in [
        (
            "LEAK_REPORT",
            "file=/does/not/exist/x",
            "LEAK_REPORT: file=/does/not/exist/x: No such file or directory (os error 2)",
        ),
        (
            "CUGUARD_DRIVER",
            "Sim",
            "CUGUARD_DRIVER: `Sim` names no driver; use real, sim, auto, or the path of a library (with a / in it)",
        ),
    ] {
        let output = output(cuguard_run(&["--", "true"]).env(name, value));
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(text(&output.stderr), format!("cuguard run: {line}\n"));
    }
}

#[test]
fn bad_options_are_named() {
    for (arguments, words) in [
        (&["--exitcode", "0", "true"][..], "'0' for '--exitcode <N>'"),
        (&["--exitcode", "256", "true"], "'256' for '--exitcode <N>'"),
        (&["--exitcode", "x", "true"], "'x' for '--exitcode <N>'"),
        (
            &["--fail-on", "lots", "true"],
            "\"lots\" is none of lost, reachable, growth, oom, destroyed",
        ),
        (
            &["--report", "yaml", "true"],
            "[possible values: text, json, github]",
        ),
        (
            &["--stacks", "--sites", "true"],
            "cannot be used with '--sites'",
        ),
        (
            &["--suppress", "/does/not/exist", "true"],
            "--suppress /does/not/exist: No such file",
        ),
        (
            &["--output", "/does/not/exist/x", "true"],
            "--output /does/not/exist/x: No such file",
        ),
        (&["--output", "a%q", "true"], "%q means nothing"),
        (&["--bogus", "true"], "unexpected argument '--bogus'"),
        (&[], "<PROGRAM>"),
        (&["--"], "<PROGRAM>"),
    ] {
        let output = output(&mut cuguard_run(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
    let help = output(&mut cuguard_run(&["--help"]));
    let help = text(&help.stdout);
    assert!(
        help.contains("cuguard run --exitcode 23 -- python3 train.py"),
        "{help}"
    );
}

#[test]
fn other_preloaded_libraries_stay() {
    let mut command = cuguard_run(&["--", "sh", "-c", "echo $LD_PRELOAD"]);
    let output = output(command.env("LD_PRELOAD", "libm.so.6"));
    let stdout = text(&output.stdout);
    assert!(stdout.trim_end().ends_with(".so:libm.so.6"), "{stdout}");
}

/// The cuguard crate in a program takes the driver's functions from the library, and reports itself.
#[test]
fn a_program_with_the_crate_inside_has_no_second_report() {
    let Some(_) = program() else { return };
    let mut command = cuguard_run(&["--"]);
    command.arg(support::cuguard("real", &[]).get_program());
    command.args(["doctor", "--probe"]);
    let output = output(command.env("CUGUARD_DRIVER", "real"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("verdict        healthy"));
    assert_eq!(stderr(&output), "");
}
