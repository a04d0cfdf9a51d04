//! Events: marks on streams that can be waited for and timed.

use std::time::Instant;

use cuguard_sys::{CUevent, CUresult, CUstream, flags};

use super::{check, put, valid};
use crate::handle::{self, Kind};
use crate::machine::{Answer, Event, Machine, lock, wait_until};

/// The event behind a handle. One whose context is gone says so; one that was destroyed is
/// undefined.
fn known(machine: &Machine, event: CUevent) -> Result<u32, CUresult> {
    check(!event.is_null(), CUresult::INVALID_HANDLE)?;
    let id = handle::decode(Kind::Event, event.0).filter(|id| machine.events.contains_key(id));
    let Some(id) = id else {
        return Err(machine.dead_handle(Kind::Event, event.0, CUresult::INVALID_HANDLE));
    };
    machine.check_alive(machine.events[&id].context)?;
    Ok(id)
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
    let id = machine.new_id();
    let event = Event {
        context,
        flags,
        record: None,
    };
    machine.events.insert(id, event);
    // SAFETY: as the caller promises.
    unsafe { put(out, CUevent(handle::encode(Kind::Event, id))) }
}

pub(crate) unsafe fn cuEventRecord(event: CUevent, stream: CUstream) -> Answer {
    let mut machine = lock();
    let id = known(&machine, event)?;
    let stream = machine.stream(stream)?;
    let same = machine.streams[&stream].context == machine.events[&id].context;
    check(same, CUresult::INVALID_HANDLE)?;
    let number = machine.last_work(stream) + 1;
    let note = move |machine: &mut Machine| {
        // The event may have been recorded again, or destroyed, since.
        if let Some(event) = machine.events.get_mut(&id)
            && let Some((on, work, time)) = &mut event.record
            && (*on, *work) == (stream, number)
        {
            *time = Some(Instant::now());
        }
    };
    let submitted = machine.submit(stream, Vec::new(), None, Some(Box::new(note)))?;
    debug_assert_eq!(submitted, number);
    if let Some(event) = machine.events.get_mut(&id) {
        event.record = Some((stream, number, None));
    }
    Ok(())
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
fn has_happened(machine: &Machine, id: u32) -> bool {
    let record = machine.events.get(&id).and_then(|event| event.record);
    record.is_none_or(|(stream, number, _)| machine.is_done(stream, number))
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
    if let Some((stream, number, _)) = machine.events[&id].record {
        let mut machine = wait_until(machine, |machine| machine.is_done(stream, number));
        machine.observe(stream, number);
    }
    Ok(())
}

/// Work that waits for the event goes on waiting for it.
pub(crate) unsafe fn cuEventDestroy_v2(event: CUevent) -> Answer {
    let mut machine = lock();
    machine.check_current_if_any()?;
    let id = known(&machine, event)?;
    machine.events.remove(&id);
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
        let event = &machine.events[&id];
        let timed = event.flags & flags::EVENT_DISABLE_TIMING == 0;
        let record = event
            .record
            .filter(|_| timed)
            .ok_or(CUresult::INVALID_HANDLE);
        record.map(|(_, _, time)| time)
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
    if let Some((on, number, _)) = machine.events[&id].record {
        machine.submit(stream, vec![(on, number)], None, None)?;
    }
    Ok(())
}
