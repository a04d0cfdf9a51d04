//! The end of a scope on a driver that fails: it waits until no work uses the memory, or ends the process.

use std::sync::mpsc::channel;
use std::time::Duration;

use crate::support::gate::Gate;
use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::sim::{self, Fault};
use cuguard::{Context, DeviceBuffer, PinnedBuffer, Result, Stream};

/// Teardown inside a scope waits for the scope's work also where the driver refuses at first.
#[test]
fn a_context_closed_inside_a_scope_waits_on_a_driver_that_refuses() -> Result<()> {
    let _turn = turn();
    if !simulated("a_context_closed_inside_a_scope_waits_on_a_driver_that_refuses") {
        return Ok(());
    }
    for function in ["cuCtxSynchronize", "cuCtxPushCurrent_v2"] {
        let context = Context::new(0)?;
        let stream = Stream::new(&context)?;
        let buffer = DeviceBuffer::from_slice(&context, &[7_u8; 1000])?;
        let mut target = PinnedBuffer::<u8>::zeroed(&context, 1000)?;
        let gate = Gate::on(&context, &stream);
        let mut opener = None;
        stream.scope(|s| {
            s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?)?;
            opener = Some(gate.open_later());
            for n in 1..4 {
                sim::inject(Fault::nth_call_of(function, n)).unwrap();
            }
            let closed = context.close();
            // A refused wait is an error, and is tried again all the same.
            assert_eq!(
                closed.is_err(),
                function == "cuCtxSynchronize",
                "{closed:?}"
            );
            Ok(())
        })?;
        sim::clear_faults();
        assert!(gate.is_open());
        assert_eq!(*target, [7; 1000]);
        opener.unwrap().join().unwrap();
    }
    Ok(())
}

/// The driver does not return whether the work is done: the process ends instead of letting the device write
/// into memory that is used for something else.
#[test]
fn a_scope_that_cannot_know_ends_the_process() {
    const TEST: &str = "a_scope_that_cannot_know_ends_the_process";
    if !simulated(TEST) {
        return;
    }
    if part().is_some() {
        let keeps_it_alive = Context::new(0).unwrap();
        let context = Context::new(0).unwrap();
        let stream = Stream::new(&context).unwrap();
        let buffer = DeviceBuffer::from_slice(&context, &[7_u8; 1000]).unwrap();
        let mut target = PinnedBuffer::<u8>::zeroed(&context, 1000).unwrap();
        let gate = Gate::on(&context, &stream);
        let _ = stream.scope(|s| {
            s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?)?;
            sim::inject(Fault::nth_call_of("cuCtxPushCurrent_v2", 1).sticky()).unwrap();
            context.close()
        });
        gate.open();
        drop(keeps_it_alive);
        println!("went on");
        return;
    }
    let output = child(TEST, "child", &[]);
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        !output.status.success() && !out.contains("went on"),
        "{out}"
    );
    assert!(err.contains("closed within the scope"), "{err}");
}

/// A scope with a download in flight on a driver that returns these codes when it is waited for, as long as the gate is
/// closed: until the scope has ended, or for `limit` from the first error on. Returns whether the gate was open when the
/// scope ended.
fn waited_out(codes: [u32; 3], limit: Duration) -> Result<bool> {
    let context = context()?;
    let stream = Stream::new(&context)?;
    let buffer = DeviceBuffer::from_slice(&context, &[7_u8; 100])?;
    let mut target = PinnedBuffer::<u8>::zeroed(&context, 100)?;
    let gate = Gate::on(&context, &stream);
    let (end, ended) = channel::<()>();
    let mut opener = None;
    let result = stream.scope(|s| {
        s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?)?;
        let functions = ["cuStreamSynchronize", "cuCtxSynchronize", "cuStreamQuery"];
        let faults = functions.into_iter().zip(codes).map(|(function, code)| {
            let fault = Fault::nth_call_of(function, 1).sticky();
            sim::inject(fault.returning(CUresult(code))).unwrap()
        });
        let faults: Vec<_> = faults.collect();
        let gate = gate.clone();
        opener = Some(std::thread::spawn(move || {
            let has_failed = soon(|| faults[0].fired() > 0);
            let _ = ended.recv_timeout(limit);
            gate.open();
            sim::clear_faults();
            assert!(has_failed, "the stream is not waited for");
        }));
        Ok(())
    });
    assert!(result.is_err());
    let open = gate.is_open();
    drop(end);
    opener.unwrap().join().unwrap();
    context.synchronize()?;
    Ok(open)
}

/// After an error that does not mean the end of the context the scope waits on.
#[test]
fn a_scope_asks_until_it_knows() -> Result<()> {
    let _turn = turn();
    if !simulated("a_scope_asks_until_it_knows") {
        return Ok(());
    }
    let a_while = Duration::from_millis(100);
    assert!(waited_out([2, 2, 2], a_while)?, "out of memory");
    assert!(waited_out([2, 900, 1], a_while)?, "different errors");
    assert!(waited_out([999, 999, 999], a_while)?, "unknown error");
    // All three codes mean that the context is destroyed. A driver returns them when nothing is in flight.
    assert!(waited_out([400, 709, 400], a_while)?, "destroyed context");
    Ok(())
}

struct Loud;

impl log::Log for Loud {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        panic!("a logger that panics: {}", record.args());
    }
    fn flush(&self) {}
}

/// Two panics at once would abort the process.
#[test]
fn a_logger_that_panics_while_a_scope_unwinds() {
    const TEST: &str = "a_logger_that_panics_while_a_scope_unwinds";
    if !simulated(TEST) {
        return;
    }
    if part().is_some() {
        log::set_logger(&Loud).unwrap();
        log::set_max_level(log::LevelFilter::Error);
        let context = context().unwrap();
        let stream = Stream::new(&context).unwrap();
        let mut buffer = DeviceBuffer::from_slice(&context, &[7_u8; 100]).unwrap();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            stream.scope(|s| -> Result<()> {
                s.fill(&mut s.bind_mut(&mut buffer)?, 3)?;
                sim::inject(Fault::nth_call_of("cuStreamSynchronize", 1)).unwrap();
                std::panic::resume_unwind(Box::new("on purpose"));
            })
        }));
        assert!(caught.is_err());
        return;
    }
    succeeded(&child(TEST, "child", &[]));
}

/// From one call on everything fails, as on a device that is lost: the scope ends, and its work is
/// not done later behind the program's back.
#[test]
fn a_driver_that_is_lost_has_nothing_in_flight() -> Result<()> {
    let _turn = turn();
    if !simulated("a_driver_that_is_lost_has_nothing_in_flight") {
        return Ok(());
    }
    let context = context()?;
    let stream = Stream::new(&context)?;
    let buffer = DeviceBuffer::from_slice(&context, &[7_u8; 1000])?;
    let mut target = PinnedBuffer::<u8>::zeroed(&context, 1000)?;
    let gate = Gate::on(&context, &stream);
    let result = stream.scope(|s| {
        s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?)?;
        let lost = Fault::nth_call(1).returning(CUresult::LAUNCH_FAILED);
        sim::inject(lost.sticky()).unwrap();
        Ok(())
    });
    assert_eq!(result.unwrap_err().code(), Some(CUresult::LAUNCH_FAILED));
    // Nor where the driver works again.
    sim::clear_faults();
    gate.open();
    context.synchronize()?;
    assert_eq!(*target, [0; 1000]);
    Ok(())
}
