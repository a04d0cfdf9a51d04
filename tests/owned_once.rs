//! A resource is freed once, by its owner; a free that the driver refuses is recorded and not repeated.

use crate::support::gate::Gate;
use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::report::Report;
use cuguard::sim::{self, Fault};
use cuguard::{Context, DeviceBuffer, Event, ResourceKind, Result, Stream};

/// Dropped on a thread on which the context is not current and cannot be made current: not freed, not deferred, and
/// recorded with the call that failed.
#[test]
fn a_drop_that_cannot_make_its_context_current_is_recorded() -> Result<()> {
    let _turn = turn();
    if !simulated("a_drop_that_cannot_make_its_context_current_is_recorded") {
        return Ok(());
    }
    let context = Context::builder().dedicated().build()?;
    let (event, stream) = (Event::new(&context)?, Stream::new(&context)?);
    let alive = sim::live_counters();
    let fault = Fault::nth_call_of("cuCtxPushCurrent_v2", 1).returning(CUresult::INVALID_VALUE);
    sim::inject(fault.sticky()).unwrap();
    drop((event, stream));
    sim::clear_faults();
    let after = sim::live_counters();
    assert_eq!(
        (after.events, after.streams),
        (alive.events, alive.streams),
        "neither may be destroyed without its context"
    );
    let snapshot = context.snapshot();
    assert!(snapshot.deferred.is_empty(), "{}", snapshot.display());
    let mut failed: Vec<_> = snapshot
        .failed_frees
        .iter()
        .map(|failed| (failed.allocated.kind, failed.function, failed.code))
        .collect();
    failed.sort();
    assert_eq!(
        failed,
        [
            (ResourceKind::Stream, "cuCtxPushCurrent", 1),
            (ResourceKind::Event, "cuCtxPushCurrent", 1)
        ]
    );
    Ok(())
}

fn failed_frees(context: &Context) -> u64 {
    let failed = context.snapshot().failed_frees;
    failed
        .iter()
        .map(|failed| failed.allocated.amount.count)
        .sum()
}

/// The driver refuses a free once. A second attempt would succeed, and could free another owner's memory: the
/// first one may have freed the block, and its address may be allocated again.
#[test]
fn a_refused_free_is_not_repeated() -> Result<()> {
    let _turn = turn();
    if !simulated("a_refused_free_is_not_repeated") {
        return Ok(());
    }
    let context = Context::builder().dedicated().build()?;
    let stream = Stream::new(&context)?;
    // The last code means "inside a host function", and this is none: such a free is not deferred.
    let codes = [CUresult::INVALID_VALUE, CUresult::NOT_PERMITTED];
    for (current, code) in
        [(false, 0), (false, 1), (true, 0), (true, 1)].map(|(c, n)| (c, codes[n]))
    {
        for function in ["cuMemFree_v2", "cuMemFreeAsync"] {
            let _current = current.then(|| context.make_current()).transpose()?;
            let buffer = match function {
                "cuMemFree_v2" => DeviceBuffer::<u8>::zeroed(&context, 1000)?,
                _ => DeviceBuffer::zeroed(&stream, 1000)?,
            };
            let before = failed_frees(&context);
            let fault = Fault::nth_call_of(function, 1).returning(code);
            let injected = sim::inject(fault).unwrap();
            drop(buffer);
            assert_eq!(injected.fired(), 1);
            sim::clear_faults();
            let after = failed_frees(&context);
            assert_eq!(after, before + 1, "{function}, {code}, current: {current}");
        }
    }
    Ok(())
}

/// `cust` has enqueued work on the default stream, and the buffer is dropped in a host function: the deferred free
/// still waits for that work. (The simulated GPU stops the process at a write to freed memory.)
#[test]
fn a_deferred_free_waits_for_work_of_cust() -> Result<()> {
    let turn = turn();
    // A real driver runs host functions on one thread: the gate would hold up the other one.
    if !simulated("a_deferred_free_waits_for_work_of_cust") {
        return Ok(());
    }
    let context = Context::new(0)?;
    let (home, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut buffer = DeviceBuffer::<u8>::zeroed(&home, 1 << 20)?;
    home.synchronize()?;
    {
        let _current = context.make_current()?;
        buffer.set_8(7)?;
    }
    // Stands for the fill, which may not be complete when the buffer is dropped.
    let gate = Gate::on_default_stream(&context);
    {
        let _current = context.make_current()?;
        other.add_callback(Box::new(move || drop(buffer))).unwrap();
    }
    other.synchronize()?;
    // Frees what was deferred: on the home stream, behind the work of the default stream.
    let _ = context.memory()?;
    assert_eq!(context.totals(ResourceKind::StreamOrdered).count, 0);
    let free_is_enqueued = !home.is_idle()?;
    gate.open();
    context.synchronize()?;
    assert!(
        free_is_enqueued,
        "the free did not wait for the default stream"
    );
    drop((home, other));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// Only memory that `cust` saw is ordered after the default stream, before it is copied and before it is freed: an event
/// and a wait that all other memory does without.
#[test]
fn memory_that_cust_never_saw_waits_for_no_event() -> Result<()> {
    let _turn = turn();
    if !simulated("memory_that_cust_never_saw_waits_for_no_event") {
        return Ok(());
    }
    let context = Context::new(0)?;
    let stream = Stream::new(&context)?;
    let waits = |seen_by_cust: bool, closed: bool| -> Result<(u64, u64)> {
        let buffer = DeviceBuffer::<u8>::zeroed(&stream, 100)?;
        if seen_by_cust {
            assert_eq!(std::ops::Deref::deref(&buffer).len(), 100);
        }
        let waits = || sim::counters().calls_of("cuStreamWaitEvent");
        let before = waits();
        assert_eq!(buffer.to_vec()?, [0; 100]);
        let copied = waits();
        match closed {
            true => buffer.close()?,
            false => drop(buffer),
        }
        Ok((copied - before, waits() - copied))
    };
    for closed in [false, true] {
        assert_eq!(waits(false, closed)?, (0, 0), "closed: {closed}");
        assert_eq!(waits(true, closed)?, (1, 1), "closed: {closed}");
    }
    Ok(())
}

/// The error of a free that failed has the size of memory, and none for resources without one.
#[test]
fn a_failed_close_names_the_size_of_memory() -> Result<()> {
    let _turn = turn();
    if !simulated("a_failed_close_names_the_size_of_memory") {
        return Ok(());
    }
    let context = Context::new(0)?;
    let buffer = DeviceBuffer::<u8>::zeroed(&context, 3 << 20)?;
    let event = Event::new(&context)?;
    sim::inject(Fault::nth_call_of("cuMemFree_v2", 1)).unwrap();
    sim::inject(Fault::nth_call_of("cuEventDestroy_v2", 1)).unwrap();
    let errors = [buffer.close().unwrap_err(), event.close().unwrap_err()];
    sim::clear_faults();
    assert!(errors[0].to_string().contains("3 MiB"), "{}", errors[0]);
    assert!(!errors[1].to_string().contains(" B"), "{}", errors[1]);
    Ok(())
}
