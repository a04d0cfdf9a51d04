//! Every way in which a process can end, with guards in every place where they can be: it does not
//! crash or hang, calls no driver late, keeps its exit code, and reports where the manual says so
//! ("How a process ends" in src/lib.rs), once.
//!
//! This program is its own harness, as the ends of `main` and of the main thread belong to what is
//! tested: each case runs in a child, whose `main` is the one below. tests/exit.rs and
//! tests/last_moments.rs have the cases of a process that is busy while it ends.

mod endings;
mod forks;
mod plugin;
#[path = "../support/mod.rs"]
mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus, Output};
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use support::{child_within, part};

/// How a child is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Code(i32),
    /// Killed by a signal, or by itself: nothing runs then.
    Signal(i32),
    /// At once, by `_exit`: nothing runs then either.
    AtOnce(i32),
}

/// Where what leaked is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// When the process exits, as a context that was never closed.
    AtExit,
    /// When the context goes.
    AtDrop,
    /// Nowhere: nothing leaked, or nothing runs.
    Nowhere,
}

struct Case {
    name: &'static str,
    run: fn() -> ExitCode,
    end: End,
    told: Told,
}

fn case(name: &'static str, run: fn() -> ExitCode, end: End, told: Told) -> Case {
    Case {
        name,
        run,
        end,
        told,
    }
}

/// Says on standard error what the driver was asked too late; see [`endings::begin`].
const NO_LATE_CALLS: &str = "calls of the driver after the exit began: 0\n";

/// One child, with `LEAK_REPORT` as given.
fn check(case: &Case, leak_report: Option<&str>) {
    let variables: Vec<_> = leak_report
        .map(|value| ("LEAK_REPORT", value))
        .into_iter()
        .collect();
    let limit = Duration::from_secs(20);
    let Output { status, stderr, .. } = child_within(limit, case.name, case.name, &variables);
    let err = String::from_utf8_lossy(&stderr).into_owned();
    let what = format!("{} with {leak_report:?}: {status}\n{err}", case.name);

    let told = if leak_report.is_some() {
        case.told
    } else {
        Told::Nowhere
    };
    let reports = err.matches("cuguard: leak report for context").count();
    assert_eq!(
        reports,
        usize::from(told != Told::Nowhere),
        "reports of {what}"
    );
    let never = err.matches("this context was never closed").count();
    assert_eq!(
        never,
        usize::from(told == Told::AtExit),
        "never closed, in {what}"
    );
    let named = err.matches("\"left behind\"").count();
    assert_eq!(
        named,
        usize::from(told != Told::Nowhere),
        "what leaked, in {what}"
    );

    // Without a report a leak is one line all the same.
    let lines = err.matches("; LEAK_REPORT=1 shows where\n").count();
    let expected = leak_report.is_none() && case.told != Told::Nowhere;
    assert_eq!(lines, usize::from(expected), "lines of {what}");

    // Nothing but the end of the program ends it.
    let goes_on = usize::from(case.name == "a_plugin_of_a_thread_is_unloaded");
    let lines = err.matches("the program goes on").count();
    assert_eq!(lines, goes_on, "going on of {what}");

    let decides = leak_report.is_some_and(|value| value.contains("exitcode"));
    let leaked = decides && told != Told::Nowhere;
    assert!(
        ended(status, case.end, leaked),
        "expected {:?} of {what}",
        case.end
    );
    // With an exit code of its own cuguard ends the process in its handler, before this one.
    let handlers = matches!(case.end, End::Code(_)) && !leaked;
    let lines = err.matches(NO_LATE_CALLS).count();
    assert_eq!(lines, usize::from(handlers), "late calls of {what}");
}

fn ended(status: ExitStatus, end: End, leaked: bool) -> bool {
    match end {
        End::Code(_) if leaked => status.code() == Some(23),
        End::Code(code) | End::AtOnce(code) => status.code() == Some(code),
        End::Signal(signal) => status.signal() == Some(signal),
    }
}

/// Without a report, with one, and with one that decides the exit code.
fn check_each_way(case: &Case) {
    // Without stacks, whose names take long to look up.
    for leak_report in [
        None,
        Some("1,level=sites"),
        Some("1,level=sites,exitcode=23"),
    ] {
        check(case, leak_report);
    }
}

fn main() -> ExitCode {
    let cases = endings::all();
    if let Some(part) = part() {
        let case = cases.iter().find(|case| case.name == part);
        let case = case.expect("a case by this name");
        endings::begin();
        return (case.run)();
    }
    let trials = cases.into_iter().map(|case| {
        Trial::test(case.name, move || {
            check_each_way(&case);
            Ok(())
        })
    });
    let mut arguments = Arguments::from_args();
    // Each case has a time limit.
    arguments.test_threads.get_or_insert(1);
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
