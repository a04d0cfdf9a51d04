//! Guards that outlive the close of their context, or the process: they are inert, and what the host
//! can reach stays valid.

use crate::support;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use crate::support::*;
use cuguard::{
    Context, DeviceBuffer, DriverPool, Error, Event, ManagedBuffer, PinnedBuffer, RegisteredVec,
    Result, Stream,
};

const MIB: usize = 1 << 20;

#[test]
fn a_guard_that_outlives_the_close_of_its_context_is_inert() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let mut buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    let stream = Stream::new(&context)?;
    let event = Event::new(&context)?;
    let mut pinned = PinnedBuffer::from_slice(&context, &[1, 2, 3])?;
    let registered = RegisteredVec::new(&context, vec![1, 2, 3])?;
    let managed = ManagedBuffer::from_slice(&context, &[1, 2, 3])?;
    let pool = DriverPool::new(&context)?;
    context.close()?;
    turn.all_came_back();

    let closed = |error: Error| matches!(error, Error::ContextClosed { .. });
    assert!(closed(buffer.to_vec().unwrap_err()));
    assert!(closed(buffer.copy_from_slice(&[4, 5, 6]).unwrap_err()));
    assert!(closed(stream.synchronize().unwrap_err()));
    assert!(closed(pool.used_bytes().unwrap_err()));
    // Host memory stays valid for as long as it can be reached.
    pinned[0] = 10;
    assert_eq!(*pinned, [10, 2, 3]);
    assert_eq!(registered.into_vec()?, [1, 2, 3]);
    // A new context may have the same address; the old guards must not touch it.
    let context = support::context()?;
    let fresh = DeviceBuffer::from_slice(&context, &[9, 9, 9])?;
    drop((buffer, stream, event, pinned, managed, pool));
    assert_eq!(fresh.to_vec()?, [9, 9, 9]);
    assert_eq!(context.live_count(), 1);
    Ok(())
}

static LATE: Mutex<Option<DeviceBuffer<u8>>> = Mutex::new(None);

/// Runs after cuguard's own exit handler, as it was registered before it.
extern "C" fn drop_late() {
    let calls = || cuguard::sim::counters().calls.values().sum::<u64>();
    let before = calls();
    drop(LATE.lock().unwrap_or_else(|e| e.into_inner()).take());
    if calls() != before {
        // SAFETY: ends the process at once, which is allowed in an exit handler.
        unsafe { libc::_exit(9) };
    }
}

#[test]
fn a_guard_dropped_during_exit_calls_no_driver() {
    const TEST: &str = "a_guard_dropped_during_exit_calls_no_driver";
    if part().is_some() {
        // SAFETY: the handler takes nothing and does not unwind.
        assert_eq!(unsafe { libc::atexit(drop_late) }, 0);
        // A context in a static is never dropped.
        static CONTEXT: std::sync::OnceLock<Context> = std::sync::OnceLock::new();
        let context = CONTEXT.get_or_init(|| support::context().unwrap());
        *LATE.lock().unwrap() = Some(DeviceBuffer::zeroed(context, 1000).unwrap());
        std::process::exit(0);
    }
    // The simulated GPU counts the calls.
    let output = child(TEST, "exit", &[("CUGUARD_DRIVER", "sim")]);
    succeeded(&output);
}

#[test]
fn host_memory_that_the_driver_still_holds_is_not_given_back() -> Result<()> {
    use cuguard::TrackingLevel;
    let _turn = turn();
    let others = context()?;
    let closed = [
        Context::builder().level(TrackingLevel::Counts),
        Context::builder().free_leaks(false),
    ];
    for builder in closed {
        let context = builder.build()?;
        let pinned = PinnedBuffer::<u8>::zeroed(&context, 1 << 16)?;
        // Nothing lets go of the memory: there is no record, or nobody wants it.
        context.close()?;
        drop(pinned);
        // Freed memory would come back at the same address, and be refused as registered.
        for _ in 0..20 {
            PinnedBuffer::<u8>::zeroed(&others, 1 << 16)?.close()?;
        }
    }
    others.close()
}

#[test]
fn a_closed_buffer_shows_nothing_through_cust() -> Result<()> {
    let _turn = turn();
    let first = context()?;
    let others = context()?;
    let buffer = DeviceBuffer::from_slice(&first, &[1u32; 64])?;
    first.close()?;
    let _new = DeviceBuffer::from_slice(&others, &[77u32; 64])?;
    let seen = catch_unwind(AssertUnwindSafe(|| buffer.as_host_vec()));
    assert!(seen.is_err(), "cust was let at memory of a closed context");
    others.close()
}

static LOGGED: Mutex<Option<DeviceBuffer<u8>>> = Mutex::new(None);

/// A logger that does the worst: it drops a guard of the context that is being torn down, and
/// panics.
struct Hostile;

impl log::Log for Hostile {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, _: &log::Record<'_>) {
        drop(LOGGED.lock().unwrap_or_else(|e| e.into_inner()).take());
        std::panic::resume_unwind(Box::new("on purpose"));
    }
    fn flush(&self) {}
}

#[test]
fn a_logger_that_misbehaves_does_not_hold_teardown_up() {
    const TEST: &str = "a_logger_that_misbehaves_does_not_hold_teardown_up";
    if part().is_some() {
        log::set_logger(&Hostile).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
        let before = free_bytes();
        let context = support::context().unwrap();
        let buffer = DeviceBuffer::<u8>::zeroed(&context, MIB).unwrap();
        *LOGGED.lock().unwrap() = Some(buffer);
        mem::forget(DeviceBuffer::<u8>::zeroed(&context, MIB).unwrap());
        context.close().unwrap();
        assert_eq!(free_bytes(), before);
        println!("torn down");
        return;
    }
    let (out, _) = succeeded(&child(TEST, "logger", &[]));
    assert!(out.contains("torn down"), "{out}");
}

/// What panics on a closed context says where the program used it, and not a line of this crate.
#[test]
fn a_panic_of_a_closed_guard_names_the_line_that_used_it() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let mut buffer = DeviceBuffer::from_slice(&context, &[1_u32; 64])?;
    let stream = Stream::new(&context)?;
    context.close()?;
    /// File and line of the panic in `use_it`.
    fn place(use_it: impl FnOnce()) -> (String, u32) {
        static PLACE: Mutex<Option<(String, u32)>> = Mutex::new(None);
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(|at| (at.file().to_owned(), at.line()));
            *PLACE.lock().unwrap() = place;
        }));
        let unwound = catch_unwind(AssertUnwindSafe(use_it));
        std::panic::set_hook(before);
        assert!(unwound.is_err(), "a closed guard was used");
        PLACE.lock().unwrap().take().expect("a panic has a place")
    }
    let here = |line| (file!().to_owned(), line);
    assert_eq!(place(|| drop(buffer.as_host_vec())), here(line!()));
    assert_eq!(place(|| buffer.set_8(0).unwrap()), here(line!()));
    assert_eq!(place(|| assert!(stream.get_flags().is_ok())), here(line!()));
    Ok(())
}
