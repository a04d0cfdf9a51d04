//! The end of a process that is busy: threads that tear down, write a report, hold locks or wait,
//! while another one calls `exit`; and forks. Each in a child process, which must end in time.

use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::gate::Gate;
use crate::support::*;
use cuguard::{Context, DeviceBuffer, Error, Event, PinnedBuffer, Stream, sim};

/// What a child ends with that came to its end by itself.
const FINE: i32 = 7;

/// Runs a test in a child, and answers its exit code and what it wrote to standard error.
fn run(test: &str, leak_report: &str) -> (Option<i32>, String) {
    let limit = Duration::from_secs(30);
    let output = child_within(limit, test, "child", &[("LEAK_REPORT", leak_report)]);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), err)
}

fn later(milliseconds: u64) {
    thread::sleep(Duration::from_millis(milliseconds));
}

/// Ends the process at once, without handlers.
fn end_now(code: i32) -> ! {
    // SAFETY: may be called at any time.
    unsafe { libc::_exit(code) }
}

#[inline(never)]
fn leak(context: &Context) {
    std::mem::forget(DeviceBuffer::<u8>::zeroed(context, 1000).unwrap());
}

#[test]
fn a_report_under_way_is_finished_and_sets_the_exit_code() {
    const TEST: &str = "a_report_under_way_is_finished_and_sets_the_exit_code";
    if part().is_some() {
        let (begin, begun) = channel();
        thread::spawn(move || {
            let context = context().unwrap();
            leak(&context);
            begin.send(()).unwrap();
            let _ = context.close();
        });
        begun.recv().unwrap();
        later(20);
        std::process::exit(0);
    }
    let (code, err) = run(TEST, "1,exitcode=23");
    assert_eq!(code, Some(23), "{err}");
    assert_eq!(err.matches("cuguard: leaked").count(), 1, "{err}");
}

struct Slow;

impl log::Log for Slow {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        later(200);
        eprintln!("LOGGED {}", record.args());
    }
    fn flush(&self) {}
}

#[test]
fn a_warning_under_way_is_finished() {
    const TEST: &str = "a_warning_under_way_is_finished";
    if part().is_some() {
        log::set_logger(&Slow).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
        let (begin, begun) = channel();
        thread::spawn(move || {
            let context = context().unwrap();
            leak(&context);
            begin.send(()).unwrap();
            let _ = context.close();
        });
        begun.recv().unwrap();
        later(20);
        std::process::exit(0);
    }
    let (_, err) = run(TEST, "");
    assert!(err.contains("LOGGED cuguard: leaked"), "{err}");
}

/// A thread that stops at the end of its scope never gives its locks back.
#[test]
fn a_lock_on_standard_error_does_not_stop_the_exit() {
    const TEST: &str = "a_lock_on_standard_error_does_not_stop_the_exit";
    if part().is_some() {
        let (begin, begun) = channel();
        thread::spawn(move || {
            let context = context().unwrap();
            let stream = Stream::new(&context).unwrap();
            let buffer = DeviceBuffer::from_slice(&context, &[7_u8; 100]).unwrap();
            let mut target = PinnedBuffer::<u8>::zeroed(&context, 100).unwrap();
            let _locked = std::io::stderr().lock();
            let _ = stream.scope(|s| {
                s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?)?;
                begin.send(()).unwrap();
                later(600);
                Ok(())
            });
        });
        begun.recv().unwrap();
        std::process::exit(FINE);
    }
    let (code, err) = run(TEST, "1,level=sites");
    assert_eq!(code, Some(FINE), "{err}");
    assert!(err.contains("never closed"), "{err}");
}

static GATE: OnceLock<Gate> = OnceLock::new();

/// Ends the operation that teardown waits for, and counts the calls that follow.
extern "C" fn count_late_calls() {
    GATE.get().expect("it was closed").open();
    later(300);
    let counters = sim::counters();
    let late = counters.calls_of("cuDevicePrimaryCtxRelease_v2")
        + counters.calls_of("cuMemFree_v2")
        + counters.calls_of("cuCtxSynchronize");
    end_now(if late == 0 { FINE } else { 8 });
}

