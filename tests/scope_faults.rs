//! Scopes on a driver that refuses, and at the end of the process: no work is left in flight, and
//! the error is told.

use crate::support;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::gate::Gate;
use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::sim::{self, Fault};
use cuguard::{Context, DeviceBuffer, Error, PinnedBuffer, Result, Stream};

const LEN: usize = 10_000;

/// Runs a scope with a copy in flight, on a driver that refuses these functions from then on. The
/// copy is done when the scope ends.
fn with_refused(functions: &[&str], panics: bool) -> Result<Result<()>> {
    let faults = functions.iter().map(|name| Fault::nth_call_of(*name, 1));
    with_faults(faults.map(Fault::sticky).collect(), panics)
}

/// The same with these faults.
fn with_faults(faults: Vec<Fault>, panics: bool) -> Result<Result<()>> {
    let context = context()?;
    let stream = Stream::new(&context)?;
    with_faults_on(&context, &stream, faults, panics)
}

/// The same on this stream.
fn with_faults_on(
    context: &Context,
    stream: &Stream,
    faults: Vec<Fault>,
    panics: bool,
) -> Result<Result<()>> {
    let buffer = DeviceBuffer::from_slice(context, &[7_u8; LEN])?;
    let mut target = PinnedBuffer::<u8>::zeroed(context, LEN)?;
    let gate = Gate::on(context, stream);
    let mut opener = None;
    let result = catch_unwind(AssertUnwindSafe(|| {
        stream.scope(|s| {
            s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?)?;
            for fault in faults {
                sim::inject(fault).unwrap();
            }
            opener = Some(gate.open_later());
            if panics {
                resume_unwind(Box::new("on purpose"));
            }
            Ok(())
        })
    }));
    sim::clear_faults();
    assert!(gate.is_open());
    assert_eq!(*target, [7; LEN]);
    opener.unwrap().join().unwrap();
    assert_eq!(result.is_err(), panics);
    Ok(result.unwrap_or(Ok(())))
}

#[test]
fn a_refused_wait_leaves_nothing_in_flight() -> Result<()> {
    let _turn = turn();
    if !simulated("a_refused_wait_leaves_nothing_in_flight") {
        return Ok(());
    }
    let refusals: [&[&str]; 4] = [
        &["cuStreamSynchronize"],
        &["cuStreamSynchronize", "cuCtxSynchronize"],
        &["cuStreamSynchronize", "cuStreamQuery"],
        &WAITS,
    ];
    for functions in refusals {
        let error = with_refused(functions, false)?.unwrap_err();
        let start = "Stream::scope on device 0: cuStreamSynchronize returned";
        assert!(error.to_string().starts_with(start), "{error}");
        with_refused(functions, true)??;
    }
    // Nor does a context that cannot be made current for a while.
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let result = stream.scope(|s| {
        s.fill(&mut s.bind_mut(&mut buffer)?, 3)?;
        for n in 1..4 {
            sim::inject(Fault::nth_call_of("cuCtxPushCurrent_v2", n)).unwrap();
        }
        Ok(())
    });
    sim::clear_faults();
    assert_eq!(result.unwrap_err().code(), Some(CUresult::UNKNOWN));
    assert!(stream.is_idle()?);
    Ok(())
}

/// The functions that wait for a stream, or query it.
const WAITS: [&str; 3] = ["cuStreamSynchronize", "cuCtxSynchronize", "cuStreamQuery"];

/// An error that the driver cannot explain, however often it returns it, does not mean that the device has stopped. One
/// that means a dead context is true on a driver.
#[test]
fn no_error_ends_a_scope_whose_work_is_in_flight() -> Result<()> {
    let _turn = turn();
    if !simulated("no_error_ends_a_scope_whose_work_is_in_flight") {
        return Ok(());
    }
    let functions = WAITS.into_iter().chain(["cuEventRecord"]);
    let unknown = functions.flat_map(|name| (1..40).map(move |n| Fault::nth_call_of(name, n)));
    let error = with_faults(unknown.collect(), false)?.unwrap_err();
    assert_eq!(error.code(), Some(CUresult::UNKNOWN));
    let dead = [
        CUresult::CONTEXT_IS_DESTROYED,
        CUresult::INVALID_HANDLE,
        CUresult::LAUNCH_FAILED,
    ];
    for code in dead {
        let functions = WAITS.into_iter().chain(["cuEventSynchronize"]);
        let faults = functions.map(|name| Fault::nth_call_of(name, 1).returning(code).sticky());
        let error = with_faults(faults.collect(), false)?.unwrap_err();
        assert_eq!(error.code(), Some(code));
    }
    Ok(())
}

/// That a context cannot be made current is not a statement about its work, whatever the code.
#[test]
fn a_context_that_cannot_be_made_current_may_be_working() -> Result<()> {
    let _turn = turn();
    if !simulated("a_context_that_cannot_be_made_current_may_be_working") {
        return Ok(());
    }
    let context = context()?;
    for stream in [Stream::default_stream(&context)?, Stream::new(&context)?] {
        for code in [CUresult::INVALID_CONTEXT, CUresult::LAUNCH_FAILED] {
            // More than the failures after which a context counts as dead.
            let push = |n| Fault::nth_call_of("cuCtxPushCurrent_v2", n).returning(code);
            let refused = (1..40).map(push).collect();
            let error = with_faults_on(&context, &stream, refused, false)?.unwrap_err();
            assert_eq!(error.code(), Some(code));
        }
    }
    Ok(())
}

