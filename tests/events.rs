//! Events: they happen when their stream gets there, and go when their owner goes.

use std::mem;
use std::time::{Duration, Instant};

use crate::support::gate::Gate;
use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::sim::{self, Fault};
use cuguard::{Context, Error, Event, ResourceKind, Result, Stream};

#[test]
fn an_event_happens_when_its_stream_gets_there() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    for event in [Event::new(&context)?, Event::without_timing(&context)?] {
        // One that was never recorded has happened.
        assert!(event.is_complete()?);
        event.synchronize()?;
        let gate = Gate::on(&context, &stream);
        event.record(&stream)?;
        assert!(!event.is_complete()?);
        let opener = gate.open_later();
        event.synchronize()?;
        assert!(gate.is_open() && event.is_complete()?);
        opener.join().unwrap();
    }
    Ok(())
}

#[test]
fn the_last_record_counts() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (idle, busy) = (Stream::new(&context)?, Stream::new(&context)?);
    let event = Event::new(&context)?;
    event.record(&idle)?;
    idle.synchronize()?;
    assert!(event.is_complete()?);
    let gate = Gate::on(&context, &busy);
    event.record(&busy)?;
    assert!(!event.is_complete()?);
    gate.open();
    event.synchronize()
}

#[test]
fn the_time_between_two_events_is_told() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let (begin, end) = (Event::new(&context)?, Event::new(&context)?);
    let clock = Instant::now();
    begin.record(&stream)?;
    begin.synchronize()?;
    let gate = Gate::on(&context, &stream);
    end.record(&stream)?;
    let opener = gate.open_later();
    end.synchronize()?;
    let elapsed = end.elapsed_since(&begin)?;
    opener.join().unwrap();
    assert!(elapsed >= Duration::from_millis(40), "{elapsed:?}");
    assert!(elapsed <= clock.elapsed(), "{elapsed:?}");
    // As with `Instant`.
    assert_eq!(begin.elapsed_since(&end)?, Duration::ZERO);
    Ok(())
}

#[test]
fn why_there_is_no_time_is_told() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let (begin, end) = (Event::new(&context)?, Event::new(&context)?);
    let untimed = Event::without_timing(&context)?;
    let reason = |result: Result<Duration>, code, words: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.code(), Some(code));
        assert!(error.to_string().contains(words), "{error}");
    };
    begin.record(&stream)?;
    reason(
        end.elapsed_since(&begin),
        CUresult::INVALID_HANDLE,
        "was never recorded",
    );
    untimed.record(&stream)?;
    stream.synchronize()?;
    reason(
        untimed.elapsed_since(&begin),
        CUresult::INVALID_HANDLE,
        "created without timing",
    );
    let gate = Gate::on(&context, &stream);
    end.record(&stream)?;
    reason(
        end.elapsed_since(&begin),
        CUresult::NOT_READY,
        "is not complete",
    );
    gate.open();
    stream.synchronize()?;
    end.elapsed_since(&begin)?;
    Ok(())
}

#[test]
fn an_event_goes_with_its_guard_wherever_that_is_dropped() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let other = Context::builder().dedicated().build()?;
    let before = in_hand(&context)?;
    std::thread::scope(|scope| {
        let (first, second) = (Event::new(&context).unwrap(), Event::new(&context).unwrap());
        scope.spawn(move || drop(first));
        let other = &other;
        scope.spawn(move || {
            let _bound = other.make_current().unwrap();
            drop(second);
        });
    });
    Event::new(&context)?.close()?;
    assert_eq!(context.live_count(), 0);
    before.all_freed();
    mem::forget(Event::new(&context)?.with_label("lost"));
    let leak = &context.snapshot().live[0];
    assert_eq!(
        (leak.kind, leak.label.as_deref()),
        (ResourceKind::Event, Some("lost"))
    );
    assert!(leak.origin.site.unwrap().file.ends_with("tests/events.rs"));
    other.close()?;
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn an_event_that_outlives_its_context_is_inert() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (event, other) = (Event::new(&context)?, Event::new(&context)?);
    context.close()?;
    let closed = |result: Result<()>| matches!(result, Err(Error::ContextClosed { .. }));
    assert!(closed(event.synchronize()));
    assert!(closed(event.is_complete().map(drop)));
    assert!(closed(event.elapsed_since(&other).map(drop)));
    assert!(closed(event.close()));
    drop(other);
    Ok(())
}

#[test]
fn events_of_two_contexts_do_not_mix() -> Result<()> {
    let _turn = turn();
    let (one, two) = (context()?, Context::builder().dedicated().build()?);
    let (here, there) = (Event::new(&one)?, Event::new(&two)?);
    let result = here.elapsed_since(&there);
    assert!(
        matches!(result, Err(Error::WrongContext { .. })),
        "{result:?}"
    );
    Ok(())
}

#[test]
fn what_the_driver_refuses_is_told() -> Result<()> {
    let _turn = turn();
    if !simulated("what_the_driver_refuses_is_told") {
        return Ok(());
    }
    let context = context()?;
    sim::inject(Fault::nth_call_of("cuEventCreate", 1)).unwrap();
    let error = Event::new(&context).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Event::new on device 0: cuEventCreate"),
        "{error}"
    );
    sim::inject(Fault::nth_call_of("cuEventDestroy_v2", 1).sticky()).unwrap();
    assert!(Event::new(&context)?.close().is_err());
    drop(Event::new(&context)?);
    sim::clear_faults();
    let refused = context.snapshot().failed_frees;
    assert!(
        refused.iter().all(|free| free.function == "cuEventDestroy"),
        "{refused:?}"
    );
    assert!(!refused.is_empty());
    Ok(())
}
