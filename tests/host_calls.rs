//! Host functions of scopes: they run in stream order, may borrow, and carry their panics to the scope's end.

use crate::support::stderr_log;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::gate::Gate;
use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::sim::{self, Fault};
use cuguard::{Context, DeviceBuffer, Error, PinnedBuffer, Result, Scope, Stream};

const LEN: usize = 1000;

/// Counts its drops.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn host_functions_run_in_stream_order_and_may_borrow() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let seen = Mutex::new(Vec::new());
    let mut buffer = DeviceBuffer::<u32>::zeroed(&context, LEN)?;
    let mut host = PinnedBuffer::<u32>::zeroed(&context, LEN)?;
    stream.scope(|s| {
        let (mut data, mut host) = (s.bind_mut(&mut buffer)?, s.bind_host_mut(&mut host));
        for value in 1..=100 {
            s.fill(&mut data, value)?;
            s.download(&mut host, &data)?;
            s.call_with(&host, |values| {
                let same = values.iter().all(|one| *one == values[0]);
                seen.lock().expect("no panic").push((values[0], same));
            })?;
        }
        Ok(())
    })?;
    let expected: Vec<_> = (1..=100).map(|value| (value, true)).collect();
    assert_eq!(seen.into_inner().expect("no panic"), expected);
    drop((buffer, host, stream));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn the_scope_waits_for_a_host_function() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let (done, drops) = (AtomicBool::new(false), AtomicUsize::new(0));
    for panics in [false, true] {
        done.store(false, Ordering::Relaxed);
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            stream.scope(|s| {
                let counted = Counted(&drops);
                s.call(|| {
                    let _counted = counted;
                    std::thread::sleep(Duration::from_millis(30));
                    done.store(true, Ordering::Relaxed);
                })?;
                if panics {
                    resume_unwind(Box::new("on purpose"));
                }
                Ok(())
            })
        }));
        assert_eq!(unwound.is_err(), panics);
        assert!(done.load(Ordering::Relaxed));
        assert_eq!(drops.load(Ordering::Relaxed), 1 + usize::from(panics));
    }
    Ok(())
}

#[test]
fn a_panic_is_carried_to_the_end_and_later_work_goes_on() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let (later, drops) = (AtomicU32::new(0), AtomicUsize::new(0));
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        stream.scope(|s| {
            let counted = Counted(&drops);
            s.call(move || {
                let _counted = counted;
                resume_unwind(Box::new("the first"));
            })?;
            s.call(|| resume_unwind(Box::new("the second")))?;
            s.fill(&mut s.bind_mut(&mut buffer)?, 4)?;
            s.call(|| later.store(1, Ordering::Relaxed))
        })
    }));
    let message = unwound.unwrap_err();
    assert_eq!(message.downcast_ref::<&str>(), Some(&"the first"));
    assert_eq!((later.into_inner(), drops.into_inner()), (1, 1));
    assert_eq!(buffer.to_vec()?, [4; LEN]);
    // The panic of the closure wins, and an error loses to the panic of a host function.
    for own in [true, false] {
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            stream.scope(|s| -> Result<()> {
                s.call(|| resume_unwind(Box::new("in the host function")))?;
                if own {
                    resume_unwind(Box::new("in the scope"));
                }
                Err(Error::ContextClosed {
                    operation: "on purpose",
                })
            })
        }));
        let message = unwound.unwrap_err();
        let expected = if own {
            "in the scope"
        } else {
            "in the host function"
        };
        assert_eq!(message.downcast_ref::<&str>(), Some(&expected));
    }
    assert!(stream.is_idle()?);
    drop((buffer, stream));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// A panic of a host function continues at the end of the scope. The closure's error is logged, and printed by a program
/// without a logger.
#[test]
fn an_error_beside_a_panic_is_logged() {
    const TEST: &str = "an_error_beside_a_panic_is_logged";
    if let Some(part) = part() {
        if part == "logger" {
            stderr_log::log_errors();
        }
        let context = Context::new(0).unwrap();
        let stream = Stream::new(&context).unwrap();
        let panics = |s: &Scope<'_, '_>| s.call(|| resume_unwind(Box::new("in the host function")));
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            stream.scope(|s| {
                panics(s)?;
                s.zeroed::<u8>(usize::MAX).map(drop)
            })
        }));
        assert!(unwound.is_err());
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            stream.try_scope(|s| -> Result<u32, Box<dyn std::error::Error>> {
                panics(s)?;
                Ok("seven".parse()?)
            })
        }));
        assert!(unwound.is_err());
        return;
    }
    for (part, prefix) in [("logger", "logged: "), ("no logger", "")] {
        let (_, err) = succeeded(&child(TEST, part, &[]));
        for line in [
            "cuguard: Scope::zeroed: 18446744073709551615 elements of 1 bytes each exceed the address space; the \
             panic of a host function continues",
            "cuguard: Stream::try_scope: ParseIntError { kind: InvalidDigit }; the panic of a host function \
             continues",
        ] {
            let line = format!("{prefix}{line}");
            let count = err.lines().filter(|seen| **seen == line).count();
            assert_eq!(count, 1, "{part}: {line}\n{err}");
        }
    }
}

