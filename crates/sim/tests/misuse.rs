//! Misuse aborts the process with a line that describes it, or fails the call and is recorded, as
//! configured.

use std::process::Command;

use crate::common::*;
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

/// A real driver does not wait for the copy, which then fails and breaks its context.
#[test]
fn page_locked_memory_that_another_context_uses() {
    const TEST: &str = "page_locked_memory_that_another_context_uses";
    if is_child() {
        configure(Config::new().misuse(Misuse::Error)).unwrap();
        let owner = create();
        let mut memory = vec![0_u8; 4096];
        let registered = memory.as_mut_ptr().cast();
        ok(cu::cuMemHostRegister_v2(registered, 4096, 1));
        let pinned = pinned(4096).cast();
        let user = create();
        let (source, stream) = (alloc(4096), stream());
        for memory in [registered, pinned] {
            let gate = Gate::close(stream);
            ok(cu::cuMemcpyDtoHAsync_v2(memory, source, 4096, stream));
            ok(cu::cuCtxSetCurrent(owner));
            let end = || match memory == registered {
                true => cu::cuMemHostUnregister(memory),
                false => cu::cuMemFreeHost(memory),
            };
            assert_eq!(end(), CUresult::INVALID_VALUE);
            gate.open();
            ok(cu::cuStreamSynchronize(stream));
            ok(end());
            ok(cu::cuCtxSetCurrent(user));
        }
        let recorded = misuses();
        assert_eq!(recorded.len(), 2);
        for (line, call) in recorded
            .iter()
            .zip(["cuMemHostUnregister", "cuMemFreeHost"])
        {
            let start =
                format!("{call}: work of another context uses the page-locked memory at 0x");
            assert!(line.starts_with(&start), "{line}");
        }
        return;
    }
    let output = child(TEST);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
}

/// A graph has the mapping of page-locked memory, which a real driver uses after it has ended.
#[test]
fn a_graph_that_copies_memory_which_is_unregistered() {
    const TEST: &str = "a_graph_that_copies_memory_which_is_unregistered";
    if is_child() {
        configure(Config::new().misuse(Misuse::Error)).unwrap();
        context();
        let mut memory = vec![7_u8; 4096];
        let host = memory.as_mut_ptr().cast();
        ok(cu::cuMemHostRegister_v2(host, 4096, 1));
        let (device, stream) = (alloc(4096), stream());
        let relaxed = stream_capture_mode::RELAXED;
        let capture = || {
            let (mut graph, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
            ok(cu::cuStreamBeginCapture_v2(stream, relaxed));
            ok(cu::cuMemcpyHtoDAsync_v2(device, host, 4096, stream));
            ok(cu::cuMemsetD8Async(device, 1, 10, stream));
            ok(cu::cuStreamEndCapture(stream, &mut graph));
            ok(cu::cuGraphInstantiateWithFlags(&mut exec, graph, 0));
            (graph, exec)
        };
        let (_, exec) = capture();
        ok(cu::cuGraphLaunch(exec, stream));
        ok(cu::cuStreamSynchronize(stream));
        ok(cu::cuMemHostUnregister(host));
        let refused = cu::cuGraphLaunch(exec, stream);
        assert_eq!(refused, CUresult::INVALID_VALUE);
        let recorded = misuses();
        assert_eq!(recorded.len(), 1, "{recorded:?}");
        assert!(
            recorded[0].starts_with("cuGraphLaunch: a graph is launched that copies host memory")
        );
        // Pageable memory can be copied, also by that graph once it is updated.
        let (graph, pageable) = capture();
        ok(cu::cuGraphLaunch(pageable, stream));
        ok(cu::cuStreamSynchronize(stream));
        // A graph that has no mapping of it is not affected.
        ok(cu::cuMemHostRegister_v2(host, 4096, 1));
        ok(cu::cuMemHostUnregister(host));
        ok(cu::cuGraphLaunch(pageable, stream));
        let mut info = CUgraphExecUpdateResultInfo::default();
        ok(cu::cuGraphExecUpdate_v2(exec, graph, &mut info));
        ok(cu::cuGraphLaunch(exec, stream));
        ok(cu::cuStreamSynchronize(stream));
        assert_eq!(misuses().len(), 1);
        return;
    }
    let output = child(TEST);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
}

/// A real driver crashes.
#[test]
fn a_graph_that_outlives_the_context_of_its_memory() {
    const TEST: &str = "a_graph_that_outlives_the_context_of_its_memory";
    if is_child() {
        let owner = create();
        let mut memory = vec![7_u8; 4096];
        let host = memory.as_mut_ptr().cast();
        ok(cu::cuMemHostRegister_v2(host, 4096, 1));
        let user = create();
        let (device, stream) = (alloc(4096), stream());
        let (mut graph, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
        let relaxed = stream_capture_mode::RELAXED;
        ok(cu::cuStreamBeginCapture_v2(stream, relaxed));
        ok(cu::cuMemcpyHtoDAsync_v2(device, host, 4096, stream));
        ok(cu::cuStreamEndCapture(stream, &mut graph));
        ok(cu::cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        ok(cu::cuCtxDestroy_v2(owner));
        ok(cu::cuCtxSetCurrent(user));
        let _ = cu::cuGraphExecDestroy(exec);
        return;
    }
    let line = aborted(TEST, "cuGraphExecDestroy");
    assert!(line.contains("after the context of host memory"), "{line}");
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
        .args(["--exact", &cuguard_testing::test_path("a_destroyed_stream")])
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
