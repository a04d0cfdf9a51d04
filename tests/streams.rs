//! Streams: they have the flags and priorities of their builder, and are destroyed on drop.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use crate::support::gate::Gate;
use crate::support::*;
use cuguard::driver::api;
use cuguard::sim::{self, Fault};
use cuguard::{Context, DeviceBuffer, Error, Event, PinnedBuffer, ResourceKind, Result, Stream};
use cust::stream::StreamFlags;

const MIB: usize = 1 << 20;

/// Flags and priority of a stream, by the driver.
fn flags_and_priority(context: &Context, stream: &Stream) -> (u32, i32) {
    let _bound = context.make_current().unwrap();
    let (mut flags, mut priority) = (99, 99);
    // SAFETY: the stream is alive, and the variables can be written to.
    unsafe {
        assert!(api::cuStreamGetFlags(stream.as_raw(), &mut flags).is_success());
        assert!(api::cuStreamGetPriority(stream.as_raw(), &mut priority).is_success());
    }
    (flags, priority)
}

#[test]
fn a_stream_is_non_blocking_unless_it_is_asked_to_block() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    assert_eq!(flags_and_priority(&context, &stream), (1, 0));
    let blocking = Stream::builder(&context).blocking().build()?;
    assert_eq!(flags_and_priority(&context, &blocking), (0, 0));
    Ok(())
}

#[test]
fn priorities_are_honoured() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let priorities = Stream::priorities(&context)?;
    assert!(priorities.start() < priorities.end(), "{priorities:?}");
    for priority in priorities.clone() {
        let stream = Stream::builder(&context).priority(priority).build()?;
        assert_eq!(flags_and_priority(&context, &stream), (1, priority));
        assert_eq!(stream.priority()?, priority);
    }
    let beyond = Stream::builder(&context)
        .blocking()
        .priority(-1000)
        .build()?;
    assert_eq!(
        flags_and_priority(&context, &beyond),
        (0, *priorities.start())
    );
    Ok(())
}

/// Fills a buffer on a stream while a gate in the default stream is closed. Returns whether the stream did it within the
/// limit.
fn passes_the_default_stream(context: &Context, stream: &Stream, limit: Duration) -> Result<bool> {
    let mut buffer = DeviceBuffer::<u8>::zeroed(context, 100)?;
    let gate = Gate::on_default_stream(context);
    let passed = stream.scope(|s| {
        s.fill(&mut s.bind_mut(&mut buffer)?, 7)?;
        let begin = Instant::now();
        while !stream.is_idle()? && begin.elapsed() < limit {
            std::thread::yield_now();
        }
        let passed = stream.is_idle()?;
        gate.open();
        Ok(passed)
    })?;
    assert_eq!(buffer.to_vec()?, [7; 100]);
    Ok(passed)
}

#[test]
fn a_non_blocking_stream_does_not_wait_for_the_default_stream() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let long = Duration::from_secs(10);
    assert!(passes_the_default_stream(&context, &stream, long)?);
    let blocking = Stream::builder(&context).blocking().build()?;
    let a_while = Duration::from_millis(200);
    assert!(!passes_the_default_stream(&context, &blocking, a_while)?);
    Ok(())
}

#[test]
fn a_stream_tells_whether_it_is_idle_and_can_be_waited_for() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    assert!(stream.is_idle()?);
    let gate = Gate::on(&context, &stream);
    assert!(!stream.is_idle()?);
    let opener = gate.open_later();
    stream.synchronize()?;
    assert!(gate.is_open() && stream.is_idle()?);
    opener.join().unwrap();
    Ok(())
}

#[test]
fn a_stream_waits_for_events_and_for_other_streams() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (first, second, third) = (
        Stream::new(&context)?,
        Stream::new(&context)?,
        Stream::new(&context)?,
    );
    let event = Event::new(&context)?;
    let gate = Gate::on(&context, &first);
    event.record(&first)?;
    second.wait_for(&event)?;
    // The event may go: who waits for it goes on waiting.
    event.close()?;
    third.order_after(&second)?;
    third.order_after(&third)?;
    assert!(!second.is_idle()? && !third.is_idle()?);
    let opener = gate.open_later();
    third.synchronize()?;
    assert!(gate.is_open() && second.is_idle()?);
    opener.join().unwrap();
    Ok(())
}

#[test]
fn ordering_leaves_no_event_behind_not_even_when_it_fails() -> Result<()> {
    let _turn = turn();
    if !simulated("ordering_leaves_no_event_behind") {
        return Ok(());
    }
    let context = context()?;
    let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
    let before = sim::counters().events;
    second.order_after(&first)?;
    for function in ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"] {
        sim::inject(Fault::nth_call_of(function, 1)).unwrap();
        let error = second.order_after(&first).unwrap_err();
        assert!(error.to_string().contains(function), "{error}");
    }
    sim::clear_faults();
    assert_eq!(sim::counters().events, before);
    Ok(())
}

