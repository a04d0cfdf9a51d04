//! Events: positions on streams that can be waited for and timed.

use std::time::Instant;

use cuguard_sys::{CUevent, CUresult, CUstream, event_record_flags, event_wait_flags, flags};

use super::write_out;
use crate::graph::NodeParams;
use crate::handle::{self, Id, Kind};
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, lock, wait_for_work};
use crate::streams::{Event, OnComplete, StreamPosition};

/// The id of a live event. An event that was destroyed with its context is an error, one that the
/// program destroyed is misuse.
pub(super) fn find(state: &DriverState, event: CUevent) -> DriverResult<Id> {
    let events = &state.events;
    let is_known = |id| events.live.contains_key(&id) || events.is_orphan(id);
    let id = state.live_id(Kind::Event, event.0, CUresult::INVALID_HANDLE, is_known)?;
    let event = events.live.get(&id).ok_or(CUresult::CONTEXT_IS_DESTROYED)?;
    state.check_alive(event.context)?;
    Ok(id)
}

/// The position of an event's last record.
pub(super) fn position(state: &DriverState, id: Id) -> Option<&StreamPosition> {
    let record = state.events.live.get(&id)?.record.as_ref();
    record.map(|(position, _)| position)
}

pub unsafe fn cuEventCreate(out: *mut CUevent, flags: u32) -> DriverResult {
    const KNOWN: u32 =
        flags::EVENT_BLOCKING_SYNC | flags::EVENT_DISABLE_TIMING | flags::EVENT_INTERPROCESS;
    valid(!out.is_null() && flags & !KNOWN == 0)?;
    // Inter-process events have no timing.
    let interprocess = flags & flags::EVENT_INTERPROCESS != 0;
    valid(!interprocess || flags & flags::EVENT_DISABLE_TIMING != 0)?;
    let mut state = lock();
    let context = state.current()?;
    let id = state.ids.next(Kind::Event);
    let event = Event {
        context,
        flags,
        record: None,
    };
    state.events.live.insert(id, event);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUevent(handle::encode(Kind::Event, id))) }
}

/// Records an event on a stream.
pub(super) fn record(state: &mut DriverState, id: Id, stream: Id) -> DriverResult {
    state.join_implicit_dependencies(stream);
    state.captures.events.remove(&id);
    let number = state.last_work(stream) + 1;
    let record = (state.position(stream, number), None);
    // Before the work is submitted, since it may complete at once.
    let event = state.events.live.get_mut(&id);
    let before = event.and_then(|event| event.record.replace(record));
    let submitted = state.submit(stream, None, None, Some(OnComplete::Record(id)));
    if submitted.is_err()
        && let Some(event) = state.events.live.get_mut(&id)
    {
        event.record = before;
    }
    // Not a matter of memory safety: with another number the event never completes.
    debug_assert!(submitted.is_err() || submitted == Ok(number));
    submitted.map(drop)
}

pub unsafe fn cuEventRecord(event: CUevent, stream: CUstream) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { cuEventRecordWithFlags(event, stream, event_record_flags::DEFAULT) }
}

/// On a capturing stream, an external record becomes a node. Any other marks a position of the capture,
/// for which other streams can wait.
pub unsafe fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: u32) -> DriverResult {
    valid(flags <= event_record_flags::EXTERNAL)?;
    let mut state = lock();
    let id = find(&state, event)?;
    let stream = state.stream(stream)?;
    let context = state.events.live.get(&id).map(|event| event.context);
    let same = Some(state.streams[&stream].context) == context;
    check(same, CUresult::INVALID_HANDLE)?;
    state.check_implicit(stream)?;
    match state.is_capturing(stream) {
        true if flags == event_record_flags::EXTERNAL => {
            state.capture(stream, NodeParams::Record(id))
        }
        true => state.capture_record(id, stream),
        false => record(&mut state, id, stream),
    }
}