#[test]
fn guards_dropped_in_a_host_function_are_freed_later() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let before = in_hand(&context)?;
    let buffer = DeviceBuffer::<u8>::zeroed(&context, LEN)?;
    let code = Mutex::new(None);
    stream.scope(|s| {
        s.call(|| {
            *code.lock().expect("no panic") = buffer.to_vec().err().and_then(|error| error.code());
            drop(buffer);
        })
    })?;
    let code = code.into_inner().expect("no panic");
    assert_eq!(code, Some(CUresult::NOT_PERMITTED));
    context.synchronize()?;
    assert_eq!(context.live_bytes(), 0);
    before.all_freed();
    drop(stream);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// `try_scope` waits like `scope`, and its errors are the caller's.
#[test]
fn an_error_type_of_the_callers() -> Result<()> {
    #[derive(Debug, PartialEq)]
    enum Own {
        Parse,
        Driver(Error),
    }
    impl From<Error> for Own {
        fn from(error: Error) -> Self {
            Self::Driver(error)
        }
    }
    impl From<std::num::ParseIntError> for Own {
        fn from(_: std::num::ParseIntError) -> Self {
            Self::Parse
        }
    }
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut target = PinnedBuffer::<u8>::zeroed(&context, LEN)?;
    let buffer = DeviceBuffer::from_slice(&context, &[7_u8; LEN])?;
    let gate = Gate::on(&context, &stream);
    let result = stream.try_scope(|s| -> Result<u32, Own> {
        s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?)?;
        gate.open_later();
        Ok("seven".parse()?)
    });
    assert_eq!(result, Err(Own::Parse));
    assert!(gate.is_open());
    assert_eq!(*target, [7; LEN]);
    let parsed = stream.try_scope(|_| Ok::<u32, Own>("7".parse()?));
    assert_eq!(parsed, Ok(7));
    context.close()?;
    let result = stream.try_scope(|s| -> Result<(), Own> { Ok(s.call(|| ())?) });
    let closed = Error::ContextClosed {
        operation: "Scope::call",
    };
    assert_eq!(result, Err(Own::Driver(closed)));
    Ok(())
}

/// A refused call never runs, and is dropped at the end of the scope.
#[test]
fn a_refused_host_function_is_dropped() -> Result<()> {
    let turn = turn();
    if !simulated("a_refused_host_function_is_dropped") {
        return Ok(());
    }
    let context = context()?;
    let stream = Stream::new(&context)?;
    let (ran, drops) = (AtomicBool::new(false), AtomicUsize::new(0));
    sim::inject(Fault::nth_call_of("cuLaunchHostFunc", 1)).expect("there is such a function");
    let result = stream.scope(|s| {
        let counted = Counted(&drops);
        s.call(|| {
            let _counted = counted;
            ran.store(true, Ordering::Relaxed);
        })
    });
    sim::clear_faults();
    let error = result.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Scope::call on device 0: cuLaunchHostFunc"),
        "{error}"
    );
    assert_eq!((ran.into_inner(), drops.into_inner()), (false, 1));
    drop(stream);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// A host function that runs for a while.
fn slow(began: &AtomicBool, ended: &AtomicBool) {
    began.store(true, Ordering::Release);
    std::thread::sleep(Duration::from_millis(300));
    ended.store(true, Ordering::Release);
}

/// A fault on the device, once that function runs.
fn fault_when(began: &AtomicBool) {
    while !began.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    sim::set_sticky_error(CUresult::ILLEGAL_ADDRESS);
}