#[test]
fn a_stream_goes_with_its_guard_wherever_that_is_dropped() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let other = Context::builder().dedicated().build()?;
    let before = in_hand(&context)?;
    let streams = || Stream::new(&context).unwrap();
    std::thread::scope(|scope| {
        let (first, second) = (streams(), streams());
        scope.spawn(move || drop(first));
        let other = &other;
        scope.spawn(move || {
            let _bound = other.make_current().unwrap();
            drop(second);
        });
    });
    streams().close()?;
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _stream = streams();
        resume_unwind(Box::new("on purpose"));
    }));
    assert!(unwound.is_err());
    assert_eq!(context.live_count(), 0);
    assert_eq!(context.totals(ResourceKind::Stream).count, 0);
    before.all_freed();
    other.close()?;
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_stream_outlives_its_guard_for_the_buffers_that_are_freed_on_it() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let stream = Stream::new(&context)?;
    let buffer = DeviceBuffer::<u32>::zeroed(&stream, MIB)?;
    stream.close()?;
    assert_eq!(context.totals(ResourceKind::Stream).count, 1);
    assert_eq!(buffer.to_vec()?, vec![0; MIB]);
    buffer.close()?;
    assert_eq!(context.live_count(), 0);
    context.synchronize()?;
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_stream_is_destroyed_with_work_left_which_is_done_all_the_same() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let event = Event::new(&context)?;
    let gate = Gate::on(&context, &stream);
    event.record(&stream)?;
    drop(stream);
    assert_eq!(context.totals(ResourceKind::Stream).count, 0);
    assert!(!event.is_complete()?);
    gate.open();
    event.synchronize()?;
    Ok(())
}

#[test]
fn a_stream_that_is_used_on_others_frees_its_buffer_after_them() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let (home, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let buffer = DeviceBuffer::<u32>::zeroed(&home, MIB)?;
    home.synchronize()?;
    let gate = Gate::on(&context, &other);
    buffer.record_stream(&other)?;
    drop(buffer);
    // Freed by the order of streams, not by waiting here.
    assert!(!gate.is_open() && !home.is_idle()?);
    gate.open();
    home.synchronize()?;
    drop((home, other));
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_stream_that_outlives_the_close_of_its_context_is_inert() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let event = Event::new(&context)?;
    context.close()?;
    turn.all_came_back();
    let closed = |result: Result<()>| matches!(result, Err(Error::ContextClosed { .. }));
    assert!(closed(stream.synchronize()));
    assert!(closed(stream.is_idle().map(drop)));
    assert!(closed(stream.priority().map(drop)));
    assert!(closed(stream.wait_for(&event)));
    assert!(closed(stream.order_after(&other)));
    assert!(closed(event.record(&stream)));
    // `cust` would use a handle that is no longer one.
    let to_cust = catch_unwind(AssertUnwindSafe(|| stream.get_flags()));
    let message = to_cust.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("the context was closed"), "{message}");
    assert!(closed(stream.close()));
    Ok(())
}

#[test]
fn a_forgotten_stream_is_known_with_its_name_and_reclaimed() -> Result<()> {
    let turn = turn();
    let context = context()?;
    mem::forget(Stream::new(&context)?.with_label("lost"));
    let snapshot = context.snapshot();
    let [group] = &snapshot.live[..] else {
        panic!("{snapshot:?}");
    };
    assert_eq!(
        (group.kind, group.label.as_deref()),
        (ResourceKind::Stream, Some("lost"))
    );
    let site = group.origin.site.unwrap();
    assert!(site.file.ends_with("tests/streams.rs"), "{site}");
    let simulated = simulated("the count of streams in a_forgotten_stream");
    let before = simulated.then(|| sim::counters().streams);
    context.close()?;
    assert_eq!(simulated.then(|| sim::counters().streams + 1), before);
    turn.all_came_back();
    Ok(())
}

#[test]
fn what_the_driver_refuses_is_told() -> Result<()> {
    let _turn = turn();
    if !simulated("what_the_driver_refuses_is_told") {
        return Ok(());
    }
    let context = context()?;
    sim::inject(Fault::nth_call_of("cuStreamCreateWithPriority", 1)).unwrap();
    let error = Stream::new(&context).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Stream::new on device 0: cuStreamCreateWithPriority returned CUDA_ERROR_UNKNOWN (999): \
         unknown error"
    );
    assert_eq!(context.live_count(), 0);

    sim::inject(Fault::nth_call_of("cuStreamDestroy_v2", 1).sticky()).unwrap();
    assert!(Stream::new(&context)?.close().is_err());
    drop(Stream::new(&context)?);
    sim::clear_faults();
    let refused = context.snapshot().failed_frees;
    assert!(!refused.is_empty());
    assert!(
        refused
            .iter()
            .all(|free| free.function == "cuStreamDestroy"),
        "{refused:?}"
    );
    Ok(())
}

