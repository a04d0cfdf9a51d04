//! Events: marks on streams that can be waited for and timed.

use std::time::Instant;

use cuguard_sys::{CUevent, CUresult, CUstream, flags};

use super::{check, put, valid};
use crate::event_table::Event;
use crate::handle::{self, Id, Kind};
use crate::lock::lock;
use crate::machine::{Answer, Machine};
use crate::queue::Mark;
use crate::wait::wait_for_work;

/// The event behind a handle. One whose context is gone says so; one that was destroyed is
/// undefined.
fn known(machine: &Machine, event: CUevent) -> Result<Id, CUresult> {
    check(!event.is_null(), CUresult::INVALID_HANDLE)?;
    let id = handle::decode(Kind::Event, event.0);
    let id = id.filter(|id| machine.numbers.was_given(Kind::Event, *id));
    match id.map(|id| (id, machine.events.get(id))) {
        Some((id, Some(event))) => machine.check_alive(event.context).map(|()| id),
        Some((id, None)) if machine.events.is_orphan(id) => Err(CUresult::CONTEXT_IS_DESTROYED),
        _ => Err(machine.dead_handle(Kind::Event, event.0, CUresult::INVALID_HANDLE)),
    }
}

/// The last record of an event.
fn record_of(machine: &Machine, id: Id) -> Option<&(Mark, Option<Instant>)> {
    machine.events.get(id)?.record.as_ref()
}

pub(crate) unsafe fn cuEventCreate(out: *mut CUevent, flags: u32) -> Answer {
    const KNOWN: u32 =
        flags::EVENT_BLOCKING_SYNC | flags::EVENT_DISABLE_TIMING | flags::EVENT_INTERPROCESS;
    valid(!out.is_null() && flags & !KNOWN == 0)?;
    // Events between processes cannot be timed.
    let between = flags & flags::EVENT_INTERPROCESS != 0;
    valid(!between || flags & flags::EVENT_DISABLE_TIMING != 0)?;
    let mut machine = lock();
    let context = machine.current()?;
    let id = machine.numbers.next(Kind::Event);
    let event = Event {
        context,
        flags,
        record: None,
    };
    machine.events.insert(id, event);
    if let Some(context) = machine.contexts.get_mut(&context) {
        context.events.insert(id);
    }
    // SAFETY: as the caller promises.
    unsafe { put(out, CUevent(handle::encode(Kind::Event, id))) }
}

pub(crate) unsafe fn cuEventRecord(event: CUevent, stream: CUstream) -> Answer {
    let mut machine = lock();
    let id = known(&machine, event)?;
    let stream = machine.stream(stream)?;
    let context = machine.events.get(id).map(|event| event.context);
    let same = Some(machine.streams[&stream].context) == context;
    check(same, CUresult::INVALID_HANDLE)?;
    let number = machine.last_work(stream) + 1;
    let note = move |machine: &mut Machine| {
        // The event may have been recorded again, or destroyed, since.
        if let Some(event) = machine.events.get_mut(id)
            && let Some((mark, time)) = &mut event.record
            && (mark.stream, mark.number) == (stream, number)
        {
            *time = Some(Instant::now());
        }
    };
    // Set before the work is handed over: that may be done at once.
    let mark = machine.mark(stream, number);
    let event = machine.events.get_mut(id);
    let before = event.and_then(|event| event.record.replace((mark, None)));
    let submitted = machine.submit(stream, None, None, Some(Box::new(note)));
    if submitted.is_err()
        && let Some(event) = machine.events.get_mut(id)
    {
        event.record = before;
    }
    // Not for memory safety: with another number the event never happens.
    debug_assert!(submitted.is_err() || submitted == Ok(number));
    submitted.map(drop)
}

pub(crate) unsafe fn cuEventRecordWithFlags(
    event: CUevent,
    stream: CUstream,
    flags: u32,
) -> Answer {
    // The flag 1 is for captured graphs and means nothing outside of one.
    valid(flags <= 1)?;
    // SAFETY: as the caller promises.
    unsafe { cuEventRecord(event, stream) }
}

/// Whether the last record of an event has happened; one that was never recorded has.
fn has_happened(machine: &Machine, id: Id) -> bool {
    record_of(machine, id).is_none_or(|(mark, _)| machine.is_done(mark.stream, mark.number))
}

pub(crate) unsafe fn cuEventQuery(event: CUevent) -> Answer {
    let machine = lock();
    machine.check_current_if_any()?;
    let id = known(&machine, event)?;
    check(has_happened(&machine, id), CUresult::NOT_READY)
}

pub(crate) unsafe fn cuEventSynchronize(event: CUevent) -> Answer {
    let machine = lock();
    machine.check_current_if_any()?;
    let id = known(&machine, event)?;
    if let Some((stream, number)) = record_of(&machine, id).map(|(m, _)| (m.stream, m.number)) {
        drop(wait_for_work(machine, stream, number));
    }
    Ok(())
}

/// Work that waits for the event goes on waiting for it.
pub(crate) unsafe fn cuEventDestroy_v2(event: CUevent) -> Answer {
    let mut machine = lock();
    machine.check_current_if_any()?;
    let id = known(&machine, event)?;
    if let Some(event) = machine.events.remove(id)
        && let Some(context) = machine.contexts.get_mut(&event.context)
    {
        context.events.remove(&id);
    }
    Ok(())
}

pub(crate) unsafe fn cuEventElapsedTime(
    milliseconds: *mut f32,
    start: CUevent,
    end: CUevent,
) -> Answer {
    let machine = lock();
    machine.check_current_if_any()?;
    let times = [known(&machine, start)?, known(&machine, end)?].map(|id| {
        let event = machine.events.get(id);
        let event = event.filter(|event| event.flags & flags::EVENT_DISABLE_TIMING == 0);
        let record = event.and_then(|event| event.record.as_ref());
        record
            .map(|(_, time)| *time)
            .ok_or(CUresult::INVALID_HANDLE)
    });
    let (start, end) = (times[0]?, times[1]?);
    check(!milliseconds.is_null(), CUresult::INVALID_HANDLE)?;
    let (Some(start), Some(end)) = (start, end) else {
        return Err(CUresult::NOT_READY);
    };
    let elapsed = if end >= start {
        (end - start).as_secs_f32() * 1e3
    } else {
        (start - end).as_secs_f32() * -1e3
    };
    // SAFETY: as the caller promises.
    unsafe { put(milliseconds, elapsed) }
}

pub(crate) unsafe fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32) -> Answer {
    let mut machine = lock();
    let stream = machine.stream(stream)?;
    let id = known(&machine, event)?;
    valid(flags <= 1)?;
    if let Some(mark) = record_of(&machine, id).map(|(mark, _)| mark.clone()) {
        machine.submit(stream, Some(&mark), None, None)?;
    }
    Ok(())
}