/// Teardown waits for an operation, the exit begins, the operation ends: teardown must not go on.
#[test]
fn a_teardown_that_waited_too_long_calls_no_driver() {
    const TEST: &str = "a_teardown_that_waited_too_long_calls_no_driver";
    if !simulated(TEST) {
        return;
    }
    if part().is_some() {
        // SAFETY: takes and returns nothing. Handlers run last first, so this one after cuguard's.
        unsafe { libc::atexit(count_late_calls) };
        let (begin, begun) = channel();
        thread::spawn(move || {
            let context = context().unwrap();
            let stream = Stream::new(&context).unwrap();
            leak(&context);
            let gate = Gate::on(&context, &stream);
            assert!(GATE.set(gate).is_ok());
            let waiting = CallsOf::new("cuStreamSynchronize");
            thread::spawn(move || stream.synchronize());
            waiting.wait();
            begin.send(()).unwrap();
            let _ = context.close();
        });
        begun.recv().unwrap();
        later(50);
        std::process::exit(9);
    }
    let (code, err) = run(TEST, "0");
    assert_eq!(code, Some(FINE), "{err}");
}

extern "C" fn make_a_context() {
    let refused = matches!(Context::new(0), Err(Error::ProcessEnding { .. }));
    end_now(if refused { FINE } else { 8 });
}

#[test]
fn no_context_is_made_once_the_process_ends() {
    const TEST: &str = "no_context_is_made_once_the_process_ends";
    if part().is_some() {
        // SAFETY: as above.
        unsafe { libc::atexit(make_a_context) };
        drop(context().unwrap());
        std::process::exit(9);
    }
    let (code, err) = run(TEST, "0");
    assert_eq!(code, Some(FINE), "{err}");
}

/// A thread waits for teardown with the lock in its hands that the report needs.
#[test]
fn a_pinned_buffer_dropped_while_another_thread_reports() {
    const TEST: &str = "a_pinned_buffer_dropped_while_another_thread_reports";
    if part().is_some() {
        let context = context().unwrap();
        let stream = Stream::new(&context).unwrap();
        let pinned = PinnedBuffer::<u8>::zeroed(&context, 100).unwrap();
        let gate = Gate::on(&context, &stream);
        let closer = thread::spawn(move || drop(context.close()));
        later(200);
        {
            let _locked = std::io::stderr().lock();
            gate.open_later();
            drop(pinned);
        }
        closer.join().unwrap();
        std::process::exit(FINE);
    }
    let (code, err) = run(TEST, "1,level=sites");
    assert_eq!(code, Some(FINE), "{err}");
}

/// Whether a forked child ends by itself within some seconds, with the code 0.
fn ends_well(child: libc::pid_t) -> bool {
    let (begin, mut status, mut ended) = (Instant::now(), 0, false);
    while !ended && begin.elapsed() < Duration::from_secs(20) {
        // SAFETY: our own child, and the variable can be written to.
        ended = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child;
        later(10);
    }
    if !ended {
        // SAFETY: our own child.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    ended && status == 0
}

/// In a forked child nothing works any more, and nothing hangs.
#[test]
fn a_fork_while_another_thread_is_inside() {
    const TEST: &str = "a_fork_while_another_thread_is_inside";
    if part().is_some() {
        let context = context().unwrap();
        let stream = Stream::new(&context).unwrap();
        let buffer = DeviceBuffer::<u8>::zeroed(&context, 100).unwrap();
        let gate = Gate::on(&context, &stream);
        let waiter = thread::spawn(move || stream.synchronize());
        later(100);
        // SAFETY: the child only does what is under test, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let inert = matches!(buffer.to_vec(), Err(Error::ProcessEnding { .. }))
                && matches!(Context::new(0), Err(Error::ProcessEnding { .. }));
            drop((buffer, context));
            end_now(if inert { 0 } else { 1 });
        }
        let fine = ends_well(child);
        gate.open();
        waiter.join().unwrap().unwrap();
        drop((buffer, context));
        std::process::exit(if fine { FINE } else { 8 });
    }
    let (code, err) = run(TEST, "0");
    assert_eq!(code, Some(FINE), "{err}");
}

/// A logger that another thread is in, for ever as far as a forked child can tell.
struct Busy;

static BUSY: Mutex<()> = Mutex::new(());

impl log::Log for Busy {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, _: &log::Record<'_>) {
        drop(BUSY.lock());
    }
    fn flush(&self) {}
}