#[test]
fn a_refused_operation_is_told_and_the_rest_is_waited_for() -> Result<()> {
    let turn = turn();
    if !simulated("a_refused_operation_is_told_and_the_rest_is_waited_for") {
        return Ok(());
    }
    let context = context()?;
    let stream = Stream::new(&context)?;
    let source = PinnedBuffer::from_slice(&context, &[7_u8; LEN])?;
    let mut target = PinnedBuffer::<u8>::zeroed(&context, LEN)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let functions = [
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyDtoDAsync_v2",
        "cuMemsetD8Async",
    ];
    for function in functions {
        sim::inject(Fault::nth_call_of(function, 1)).unwrap();
        let result = stream.scope(|s| {
            let (mut front, mut back) = s.bind_mut(&mut buffer)?.split_at(LEN)?;
            s.upload(&mut front, &s.bind_host(&source))?;
            s.download(&mut s.bind_host_mut(&mut target), &front)?;
            s.zero(&mut front)?;
            let (mut one, two) = front.split_at(LEN / 2)?;
            s.copy(&mut one, &two)?;
            s.zero(&mut back)
        });
        let error = result.unwrap_err();
        assert!(
            error.to_string().contains(function.trim_end_matches("_v2")),
            "{error}"
        );
        assert!(stream.is_idle()?);
    }
    sim::clear_faults();
    assert_eq!(*target, [7; LEN]);
    drop((source, target, buffer, stream));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn binding_a_buffer_of_a_stream_that_cannot_be_ordered_after_fails() -> Result<()> {
    let _turn = turn();
    if !simulated("binding_a_buffer_of_a_stream_that_cannot_be_ordered_after_fails") {
        return Ok(());
    }
    let context = context()?;
    let (home, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let buffer = DeviceBuffer::<u8>::zeroed(&home, LEN)?;
    sim::inject(Fault::nth_call_of("cuEventRecord", 1)).unwrap();
    let result = other.scope(|s| s.bind(&buffer).map(drop));
    sim::clear_faults();
    let Err(Error::Driver(error)) = result else {
        panic!("{result:?}");
    };
    assert_eq!(error.function, "cuEventRecord");
    Ok(())
}

#[test]
fn a_scope_ends_on_a_context_that_is_broken() {
    const TEST: &str = "a_scope_ends_on_a_context_that_is_broken";
    if part().is_some() {
        let context = Context::new(0).unwrap();
        let stream = Stream::new(&context).unwrap();
        let mut buffer = DeviceBuffer::<u8>::zeroed(&context, LEN).unwrap();
        let result = stream.scope(|s| {
            let mut data = s.bind_mut(&mut buffer)?;
            s.fill(&mut data, 1)?;
            stream.synchronize()?;
            // From here every call answers this, as after a kernel's stray write.
            sim::set_sticky_error(CUresult::ILLEGAL_ADDRESS);
            s.fill(&mut data, 2)
        });
        assert_eq!(result.unwrap_err().code(), Some(CUresult::ILLEGAL_ADDRESS));
        let result = stream.scope(|s| s.zero(&mut s.bind_mut(&mut buffer)?));
        assert_eq!(result.unwrap_err().code(), Some(CUresult::ILLEGAL_ADDRESS));
        // A scope that retried its wait would abort this process after a while.
        return;
    }
    succeeded(&child(TEST, "broken", &[("CUGUARD_DRIVER", "sim")]));
}

#[test]
fn an_exit_does_not_let_a_scope_end_with_work_in_flight() {
    const TEST: &str = "an_exit_does_not_let_a_scope_end_with_work_in_flight";
    static GATE: OnceLock<Gate> = OnceLock::new();
    static AT_THE_END: AtomicBool = AtomicBool::new(false);
    static PAST_THE_END: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" {
        fn atexit(handler: extern "C" fn()) -> i32;
        fn _exit(code: i32) -> !;
    }
    /// Runs after the crate's own handler, as it was registered before.
    extern "C" fn look() {
        AT_THE_END.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(100));
        let code = if PAST_THE_END.load(Ordering::SeqCst) {
            9
        } else {
            0
        };
        // SAFETY: ends the process at once.
        unsafe { _exit(code) };
    }
    if part().is_some() {
        // SAFETY: the handler does not unwind.
        assert_eq!(unsafe { atexit(look) }, 0);
        let (ready, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let context = support::context().unwrap();
            let stream = Stream::new(&context).unwrap();
            let buffer = DeviceBuffer::from_slice(&context, &[7_u8; LEN]).unwrap();
            let mut target = PinnedBuffer::<u8>::zeroed(&context, LEN).unwrap();
            GATE.get_or_init(|| Gate::on(&context, &stream));
            let ended = stream.scope(|s| {
                s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?)?;
                ready.send(()).unwrap();
                while !AT_THE_END.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                Ok(())
            });
            PAST_THE_END.store(true, Ordering::SeqCst);
            drop(ended);
        });
        wait.recv().unwrap();
        std::process::exit(7);
    }
    succeeded(&child(TEST, "exit", &[]));
}
