//! What is allocated is freed when its owner goes, whatever happens on the way.

mod support;

use std::cell::RefCell;
use std::mem::{self, ManuallyDrop};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Mutex;

use cuguard::{
    Context, DeviceBox, DeviceBuffer, Error, Event, Kind, ManagedBuffer, MemoryPool, PinnedBuffer,
    Registered, Result, Stream,
};
use support::*;

const MIB: usize = 1 << 20;

/// Panics without the message that a panic prints.
fn panic_quietly() -> ! {
    std::panic::resume_unwind(Box::new("on purpose"))
}

fn unwinds(body: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(body)).is_err());
}

#[test]
fn a_panic_between_two_allocations_frees_the_first() -> Result<()> {
    let turn = turn();
    let context = context()?;
    unwinds(|| {
        let first = DeviceBuffer::<u8>::zeroed(&context, 4 * MIB).unwrap();
        assert_eq!(context.live_bytes(), first.len() as u64);
        if first.len() == 4 * MIB {
            panic_quietly();
        }
        let _second = DeviceBuffer::<u8>::zeroed(&context, 4 * MIB).unwrap();
    });
    assert_eq!((context.live_bytes(), context.live_count()), (0, 0));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

struct Model {
    _weights: DeviceBuffer<f32>,
    _stream: Stream,
}

impl Model {
    fn new(context: &Context) -> Result<Self> {
        let weights = DeviceBuffer::zeroed(context, MIB)?;
        let stream = Stream::new(context)?;
        let _bias = PinnedBuffer::<f32>::zeroed(context, 10)?;
        if weights.len() == MIB {
            panic_quietly();
        }
        Ok(Self {
            _weights: weights,
            _stream: stream,
        })
    }
}

#[test]
fn a_panic_in_a_constructor_frees_what_it_had() -> Result<()> {
    let turn = turn();
    let context = context()?;
    unwinds(|| drop(Model::new(&context)));
    assert_eq!(context.live_count(), 0);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_panic_in_a_nested_scope_frees_what_each_scope_had() -> Result<()> {
    let turn = turn();
    let context = context()?;
    unwinds(|| {
        let _outer = DeviceBox::new(&context, &1u64).unwrap();
        unwinds(|| {
            let _inner = DeviceBuffer::from_slice(&context, &[1; 1000]).unwrap();
            panic_quietly();
        });
        assert_eq!(context.live_count(), 1);
        panic_quietly();
    });
    assert_eq!(context.live_count(), 0);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn an_error_half_way_frees_what_was_taken() -> Result<()> {
    fn work(context: &Context) -> Result<()> {
        let _first = DeviceBuffer::<u8>::zeroed(context, MIB)?;
        let _second = DeviceBuffer::<u8>::zeroed(context, 1 << 50)?;
        Ok(())
    }
    let turn = turn();
    let context = context()?;
    assert!(work(&context).is_err());
    assert_eq!(context.live_count(), 0);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_guard_may_be_dropped_on_any_thread_whatever_is_current_there() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let other = Context::builder().own().build()?;
    std::thread::scope(|scope| {
        let make = || DeviceBuffer::from_slice(&context, &[7u8; 5000]);
        let (first, second) = (make().unwrap(), make().unwrap());
        // No context is current on the new thread.
        scope.spawn(move || drop(first));
        let other = &other;
        scope.spawn(move || {
            let _bound = other.bind().unwrap();
            drop(second);
        });
    });
    assert_eq!(context.live_count(), 0);
    // Used there, too.
    let mut buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    std::thread::scope(|scope| {
        scope.spawn(|| buffer.copy_from_slice(&[4, 5, 6]).unwrap());
    });
    assert_eq!(buffer.to_vec()?, [4, 5, 6]);
    drop(buffer);
    other.close()?;
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_guard_that_outlives_its_context_is_inert() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let mut buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    let stream = Stream::new(&context)?;
    let event = Event::new(&context)?;
    let mut pinned = PinnedBuffer::from_slice(&context, &[1, 2, 3])?;
    let registered = Registered::new(&context, vec![1, 2, 3])?;
    let managed = ManagedBuffer::from_slice(&context, &[1, 2, 3])?;
    let pool = MemoryPool::new(&context)?;
    drop(context);
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

#[test]
fn two_contexts_on_one_device_keep_apart() -> Result<()> {
    let turn = turn();
    let primary = context()?;
    let own = Context::builder().own().build()?;
    let in_primary = DeviceBuffer::from_slice(&primary, &[1; 100])?;
    let in_own = DeviceBuffer::from_slice(&own, &[2; 100])?;
    assert_eq!((primary.live_count(), own.live_count()), (1, 1));
    own.close()?;
    assert_eq!(in_primary.to_vec()?, [1; 100]);
    assert!(in_own.to_vec().is_err());
    drop((in_primary, in_own));
    primary.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn the_primary_context_may_be_held_by_others_too() -> Result<()> {
    let turn = turn();
    let first = context()?;
    let second = context()?;
    assert_eq!(first.as_raw(), second.as_raw());
    let kept = DeviceBuffer::from_slice(&second, &[5; 10])?;
    mem::forget(DeviceBuffer::<u8>::zeroed(&first, 8 * MIB)?);
    let before = free_bytes();
    // The driver's context lives on, so what was forgotten must be freed one by one.
    first.close()?;
    assert!(free_bytes() >= before + 8 * MIB as u64);
    assert_eq!(kept.to_vec()?, [5; 10]);
    drop(kept);
    second.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_constructor_whose_copy_fails_frees_what_it_took() -> Result<()> {
    if !simulated("a_constructor_whose_copy_fails_frees_what_it_took") {
        return Ok(());
    }
    use cuguard::driver::sys::CUresult;
    use cuguard::sim::{Fault, inject};
    let turn = turn();
    let context = context()?;
    let fail = |function: &str| {
        inject(Fault::nth_call_of(function, 1).answering(CUresult::LAUNCH_FAILED)).unwrap();
    };
    fail("cuMemcpyHtoD_v2");
    let error = DeviceBuffer::from_slice(&context, &[1; 1000]).unwrap_err();
    assert_eq!(error.code(), Some(CUresult::LAUNCH_FAILED));
    assert!(
        error.to_string().contains("DeviceBuffer::from_slice"),
        "{error}"
    );
    fail("cuMemsetD8_v2");
    assert!(DeviceBuffer::<u8>::zeroed(&context, 1000).is_err());
    fail("cuMemHostRegister_v2");
    assert!(PinnedBuffer::<u8>::zeroed(&context, 1000).is_err());
    assert_eq!(context.live_count(), 0);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_refused_free_is_an_error_of_close_and_filed_by_drop() -> Result<()> {
    if !simulated("a_refused_free_is_an_error_of_close_and_filed_by_drop") {
        return Ok(());
    }
    use cuguard::driver::sys::CUresult;
    use cuguard::sim::{Fault, inject};
    let turn = turn();
    let context = context()?;
    let fail = || inject(Fault::nth_call_of("cuMemFree_v2", 1).answering(CUresult::INVALID_VALUE));
    let buffer = DeviceBuffer::<u8>::zeroed(&context, 1000)?;
    fail().unwrap();
    let error = buffer.close().unwrap_err();
    assert_eq!(error.code(), Some(CUresult::INVALID_VALUE));
    let buffer = DeviceBuffer::<u8>::zeroed(&context, 1000)?;
    fail().unwrap();
    drop(buffer);
    // No later call returns it.
    DeviceBuffer::<u8>::zeroed(&context, 1000)?.close()?;
    assert_eq!(context.snapshot().failed_frees.len(), 2);
    drop(context);
    turn.all_came_back();
    Ok(())
}

static KEPT: Mutex<Option<DeviceBuffer<u8>>> = Mutex::new(None);

struct Node {
    _next: RefCell<Option<Rc<Node>>>,
    _buffer: DeviceBuffer<u8>,
}

#[test]
fn what_is_forgotten_is_reported_reclaimed_and_inert() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let make = || DeviceBuffer::<u8>::zeroed(&context, MIB);
    mem::forget(make()?);
    let mut manually = ManuallyDrop::new(make()?);
    let boxed: &'static mut DeviceBuffer<u8> = Box::leak(Box::new(make()?));
    let node = Rc::new(Node {
        _next: RefCell::new(None),
        _buffer: make()?,
    });
    *node._next.borrow_mut() = Some(node.clone());
    *KEPT.lock().unwrap() = Some(make()?);
    mem::forget(Stream::new(&context)?);
    mem::forget(Event::new(&context)?);
    mem::forget(PinnedBuffer::<u8>::zeroed(&context, 4096)?);

    assert_eq!(context.totals(Kind::Device).count, 5);
    assert_eq!(context.live_count(), 8);
    context.close()?;
    turn.all_came_back();

    assert!(boxed.to_vec().is_err());
    assert!(manually.copy_from_slice(&[0; MIB]).is_err());
    // SAFETY: dropped once, and not used afterwards.
    unsafe { ManuallyDrop::drop(&mut manually) };
    *KEPT.lock().unwrap() = None;
    turn.all_came_back();
    Ok(())
}

#[test]
fn into_raw_and_from_raw_move_the_custody_and_keep_the_record() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?.named("travels");
    let address = buffer.into_raw();
    let snapshot = context.snapshot();
    assert_eq!(snapshot.escaped.len(), 1);
    assert_eq!(snapshot.escaped[0].label.as_deref(), Some("travels"));
    // SAFETY: given away above.
    let buffer = unsafe { DeviceBuffer::<i32>::from_raw(&context, address, 3) };
    let snapshot = context.snapshot();
    assert!(snapshot.escaped.is_empty());
    assert_eq!(snapshot.leaks[0].label.as_deref(), Some("travels"));
    assert_eq!(buffer.to_vec()?, [1, 2, 3]);
    drop(buffer);
    assert_eq!(context.live_count(), 0);

    // What escaped is left alone by teardown where others keep the context alive.
    let others = support::context()?;
    let address = DeviceBuffer::from_slice(&context, &[4, 5, 6])?.into_raw();
    context.close()?;
    // SAFETY: given away above, in the same primary context, which `others` kept alive.
    let buffer = unsafe { DeviceBuffer::<i32>::from_raw(&others, address, 3) };
    assert_eq!(buffer.to_vec()?, [4, 5, 6]);
    drop(buffer);
    others.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn nothing_takes_no_memory_and_works_everywhere() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let before = context.live_count();
    let mut empty = DeviceBuffer::<u32>::from_slice(&context, &[])?;
    empty.copy_from_slice(&[])?;
    assert_eq!(empty.to_vec()?, []);
    let units = DeviceBuffer::from_slice(&context, &[(), (), ()])?;
    assert_eq!(units.to_vec()?.len(), 3);
    assert!(DeviceBuffer::<u8>::zeroed_on(&stream, 0)?.is_empty());
    assert!(PinnedBuffer::<u8>::zeroed(&context, 0)?.is_empty());
    let managed = ManagedBuffer::<u8>::zeroed(&context, 0)?;
    assert!(managed.as_slice(&context)?.is_empty());
    assert!(
        Registered::<u8>::new(&context, Vec::new())?
            .into_vec()?
            .is_empty()
    );
    DeviceBox::new(&context, &())?.get()?;
    assert_eq!(empty.into_raw(), 0);
    assert_eq!(context.live_count(), before);
    Ok(())
}

#[test]
fn sizes_that_overflow_are_an_error() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let overflow = |error: Error| matches!(error, Error::SizeOverflow { .. });
    for len in [usize::MAX, usize::MAX / 2, isize::MAX as usize / 8 + 1] {
        assert!(overflow(
            DeviceBuffer::<u64>::zeroed(&context, len).unwrap_err()
        ));
        assert!(overflow(
            DeviceBuffer::<u64>::zeroed_on(&stream, len).unwrap_err()
        ));
        assert!(overflow(
            PinnedBuffer::<u64>::zeroed(&context, len).unwrap_err()
        ));
        assert!(overflow(
            ManagedBuffer::<u64>::zeroed(&context, len).unwrap_err()
        ));
    }
    let mut buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    let error = buffer.copy_from_slice(&[1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "DeviceBuffer::copy_from_slice: 1 elements given, 3 expected"
    );
    assert!(buffer.copy_to_slice(&mut [0; 4]).is_err());
    Ok(())
}

#[test]
fn a_stream_ordered_buffer_goes_with_its_stream_in_any_order() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut buffer = DeviceBuffer::<u32>::zeroed_on(&stream, 1000)?;
    buffer.copy_from_slice(&[7; 1000])?;
    drop(stream);
    // The stream lives on for the buffer that is freed on it.
    assert_eq!(buffer.to_vec()?, [7; 1000]);
    drop(buffer);
    assert_eq!(context.live_count(), 0);
    context.synchronize()?;
    let pool = MemoryPool::new(&context)?;
    let stream = Stream::new(&context)?;
    let buffer = DeviceBuffer::<u8>::zeroed_in(&pool, &stream, 1000)?;
    drop(pool);
    assert_eq!(buffer.to_vec()?, [0; 1000]);
    mem::forget(buffer);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn several_devices() {
    const TEST: &str = "several_devices";
    if part().is_some() {
        let (first, second) = (Context::new(0).unwrap(), Context::new(1).unwrap());
        let on_first = DeviceBuffer::from_slice(&first, &[1; 100]).unwrap();
        let on_second = DeviceBuffer::from_slice(&second, &[2; 100]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(on_second.to_vec().unwrap(), [2; 100]));
        });
        drop(second);
        assert_eq!(on_first.to_vec().unwrap(), [1; 100]);
        assert!(on_second.to_vec().is_err());
        assert!(Context::new(2).is_err());
        return;
    }
    let variables = [("CUGUARD_DRIVER", "sim"), ("CUGUARD_SIM", "devices=2")];
    succeeded(&child(TEST, "devices", &variables));
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
    use cuguard::Level;
    let _turn = turn();
    let others = context()?;
    let closed = [
        Context::builder().level(Level::Counts),
        Context::builder().reclaim(false),
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
        panic_quietly();
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
        drop(context);
        assert_eq!(free_bytes(), before);
        println!("torn down");
        return;
    }
    let (out, _) = succeeded(&child(TEST, "logger", &[]));
    assert!(out.contains("torn down"), "{out}");
}

#[test]
fn the_primary_context_may_be_retained_by_code_that_knows_nothing_of_this() -> Result<()> {
    use cuguard::driver::api;
    use cuguard::driver::sys::CUcontext;
    let turn = turn();
    let mut raw = CUcontext::NULL;
    let context = context()?;
    // SAFETY: the variable can be written to; given back below.
    assert!(unsafe { api::cuDevicePrimaryCtxRetain(&mut raw, 0) }.is_success());
    mem::forget(DeviceBuffer::<u8>::zeroed(&context, 8 * MIB)?);
    let before = free_bytes();
    context.close()?;
    assert_eq!(free_bytes(), before + 8 * MIB as u64);
    // SAFETY: gives back what was retained above.
    assert!(unsafe { api::cuDevicePrimaryCtxRelease_v2(0) }.is_success());
    turn.all_came_back();
    Ok(())
}