#[test]
fn streams_of_two_contexts_do_not_mix() -> Result<()> {
    let _turn = turn();
    let (one, two) = (context()?, Context::builder().dedicated().build()?);
    let (here, there) = (Stream::new(&one)?, Stream::new(&two)?);
    let event = Event::new(&two)?;
    let wrong = |result: Result<()>| matches!(result, Err(Error::WrongContext { .. }));
    assert!(wrong(here.order_after(&there)));
    assert!(wrong(here.wait_for(&event)));
    assert!(wrong(event.record(&here)));
    // Two owners of one primary context are two contexts, each with its own end.
    let twin = context()?;
    assert!(wrong(here.order_after(&Stream::new(&twin)?)));
    // Also where there is nothing to put in order.
    let plain = DeviceBuffer::<u8>::zeroed(&one, 10)?;
    assert!(wrong(plain.record_stream(&there)));
    plain.record_stream(&here)?;
    let ordered = DeviceBuffer::<u8>::zeroed(&here, 10)?;
    assert!(wrong(ordered.record_stream(&there)));
    one.close()?;
    let result = plain.record_stream(&here);
    assert!(
        matches!(result, Err(Error::ContextClosed { .. })),
        "{result:?}"
    );
    Ok(())
}

#[test]
fn custs_own_functions_go_on_working() -> Result<(), Box<dyn std::error::Error>> {
    use cust::memory::AsyncCopyDestination;

    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let bound = context.make_current()?;
    assert_eq!(stream.get_flags()?, StreamFlags::NON_BLOCKING);
    let source = PinnedBuffer::from_slice(&context, &[1_u32, 2, 3])?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&context, 3)?;
    let (tell, told) = std::sync::mpsc::channel();
    // SAFETY: the stream is waited for before anything goes.
    unsafe { buffer.async_copy_from(&source[..], &stream)? };
    stream.add_callback(Box::new(move || tell.send(()).unwrap()))?;
    cust::stream::Stream::synchronize(&stream)?;
    told.recv()?;
    drop(bound);
    assert_eq!(buffer.to_vec()?, [1, 2, 3]);
    Ok(())
}

/// `cust` fills on the default stream and does not wait, and a non-blocking stream does not wait for
/// the default stream either. What is freed is not written to any more, all the same.
#[test]
fn a_stream_ordered_buffer_that_cust_fills_is_freed_after_that() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let home = Stream::new(&context)?;
    for close in [false, true] {
        let mut buffer = DeviceBuffer::<u8>::zeroed(&home, 4 * MIB)?;
        home.synchronize()?;
        let bound = context.make_current()?;
        buffer.set_8(7)?;
        drop(bound);
        // Stands for the fill, which may have yet to come when the buffer goes. (The simulated GPU
        // fills at once.)
        let gate = Gate::on_default_stream(&context);
        if close {
            buffer.close()?;
        } else {
            drop(buffer);
        }
        // Freed by the order of streams, not by waiting here.
        assert!(!gate.is_open() && !home.is_idle()?);
        gate.open();
        home.synchronize()?;
    }
    // What was filled is seen.
    let mut buffer = DeviceBuffer::<u8>::zeroed(&home, 1000)?;
    let bound = context.make_current()?;
    buffer.set_8(7)?;
    drop(bound);
    let gate = Gate::on_default_stream(&context);
    let opener = gate.open_later();
    assert_eq!(buffer.to_vec()?, [7; 1000]);
    assert!(gate.is_open());
    opener.join().unwrap();
    drop(buffer);
    home.synchronize()?;
    drop(home);
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// As above, where the order cannot be had: it is not freed then, and the report has it.
#[test]
fn a_buffer_that_cannot_be_put_in_order_is_not_freed() -> Result<()> {
    let _turn = turn();
    if !simulated("a_buffer_that_cannot_be_put_in_order_is_not_freed") {
        return Ok(());
    }
    let context = context()?;
    let home = Stream::new(&context)?;
    let buffer = DeviceBuffer::<u8>::zeroed(&home, 1000)?;
    // Lent to `cust`.
    let address = buffer.as_device_ptr();
    assert!(!address.is_null());
    sim::inject(Fault::nth_call_of("cuEventRecord", 1).sticky()).unwrap();
    let frees = || sim::counters().calls_of("cuMemFreeAsync");
    let before = frees();
    drop(buffer);
    sim::clear_faults();
    assert_eq!(frees(), before);
    let failed = context.snapshot().failed_frees;
    assert_eq!((failed.len(), failed[0].function), (1, "cuEventRecord"));
    Ok(())
}

/// A context that cannot be made current is not a context for `cust` to work in.
#[test]
fn cust_gets_nothing_of_a_context_that_cannot_be_made_current() -> Result<()> {
    let _turn = turn();
    if !simulated("cust_gets_nothing_of_a_context_that_cannot_be_made_current") {
        return Ok(());
    }
    let context = context()?;
    let home = Stream::new(&context)?;
    let buffer = DeviceBuffer::<u8>::zeroed(&home, 1000)?;
    sim::inject(Fault::nth_call_of("cuCtxPushCurrent_v2", 1)).unwrap();
    let seen = catch_unwind(AssertUnwindSafe(|| buffer.as_device_ptr()));
    sim::clear_faults();
    let message = seen.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("cuCtxPushCurrent"), "{message}");
    Ok(())
}
