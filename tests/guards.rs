//! What is allocated is freed when its owner goes, whatever happens on the way.

use crate::support;
use std::cell::RefCell;
use std::mem::{self, ManuallyDrop};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Mutex;

use cuguard::{
    Context, DeviceBox, DeviceBuffer, DriverPool, Error, Event, ManagedBuffer, PinnedBuffer,
    RegisteredVec, ResourceKind, Result, Stream,
};

use crate::support::*;
use cuguard::report::ReportSettings;

const MIB: usize = 1 << 20;

/// A context whose report goes into a file, and what reads it.
fn reported(name: &str) -> Result<(Context, impl FnOnce() -> String)> {
    let file = format!("cuguard-guards-{}-{name}.txt", std::process::id());
    let file = temporary(&file);
    let settings = ReportSettings::text().file(file.to_str().unwrap()).unwrap();
    let context = Context::builder().report(settings).build()?;
    let read = move || {
        let report = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        report
    };
    Ok((context, read))
}

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
    let before = in_hand(&context)?;
    unwinds(|| {
        let first = DeviceBuffer::<u8>::zeroed(&context, 32 * MIB).unwrap();
        assert_eq!(context.live_bytes(), first.len() as u64);
        if first.len() == 32 * MIB {
            panic_quietly();
        }
        let _second = DeviceBuffer::<u8>::zeroed(&context, 32 * MIB).unwrap();
    });
    assert_eq!((context.live_bytes(), context.live_count()), (0, 0));
    before.all_freed();
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
    let before = in_hand(&context)?;
    unwinds(|| drop(Model::new(&context)));
    assert_eq!(context.live_count(), 0);
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_panic_in_a_nested_scope_frees_what_each_scope_had() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    unwinds(|| {
        let _outer = DeviceBox::new(&context, &1u64).unwrap();
        let between = in_hand(&context).unwrap();
        unwinds(|| {
            let _inner = DeviceBuffer::<u8>::zeroed(&context, 32 * MIB).unwrap();
            panic_quietly();
        });
        assert_eq!(context.live_count(), 1);
        between.all_freed();
        panic_quietly();
    });
    assert_eq!(context.live_count(), 0);
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn an_error_half_way_frees_what_was_taken() -> Result<()> {
    fn work(context: &Context) -> Result<()> {
        let _first = DeviceBuffer::<u8>::zeroed(context, 32 * MIB)?;
        let _second = DeviceBuffer::<u8>::zeroed(context, 1 << 50)?;
        Ok(())
    }
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    assert!(work(&context).is_err());
    assert_eq!(context.live_count(), 0);
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_guard_may_be_dropped_on_any_thread_whatever_is_current_there() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let other = Context::builder().dedicated().build()?;
    let before = in_hand(&context)?;
    std::thread::scope(|scope| {
        let make = || DeviceBuffer::<u8>::zeroed(&context, 32 * MIB);
        let (first, second) = (make().unwrap(), make().unwrap());
        // No context is current on the new thread.
        scope.spawn(move || drop(first));
        let other = &other;
        scope.spawn(move || {
            let _bound = other.make_current().unwrap();
            drop(second);
        });
    });
    assert_eq!(context.live_count(), 0);
    before.all_freed();
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
fn two_contexts_on_one_device_keep_apart() -> Result<()> {
    let turn = turn();
    let primary = context()?;
    let own = Context::builder().dedicated().build()?;
    let in_own = DeviceBuffer::from_slice(&own, &[2; 100])?;
    let before = in_hand(&primary)?;
    let in_primary = DeviceBuffer::from_slice(&primary, &vec![1; MIB])?;
    assert_eq!((primary.live_count(), own.live_count()), (1, 1));
    // What is freed in one is freed while the other one is current.
    let bound = own.make_current()?;
    drop(DeviceBuffer::<u8>::zeroed(&primary, 32 * MIB)?);
    drop(bound);
    assert_eq!(in_primary.to_vec()?, vec![1; MIB]);
    drop(in_primary);
    before.all_freed();
    let in_primary = DeviceBuffer::from_slice(&primary, &[1; 100])?;
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
    let before = in_hand(&context)?;
    let fail = |function: &str| {
        inject(Fault::nth_call_of(function, 1).returning(CUresult::LAUNCH_FAILED)).unwrap();
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
    before.all_freed();
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
    let fail = || inject(Fault::nth_call_of("cuMemFree_v2", 1).returning(CUresult::INVALID_VALUE));
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
    buffer: DeviceBuffer<u8>,
}

#[test]
fn what_is_forgotten_is_reported_reclaimed_and_inert() -> Result<()> {
    let turn = turn();
    // Keeps the driver's context alive, so that what was forgotten must be freed one by one.
    let others = context()?;
    let before = in_hand(&others)?;
    let (context, report) = reported("forgotten")?;
    let make = || DeviceBuffer::<u8>::zeroed(&context, 32 * MIB);
    mem::forget(make()?);
    let mut manually = ManuallyDrop::new(make()?);
    let boxed: &'static mut DeviceBuffer<u8> = Box::leak(Box::new(make()?));
    let node = Rc::new(Node {
        _next: RefCell::new(None),
        buffer: make()?,
    });
    *node._next.borrow_mut() = Some(node.clone());
    *KEPT.lock().unwrap() = Some(make()?.with_label("in a static"));
    mem::forget(Stream::new(&context)?);
    mem::forget(Event::new(&context)?);
    mem::forget(PinnedBuffer::<u8>::zeroed(&context, 4096)?);

    assert_eq!(context.totals(ResourceKind::Device).count, 5);
    assert_eq!(context.live_count(), 8);
    context.close()?;
    before.all_freed();
    let report = report();
    for words in [
        "leaked 32 MiB in 1 allocation of device memory, u8, \"in a static\"",
        "leaked 1 stream",
        "leaked 1 event",
        "of pinned host memory",
        "MiB in 6 allocations, 1 stream and 1 event",
        "tests/guards.rs",
    ] {
        assert!(report.contains(words), "{words}\n{report}");
    }

    let closed = |error: Error| matches!(error, Error::ContextClosed { .. });
    assert!(closed(boxed.to_vec().unwrap_err()));
    assert!(closed(node.buffer.to_vec().unwrap_err()), "in a circle");
    assert!(manually.copy_from_slice(&vec![0; 32 * MIB]).is_err());
    // SAFETY: dropped once, and not used afterwards.
    unsafe { ManuallyDrop::drop(&mut manually) };
    // The circle is broken after all.
    *node._next.borrow_mut() = None;
    drop(node);
    *KEPT.lock().unwrap() = None;
    before.all_freed();
    others.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn into_raw_and_from_raw_move_the_custody_and_keep_the_record() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let numbers = vec![1; MIB];
    let buffer = DeviceBuffer::from_slice(&context, &numbers)?.with_label("travels");
    let address = buffer.into_raw();
    let snapshot = context.snapshot();
    assert_eq!(snapshot.escaped.len(), 1);
    assert_eq!(snapshot.escaped[0].label.as_deref(), Some("travels"));
    // SAFETY: given away above.
    let buffer = unsafe { DeviceBuffer::<i32>::from_raw(&context, address, MIB) };
    let snapshot = context.snapshot();
    assert!(snapshot.escaped.is_empty());
    assert_eq!(snapshot.live[0].label.as_deref(), Some("travels"));
    assert_eq!(buffer.to_vec()?, numbers);
    drop(buffer);
    assert_eq!(context.live_count(), 0);
    before.all_freed();

    // What escaped is left alone by teardown where others keep the context alive.
    let others = support::context()?;
    let address = DeviceBuffer::from_slice(&context, &numbers)?.into_raw();
    let late = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    context.close()?;
    // SAFETY: given away above, in the same primary context, which `others` kept alive.
    let buffer = unsafe { DeviceBuffer::<i32>::from_raw(&others, address, MIB) };
    assert_eq!(buffer.to_vec()?, numbers);
    drop(buffer);
    before.all_freed();
    // Too late: teardown has freed it, and there is nothing to give.
    assert_eq!(late.into_raw(), 0);
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
    assert_eq!(empty.to_vec()?, [0_u32; 0]);
    let units = DeviceBuffer::from_slice(&context, &[(), (), ()])?;
    assert_eq!(units.to_vec()?.len(), 3);
    assert!(DeviceBuffer::<u8>::zeroed(&stream, 0)?.is_empty());
    let pool = DriverPool::new(&context)?;
    let in_pool = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 0)?;
    assert_eq!((in_pool.to_vec()?, pool.used_bytes()?), (vec![], 0));
    drop((in_pool, pool));
    assert!(PinnedBuffer::<u8>::zeroed(&context, 0)?.is_empty());
    let managed = ManagedBuffer::<u8>::zeroed(&context, 0)?;
    assert!(managed.as_slice(&context)?.is_empty());
    assert!(
        RegisteredVec::<u8>::new(&context, Vec::new())?
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
    // The third is eight bytes, for who multiplies without looking.
    let wraps = usize::MAX / 8 + 2;
    assert_eq!(wraps.wrapping_mul(8), 8);
    for len in [
        usize::MAX,
        usize::MAX / 2,
        wraps,
        isize::MAX as usize / 8 + 1,
    ] {
        assert!(overflow(
            DeviceBuffer::<u64>::zeroed(&context, len).unwrap_err()
        ));
        assert!(overflow(
            DeviceBuffer::<u64>::zeroed(&stream, len).unwrap_err()
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
        "DeviceBuffer::copy_from_slice: the source has 1 element, the buffer 3"
    );
    assert!(buffer.copy_to_slice(&mut [0; 4]).is_err());
    Ok(())
}

#[test]
fn a_stream_ordered_buffer_goes_with_its_stream_in_any_order() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 1000)?;
    buffer.copy_from_slice(&[7; 1000])?;
    drop(stream);
    // The stream lives on for the buffer that is freed on it.
    assert_eq!(buffer.to_vec()?, [7; 1000]);
    drop(buffer);
    assert_eq!(context.live_count(), 0);
    context.synchronize()?;
    let pool = DriverPool::new(&context)?;
    let stream = Stream::new(&context)?;
    let buffer = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000)?;
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
        second.close().unwrap();
        assert_eq!(on_first.to_vec().unwrap(), [1; 100]);
        assert!(on_second.to_vec().is_err());
        assert!(Context::new(2).is_err());
        return;
    }
    let variables = [("CUGUARD_DRIVER", "sim"), ("CUGUARD_SIM", "devices=2")];
    succeeded(&child(TEST, "devices", &variables));
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