/// After a fault on the device the driver returns errors at once while a host function runs: the scope waits for that
/// one, and those after it do not run after the scope.
#[test]
fn a_fault_on_the_device_ends_no_scope_with_a_host_function_running() {
    const TEST: &str = "a_fault_on_the_device_ends_no_scope_with_a_host_function_running";
    if part().is_some() {
        let context = Context::new(0).unwrap();
        let stream = Stream::new(&context).unwrap();
        let (began, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let drops = AtomicUsize::new(0);
        let result = stream.scope(|s| {
            let (one, two) = (Counted(&drops), Counted(&drops));
            let (began, ended) = (&began, &ended);
            s.call(move || {
                let _one = one;
                slow(began, ended);
            })?;
            s.call(move || drop(two))?;
            fault_when(began);
            Ok(())
        });
        assert_eq!(result.unwrap_err().code(), Some(CUresult::ILLEGAL_ADDRESS));
        assert!(ended.load(Ordering::Acquire));
        assert_eq!(drops.load(Ordering::Acquire), 2);
        return;
    }
    succeeded(&child(TEST, "broken", &[("CUGUARD_DRIVER", "sim")]));
}

/// The same for the host functions of a graph, and for the executable, which is dropped while the driver may still call.
#[test]
fn a_fault_on_the_device_ends_no_scope_with_a_graph_running() {
    const TEST: &str = "a_fault_on_the_device_ends_no_scope_with_a_graph_running";
    if part().is_some() {
        let context = Context::new(0).unwrap();
        let stream = Stream::new(&context).unwrap();
        let (began, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let (drops, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let captured = stream.capture(|c| {
            let (one, two) = (Counted(&drops), Counted(&drops));
            let (began, ended, late) = (&began, &ended, &late);
            c.call_each(move || {
                let _one = &one;
                slow(began, ended);
            })?;
            c.call_each(move || {
                let _two = &two;
                late.fetch_add(1, Ordering::Relaxed);
            })
        });
        let mut exec = captured.unwrap().0.instantiate().unwrap();
        let result = stream.scope(|s| {
            let mut graph = s.bind_graph(&mut exec)?;
            s.launch_graph(&mut graph)?;
            s.launch_graph(&mut graph)?;
            fault_when(&began);
            Ok(())
        });
        assert_eq!(result.unwrap_err().code(), Some(CUresult::ILLEGAL_ADDRESS));
        assert!(ended.load(Ordering::Acquire));
        assert_eq!(drops.load(Ordering::Acquire), 0);
        drop(exec);
        assert_eq!(drops.load(Ordering::Acquire), 2);
        let ran = late.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(late.load(Ordering::Relaxed), ran, "called after the drop");
        return;
    }
    succeeded(&child(TEST, "broken", &[("CUGUARD_DRIVER", "sim")]));
}

/// Page-locked memory as an argument of kernels: the device reads and writes it in place.
#[test]
fn page_locked_memory_is_bound_as_device_memory() -> Result<()> {
    let turn = turn();
    let (context, other) = (context()?, Context::builder().dedicated().build()?);
    let stream = Stream::new(&context)?;
    let numbers: Vec<u32> = (0..LEN as u32).collect();
    let mut pinned = PinnedBuffer::from_slice(&context, &numbers)?;
    let mut registered = cuguard::RegisteredVec::new(&context, vec![0_u32; LEN])?;
    let mut output = vec![0; LEN];
    stream.scope(|s| {
        let (pinned, mut registered) = (s.bind_mut(&mut pinned)?, s.bind_mut(&mut registered)?);
        assert_eq!((pinned.len(), registered.len()), (LEN, LEN));
        s.copy(&mut registered, &pinned)?;
        let (mut front, _) = pinned.split_at(2)?;
        s.fill(&mut front, 9)?;
        s.download(&mut s.bind_host_mut(&mut output), &registered)
    })?;
    assert_eq!(*registered, *numbers);
    assert_eq!(output, numbers);
    assert_eq!((&pinned[..2], &pinned[2..]), (&[9, 9][..], &numbers[2..]));
    // Shared, more than once, together with the host memory that it is.
    let mut device = DeviceBuffer::<u32>::zeroed(&context, LEN)?;
    stream.scope(|s| {
        let (one, two) = (s.bind(&pinned)?, s.bind_host(&pinned));
        let mut device = s.bind_mut(&mut device)?;
        s.upload(&mut device, &two)?;
        s.copy(&mut device, &one)
    })?;
    assert_eq!(device.to_vec()?, *pinned);
    // Empty memory is not registered, and belongs to no context.
    let empty = PinnedBuffer::<u32>::zeroed(&context, 0)?;
    assert!(stream.scope(|s| Ok(s.bind(&empty)?.is_empty()))?);
    let foreign = PinnedBuffer::<u32>::zeroed(&other, 1)?;
    let result = stream.scope(|s| s.bind(&foreign).map(drop));
    assert!(
        matches!(result, Err(Error::WrongContext { .. })),
        "{result:?}"
    );
    drop((pinned, registered, device, empty, foreign, stream));
    context.close()?;
    other.close()?;
    turn.all_came_back();
    Ok(())
}