/// Fails if the last record of an event was captured, and `invalidate`s the capture.
fn check_not_captured(state: &mut DriverState, id: Id, invalidate: bool) -> DriverResult {
    let Some(position) = state.captures.events.get(&id) else {
        return Ok(());
    };
    let capture = state.captures.captures.get_mut(&position.capture);
    // An event of a capture that has ended stands for nothing.
    let capture = capture.ok_or(CUresult::INVALID_VALUE)?;
    capture.invalidated |= invalidate;
    Err(CUresult::CAPTURED_EVENT)
}

/// Fails if an event of a graph was destroyed.
pub(super) fn check_live(state: &DriverState, id: Id) -> DriverResult {
    find(state, CUevent(handle::encode(Kind::Event, id))).map(drop)
}

/// An event that was never recorded is complete.
pub unsafe fn cuEventQuery(event: CUevent) -> DriverResult {
    let mut state = lock();
    state.check_current_if_any()?;
    let id = find(&state, event)?;
    check_not_captured(&mut state, id, true)?;
    state.check_unsafe_call()?;
    let position = position(&state, id);
    let complete = position.is_none_or(|p| state.is_done(p.stream, p.number));
    check(complete, CUresult::NOT_READY)
}

pub unsafe fn cuEventSynchronize(event: CUevent) -> DriverResult {
    let mut state = lock();
    state.check_current_if_any()?;
    let id = find(&state, event)?;
    check_not_captured(&mut state, id, true)?;
    state.check_unsafe_call()?;
    let position = position(&state, id);
    if let Some((stream, number)) = position.map(|p| (p.stream, p.number)) {
        drop(wait_for_work(state, stream, number));
    }
    Ok(())
}

/// Work that waits for the event still does.
pub unsafe fn cuEventDestroy_v2(event: CUevent) -> DriverResult {
    let mut state = lock();
    state.check_current_if_any()?;
    let id = find(&state, event)?;
    state.events.live.remove(&id);
    state.captures.events.remove(&id);
    Ok(())
}

/// The time of an event's last record, `None` while it is not complete.
fn record_time(state: &DriverState, id: Id) -> DriverResult<Option<Instant>> {
    let event = state.events.live.get(&id);
    let event = event.filter(|event| event.flags & flags::EVENT_DISABLE_TIMING == 0);
    let record = event.and_then(|event| event.record.as_ref());
    let (_, time) = record.ok_or(CUresult::INVALID_HANDLE)?;
    Ok(*time)
}

pub unsafe fn cuEventElapsedTime(out: *mut f32, start: CUevent, end: CUevent) -> DriverResult {
    let mut state = lock();
    state.check_current_if_any()?;
    let (start, end) = (find(&state, start)?, find(&state, end)?);
    for event in [start, end] {
        check_not_captured(&mut state, event, false)?;
    }
    let (start, end) = (record_time(&state, start)?, record_time(&state, end)?);
    check(!out.is_null(), CUresult::INVALID_HANDLE)?;
    let (Some(start), Some(end)) = (start, end) else {
        return Err(CUresult::NOT_READY);
    };
    let milliseconds = |from, to: Instant| to.saturating_duration_since(from).as_secs_f32() * 1e3;
    let elapsed = milliseconds(start, end) - milliseconds(end, start);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, elapsed) }
}

pub unsafe fn cuEventElapsedTime_v2(out: *mut f32, start: CUevent, end: CUevent) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { cuEventElapsedTime(out, start, end) }
}

pub unsafe fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32) -> DriverResult {
    let mut state = lock();
    let stream = state.stream(stream)?;
    let id = find(&state, event)?;
    valid(flags <= event_wait_flags::EXTERNAL)?;
    let capturing = state.is_capturing(stream);
    if capturing && flags == event_wait_flags::EXTERNAL {
        return state.capture(stream, NodeParams::Wait(id));
    }
    if let Some(position) = state.captures.events.get(&id).cloned() {
        return state.capture_wait(stream, &position);
    }
    state.check_implicit(stream)?;
    let Some(position) = position(&state, id).cloned() else {
        return Ok(());
    };
    if capturing {
        state.invalidate_capture(stream);
        return Err(CUresult::STREAM_CAPTURE_ISOLATION);
    }
    state.submit(stream, Some(&position), None, None).map(drop)
}
