//! The conformance suite's runner: what it counts as a pass, a failure or a missing GPU, and how it
//! kills a case that hangs. The suite itself cannot show that with drivers that work.
//!
//! Compiles the suite's files again, with no cases.

#![allow(dead_code, reason = "the suite's files hold more than is tested here")]

#[path = "conformance/args.rs"]
mod args;
#[path = "conformance/case.rs"]
mod case;
#[path = "conformance/child.rs"]
mod child;
#[path = "conformance/driver.rs"]
mod driver;
#[path = "conformance/report.rs"]
mod report;
#[path = "conformance/runner.rs"]
mod runner;

/// No cases.
mod cases {
    pub(crate) fn all() -> Vec<crate::case::Entry> {
        Vec::new()
    }
}

use std::process::Command;
use std::time::{Duration, Instant};

use case::{Entry, On};
use report::{Agreement, both};
use runner::{Ended, Missing, Outcome, Target, run_to_end};

use cuguard_testing::Folder;

/// A child that reports and ends as the shell script says.
fn child(script: &str) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    run_to_end(command, Duration::from_secs(20)).expect("a child can be started")
}

/// The failures of a case whose child does what the shell script says.
fn failures(script: &str) -> Vec<String> {
    let mut outcome = Outcome::default();
    outcome.judge(&child(script), 20);
    outcome.failures
}

#[test]
fn a_case_passes_when_all_held_and_it_came_to_its_end() {
    assert_eq!(failures("echo '+ it is: so'; echo '= end'"), [""; 0]);
}

#[test]
fn a_case_that_observes_nothing_fails() {
    assert_eq!(failures("echo '= end'"), ["observed nothing"]);
    assert_eq!(failures("echo noise; echo '= end'"), ["observed nothing"]);
}

#[test]
fn a_case_that_ends_early_fails() {
    let failed = failures("echo '+ it is: so'; echo why >&2; exit 1");
    assert_eq!(failed, ["ended early: exit status: 1 why"]);
    let failed = failures("echo '+ it is: so'");
    assert_eq!(failed, ["ended early: exit status: 0"]);
}

/// A crash counts as an error of the driver; a kill from outside does not.
#[test]
fn only_a_crash_counts_as_a_refusal() {
    for signal in ["SEGV", "ABRT", "BUS"] {
        let mut outcome = Outcome::default();
        outcome.judge(&child(&format!("echo '? use it'; kill -{signal} $$")), 20);
        assert_eq!(outcome.failures, [""; 0], "{signal}");
        assert_eq!(outcome.observed, ["use it: never success"], "{signal}");
    }
    // Not HUP, which `nohup` ignores.
    for signal in ["KILL", "TERM"] {
        let failed = failures(&format!("echo '? use it'; kill -{signal} $$"));
        assert_eq!(failed.len(), 1, "{signal}: {failed:?}");
        assert!(failed[0].starts_with("ended early: signal:"), "{failed:?}");
    }
}

/// A grandchild holds the pipes: unless it ends too, the output is not complete.
#[test]
fn what_takes_too_long_is_ended_with_all_that_it_started() {
    for script in [
        "sleep 50 & echo '+ it is: so'; sleep 50",
        // The same when the child itself does not wait.
        "sleep 50 & echo '+ it is: so'",
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let begin = Instant::now();
        let ended = run_to_end(command, Duration::from_secs(3)).expect("it can be started");
        // Else it waited for `sleep`.
        assert!(begin.elapsed() < Duration::from_secs(50), "{script}");
        assert!(ended.timed_out, "{script}");
        let mut outcome = Outcome::default();
        outcome.judge(&ended, 7);
        assert_eq!(outcome.failures, ["not done after 7 s"], "{script}");
        assert_eq!(outcome.observed, ["it is: so"], "{script}");
    }
}

fn outcome(observed: &[&str]) -> Outcome {
    Outcome {
        observed: observed.iter().map(ToString::to_string).collect(),
        ..Outcome::default()
    }
}

