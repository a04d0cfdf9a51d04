//! Misuse aborts the process with a line that describes it, or fails the call and is recorded, as
//! configured.

mod common;

use std::process::Command;

use common::*;
use cuguard_sim::{Config, Misuse, configure, misuses};
use cuguard_sys::*;

/// Runs the test of this name in a child process, which must abort in `call`, and returns the line.
fn aborted(name: &str, call: &str) -> String {
    let output = child(name);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "the child did not abort: {text}");
    let start = format!("cuguard-sim: misuse in {call}: ");
    let line = text.lines().find(|line| line.starts_with(&start));
    line.unwrap_or_else(|| panic!("no misuse was reported: {text}"))
        .to_owned()
}

#[test]
fn a_destroyed_stream() {
    if is_child() {
        context();
        let stream = stream();
        ok(cu::cuStreamDestroy_v2(stream));
        let _ = cu::cuStreamSynchronize(stream);
        return;
    }
    let line = aborted("a_destroyed_stream", "cuStreamSynchronize");
    assert!(
        line.contains("stream") && line.contains("was destroyed"),
        "{line}"
    );
}

#[test]
fn a_destroyed_event() {
    if is_child() {
        context();
        let mut event = CUevent::NULL;
        ok(cu::cuEventCreate(&mut event, 0));
        ok(cu::cuEventDestroy_v2(event));
        let _ = cu::cuEventQuery(event);
        return;
    }
    let line = aborted("a_destroyed_event", "cuEventQuery");
    assert!(
        line.contains("event") && line.contains("was destroyed"),
        "{line}"
    );
}

#[test]
fn a_handle_of_nothing() {
    if is_child() {
        context();
        let _ = cu::cuStreamQuery(CUstream(0xdead_beef));
        return;
    }
    let line = aborted("a_handle_of_nothing", "cuStreamQuery");
    assert!(line.contains("0xdeadbeef"), "{line}");
}

#[test]
fn a_length_that_wraps() {
    if is_child() {
        context();
        let _ = cu::cuMemsetD8_v2(alloc(16), 1, usize::MAX);
        return;
    }
    let line = aborted("a_length_that_wraps", "cuMemsetD8_v2");
    assert!(line.contains("wrap"), "{line}");
}

#[test]
fn with_misuse_as_an_error_the_process_goes_on() {
    if is_child() {
        configure(Config::new().misuse(Misuse::Error)).unwrap();
        context();
        let stream = stream();
        ok(cu::cuStreamDestroy_v2(stream));
        assert_eq!(cu::cuStreamDestroy_v2(stream), CUresult::INVALID_HANDLE);
        assert_eq!(
            cu::cuMemsetD8_v2(alloc(16), 1, usize::MAX),
            CUresult::INVALID_VALUE
        );
        let recorded = misuses();
        assert_eq!(recorded.len(), 2);
        assert!(recorded[0].starts_with("cuStreamDestroy_v2: use of the stream"));
        assert!(recorded[1].starts_with("cuMemsetD8_v2: "));
        assert_eq!(cuguard_sim::counters().misuses, 2);
        return;
    }
    let output = child("with_misuse_as_an_error_the_process_goes_on");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!String::from_utf8_lossy(&output.stderr).contains("misuse"));
}

/// A test harness captures `eprintln!` until the test ends, and loses it if the process aborts. The
/// line is written past it.
#[test]
fn the_line_is_there_under_a_harness_that_keeps_output() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_destroyed_stream"])
        .env("CHILD", "1")
        .env_remove("CUGUARD_SIM")
        .env_remove("RUST_TEST_NOCAPTURE")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.contains("was destroyed"));
    let line = line.unwrap_or_else(|| panic!("no misuse was reported: {text}"));
    assert!(
        line.starts_with("cuguard-sim: misuse in cuStreamSynchronize: "),
        "{line}"
    );
}
