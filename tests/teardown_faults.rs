//! Teardown on a driver that fails: it leaves the caller's current context alone, and a scope in which the context
//! was closed ends if the device has stopped, and ends the process if the device may still work.

use crate::support::gate::Gate;
use crate::support::stderr_log;
use crate::support::*;
use cuguard::driver::api;
use cuguard::driver::sys::{CUcontext, CUresult};
use cuguard::report::ReportSettings;
use cuguard::sim::{self, Fault};
use cuguard::{Context, DeviceBuffer, PinnedBuffer, Result, Stream};

fn current() -> CUcontext {
    let mut current = CUcontext::NULL;
    // SAFETY: the variable can be written to.
    let code = unsafe { api::cuCtxGetCurrent(&mut current) };
    assert!(code.is_success(), "{code}");
    current
}

/// A context that was not pushed is not popped either: that would be the caller's context.
#[test]
fn a_refused_push_leaves_the_callers_context_current() -> Result<()> {
    let _turn = turn();
    if !simulated("a_refused_push_leaves_the_callers_context_current") {
        return Ok(());
    }
    let callers = Context::builder().dedicated().build()?;
    let context = Context::builder().dedicated().build()?;
    let bound = callers.make_current()?;
    let refused = sim::inject(Fault::nth_call_of("cuCtxPushCurrent_v2", 1).sticky()).unwrap();
    let closed = context.close();
    sim::clear_faults();
    assert!(closed.is_err() && refused.fired() > 1, "{closed:?}");
    assert_eq!(current(), callers.as_raw());
    drop(bound);
    assert_ne!(current(), callers.as_raw());
    Ok(())
}

/// What the stream does while the context is closed.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Done,
    Ends,
    DoesNotEnd,
}

/// Closes the primary context within a scope, on a driver whose functions fail with `CUDA_ERROR_ILLEGAL_ADDRESS`
/// from then on, in a child process. Another context keeps the primary context alive, and nothing is freed, which
/// would wait for work in flight. Returns whether the scope ended, and what the child wrote to stderr.
fn closed_within_a_scope(test: &str, work: Work, functions: &[&str]) -> (bool, String) {
    if part().is_some() {
        let other = Context::new(0).unwrap();
        let context = Context::builder().free_leaks(false).build().unwrap();
        let stream = Stream::new(&context).unwrap();
        let buffer = DeviceBuffer::from_slice(&context, &[7_u8; 1000]).unwrap();
        let mut target = PinnedBuffer::<u8>::zeroed(&context, 1000).unwrap();
        let gate = (work != Work::Done).then(|| Gate::on(&context, &stream));
        let _ = stream.scope(|s| {
            s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?)?;
            for function in functions {
                let fault = Fault::nth_call_of(*function, 1).sticky();
                sim::inject(fault.returning(CUresult::ILLEGAL_ADDRESS)).unwrap();
            }
            let opened = match &gate {
                Some(gate) if work == Work::Ends => Some(gate.open_later()),
                _ => None,
            };
            let closed = context.close();
            if let Some(thread) = opened {
                thread.join().unwrap();
            }
            closed
        });
        sim::clear_faults();
        assert!(gate.is_none_or(|gate| gate.is_open()));
        println!("the scope ended");
        other.synchronize().unwrap();
        std::process::exit(0);
    }
    let output = child(test, "child", &[]);
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    (
        out.contains("the scope ended") && output.status.success(),
        err,
    )
}

/// The wait fails as on a broken device, and so does the query: nothing runs, and the scope ends.
#[test]
fn a_scope_ends_in_which_a_broken_context_was_closed() {
    const TEST: &str = "a_scope_ends_in_which_a_broken_context_was_closed";
    if !simulated(TEST) {
        return;
    }
    let (ended, err) =
        closed_within_a_scope(TEST, Work::Done, &["cuCtxSynchronize", "cuStreamQuery"]);
    assert!(ended, "{err}");
}

/// The driver refuses to wait for the context, but not for its streams: the scope ends after their work.
#[test]
fn a_scope_ends_after_the_work_of_its_streams() {
    const TEST: &str = "a_scope_ends_after_the_work_of_its_streams";
    if !simulated(TEST) {
        return;
    }
    let (ended, err) = closed_within_a_scope(TEST, Work::Ends, &["cuCtxSynchronize"]);
    assert!(ended, "{err}");
}

/// All waits fail as on a broken device, but the query does not: the device may still work.
#[test]
fn a_scope_does_not_end_while_the_device_may_still_work() {
    const TEST: &str = "a_scope_does_not_end_while_the_device_may_still_work";
    if !simulated(TEST) {
        return;
    }
    let (ended, err) = closed_within_a_scope(
        TEST,
        Work::DoesNotEnd,
        &["cuCtxSynchronize", "cuEventSynchronize"],
    );
    assert!(!ended, "{err}");
    assert!(err.contains("closed within the scope"), "{err}");
}

/// The driver refuses to wait for the device: stream-ordered memory that work may still use is not freed, which would not wait.
#[test]
fn stream_ordered_memory_is_not_freed_while_the_device_may_still_work() {
    const TEST: &str = "stream_ordered_memory_is_not_freed_while_the_device_may_still_work";
    if !simulated(TEST) {
        return;
    }
    let _turn = turn();
    let other = Context::new(0).unwrap();
    let context = Context::builder().report(ReportSettings::off());
    let context = context.build().unwrap();
    let stream = Stream::new(&context).unwrap();
    let gate = Gate::on(&context, &stream);
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 1 << 20).unwrap();
    let address = buffer.as_view().as_device_ptr().as_raw();
    for function in ["cuCtxSynchronize", "cuEventSynchronize"] {
        let fault = Fault::nth_call_of(function, 1).sticky();
        sim::inject(fault.returning(CUresult::OUT_OF_MEMORY)).unwrap();
    }
    let closed = context.close();
    sim::clear_faults();
    assert_eq!(closed.unwrap_err().code(), Some(CUresult::OUT_OF_MEMORY));
    let stream_of_other = Stream::new(&other).unwrap();
    let next = DeviceBuffer::<u8>::zeroed(&stream_of_other, 1 << 20).unwrap();
    assert_ne!(next.as_view().as_device_ptr().as_raw(), address);
    gate.open();
    drop((buffer, stream));
}

/// The code is that of a call inside a host function, where teardown is deferred. This teardown has begun, and is not
/// repeated: its error is logged.
#[test]
fn an_error_that_means_later_is_logged_once_teardown_has_begun() {
    const TEST: &str = "an_error_that_means_later_is_logged_once_teardown_has_begun";
    if !simulated(TEST) {
        return;
    }
    if part().is_some() {
        stderr_log::log_errors();
        let context = Context::builder().dedicated().build().unwrap();
        let fault = Fault::nth_call_of("cuCtxDestroy_v2", 1);
        sim::inject(fault.returning(CUresult::NOT_PERMITTED)).unwrap();
        drop(context);
        sim::clear_faults();
        return;
    }
    let output = child(TEST, "child", &[]);
    succeeded(&output);
    let err = String::from_utf8_lossy(&output.stderr);
    let logged = "logged: cuguard: Context::drop on device 0: cuCtxDestroy returned";
    assert_eq!(err.matches(logged).count(), 1, "{err}");
}