#[test]
fn declared_differences_are_not_counted_as_agreement() {
    const PLAIN: Entry = Entry::new("a::plain", |_| {});
    const DECLARED: Entry = PLAIN.differs_on_simulation("it is simulated");
    let (so, other) = (outcome(&["so"]), outcome(&["other"]));
    let mut agreement = Agreement::default();
    assert!(!agreement.count(&so, &so, &PLAIN));
    assert!(!agreement.count(&so, &so, &PLAIN));
    assert!(!agreement.count(&so, &other, &DECLARED));
    assert!(!agreement.count(&so, &so, &DECLARED));
    assert_eq!(
        agreement.to_string(),
        "the two drivers agree in 2 cases; 2 differ by declaration"
    );
    assert!(agreement.count(&so, &other, &PLAIN));
    assert_eq!(
        agreement.to_string(),
        "the two drivers agree in 2 cases; 2 differ by declaration; 1 differs"
    );
}

#[test]
fn a_child_tells_an_absent_driver_from_a_broken_one() {
    let read = |script: &str| Target::read("real", &child(script));
    let found = read("echo real; echo a card").expect("that is a target");
    assert_eq!((found.on, found.description.as_str()), (On::Real, "a card"));
    let reason = || "there is none".to_owned();
    let script = "echo there is none; exit";
    assert_eq!(
        read(&format!("{script} 3")).err(),
        Some(Missing::Absent(reason()))
    );
    for code in [1, 2, 101] {
        let missing = read(&format!("{script} {code}")).err();
        assert_eq!(missing, Some(Missing::Broken(reason())), "{code}");
    }
    // Without output the code means nothing: the child crashed.
    for end in ["exit 3", "kill -SEGV $$"] {
        let missing = read(end).err();
        assert!(matches!(missing, Some(Missing::Broken(_))), "{missing:?}");
    }
}

#[test]
fn a_broken_driver_fails_the_suite_and_an_absent_one_does_not() {
    let target = |on| Target {
        choice: String::new(),
        on,
        description: "simulated GPU".to_owned(),
    };
    let simulation = || Ok(target(On::Simulation));
    let reason = || "reason".to_owned();

    let (targets, absent) = both(simulation(), Err(Missing::Absent(reason()))).expect("it is one");
    assert_eq!((targets.len(), absent), (1, Some(reason())));
    let (targets, absent) = both(simulation(), Ok(target(On::Real))).expect("they are two");
    assert_eq!((targets.len(), absent), (2, None));
    assert_eq!(
        both(simulation(), Err(Missing::Broken(reason()))).err(),
        Some("the installed driver does not work: reason".to_owned())
    );
    for missing in [Missing::Absent(reason()), Missing::Broken(reason())] {
        let error = both(Err(missing), Ok(target(On::Real))).err();
        assert_eq!(error, Some("the simulated GPU: reason".to_owned()));
    }
}

/// The entry point of a child that describes the driver.
#[test]
#[ignore = "a child process that the test below starts: cargo test --test conformance_harness runs it through that"]
fn describe() {
    // Not through the test harness, which has its own exit codes.
    std::process::exit(child::describe().into());
}

/// The description by a child, with libraries in place of the installed driver.
#[test]
fn an_installed_driver_that_does_not_work_is_not_an_absent_one() {
    let count = "int cuDeviceGetCount(int *n) { *n = 1; return 0; }";
    for (name, source, code, reason) in [
        (
            "no-device",
            "int cuInit(unsigned f) { return 100; }",
            3,
            "CUDA_ERROR_NO_DEVICE",
        ),
        (
            "mismatch",
            "int cuInit(unsigned f) { return 803; }",
            1,
            "803",
        ),
        ("stub", "int cuInit(unsigned f) { return 34; }", 1, "34"),
        (
            "bare",
            "int cuInit(unsigned f) { return 0; }",
            1,
            "the first device returned",
        ),
    ] {
        let Some(folder) = installed(name, &format!("{source} {count}")) else {
            return;
        };
        let program = std::env::current_exe().expect("this program has a file");
        let output = Command::new(program)
            .args(["--exact", "describe", "--ignored", "--nocapture"])
            .env("CUGUARD_DRIVER", "real")
            .env("LD_LIBRARY_PATH", &folder)
            .output()
            .expect("a child can be started");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{name}: {stdout}");
        assert!(stdout.contains(reason), "{name}: {stdout}");
    }
}

/// A folder with a `libcuda.so.1` compiled from C. `None`, with a line on stderr, where there is no C
/// compiler.
fn installed(name: &str, source: &str) -> Option<Folder> {
    let folder = Folder::new(&format!("conformance-{name}"));
    let options = ["-shared", "-fPIC", "-w"];
    cuguard_testing::compile(&folder.join("libcuda.so.1"), source, options)?;
    Some(folder)
}