/// What a forked child drops, and a scope that it comes out of with an error, do not wait for a
/// logger whose lock was held when it was forked.
#[test]
fn a_fork_while_another_thread_is_in_the_logger() {
    const TEST: &str = "a_fork_while_another_thread_is_in_the_logger";
    if part().is_some() {
        log::set_logger(&Busy).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
        let context = context().unwrap();
        let stream = Stream::new(&context).unwrap();
        let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 100).unwrap();
        let (begin, begun) = channel();
        let (end, ended) = channel::<()>();
        let logs = thread::spawn(move || {
            let _held = BUSY.lock();
            begin.send(()).unwrap();
            let _ = ended.recv();
        });
        begun.recv().unwrap();
        let mut child = -1;
        let result: Result<(), Error> = stream.scope(|s| {
            s.fill(&mut s.bind_mut(&mut buffer)?, 1)?;
            // SAFETY: the child only does what is under test, and ends.
            child = unsafe { libc::fork() };
            if child == 0 {
                return Err(Error::ContextClosed { operation: "test" });
            }
            Ok(())
        });
        if child == 0 {
            drop((buffer, stream, context));
            end_now(i32::from(result.is_ok()));
        }
        let fine = ends_well(child);
        end.send(()).unwrap();
        logs.join().unwrap();
        std::process::exit(if fine { FINE } else { 8 });
    }
    let (code, err) = run(TEST, "0");
    assert_eq!(code, Some(FINE), "{err}");
}

/// What goes with the process is told as alive in a context that was never closed, and not also as
/// dropped too late.
#[test]
fn guards_dropped_during_the_exit_are_no_late_drops() {
    const TEST: &str = "guards_dropped_during_the_exit_are_no_late_drops";
    if part().is_some() {
        let (begin, begun) = channel();
        thread::spawn(move || {
            let context = context().unwrap();
            let stream = Stream::new(&context).unwrap();
            let event = Event::new(&context).unwrap();
            let buffer = DeviceBuffer::<u8>::zeroed(&context, 8).unwrap();
            let gate = Gate::on(&context, &stream);
            std::mem::forget(context);
            thread::spawn(move || stream.synchronize());
            begin.send(()).unwrap();
            later(100);
            drop((event, buffer));
            gate.open();
        });
        begun.recv().unwrap();
        later(20);
        std::process::exit(FINE);
    }
    let (code, err) = run(TEST, "1,level=sites");
    assert_eq!(code, Some(FINE), "{err}");
    // Neither in that context's own report nor in a line after it.
    assert!(!err.contains("dropped after"), "{err}");
    assert!(err.contains("never closed"), "{err}");
}

/// A child that was forked inside a scope comes out of it: nothing writes to its copy of the memory.
#[test]
fn a_fork_within_a_scope() {
    const TEST: &str = "a_fork_within_a_scope";
    if part().is_some() {
        let context = context().unwrap();
        let stream = Stream::new(&context).unwrap();
        let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 100).unwrap();
        let mut child = -1;
        let result = stream.scope(|s| {
            s.fill(&mut s.bind_mut(&mut buffer)?, 1)?;
            // SAFETY: the child only does what is under test, and ends.
            child = unsafe { libc::fork() };
            Ok(())
        });
        if child == 0 {
            end_now(i32::from(!matches!(
                result,
                Err(Error::ProcessEnding { .. })
            )));
        }
        result.unwrap();
        let mut status = 0;
        // SAFETY: our own child, and the variable can be written to.
        let ended = unsafe { libc::waitpid(child, &mut status, 0) } == child;
        std::process::exit(if ended && status == 0 { FINE } else { 8 });
    }
    let (code, err) = run(TEST, "0");
    assert_eq!(code, Some(FINE), "{err}");
}

/// A child that is forked while another thread is anywhere in the registry reads it, names and releases
/// what it has: the locks of the registry are not waited for.
#[test]
fn a_fork_while_another_thread_is_in_the_registry() {
    const TEST: &str = "a_fork_while_another_thread_is_in_the_registry";
    if part().is_some() {
        let context = context().unwrap();
        let over = std::sync::atomic::AtomicBool::new(false);
        let fine = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(std::sync::atomic::Ordering::Relaxed) {
                        let kept: Vec<_> = (0..20).map(|_| Event::new(&context)).collect();
                        drop((context.snapshot(), kept));
                    }
                });
            }
            let fine = (0..40).all(|round| {
                let event = Event::new(&context).unwrap();
                let buffer = DeviceBuffer::<u8>::zeroed(&context, 100).unwrap();
                thread::sleep(Duration::from_micros(100 + round * 10));
                // SAFETY: the child only does what is under test, and ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    drop((context.snapshot(), event.with_label("in the child")));
                    context.mark_oom_baseline();
                    let address = buffer.into_raw();
                    // SAFETY: the address was just released.
                    drop(unsafe { DeviceBuffer::<u8>::from_raw(&context, address, 100) });
                    end_now(0);
                }
                ends_well(child)
            });
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            fine
        });
        std::process::exit(if fine { FINE } else { 8 });
    }
    let (code, err) = run(TEST, "1");
    assert_eq!(code, Some(FINE), "{err}");
}
