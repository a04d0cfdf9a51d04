//! The recording of what the registry sees: every insert and every remove is an event.
//!
//! The hot paths test [`is_on`], which is one load; everything else here is out of line.

use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering};

use cuguard_recording::{
    Definitions, Event, Label, Options, Site, StackDefinition, StartError, What, record,
    record_freed, record_label,
};
use cuguard_sync::clock;

use crate::call_site;
use crate::caller;
use crate::failed_allocation::FailedAllocation;
use crate::kind::ResourceKind;
use crate::labels::{self, ActiveLabel};
use crate::names::NameId;
use crate::record::{Key, Record};
use crate::trace::Trace;

pub(crate) use cuguard_recording::is_on;

/// What the numbers in records mean.
struct Interned;

impl Definitions for Interned {
    fn kinds(&self) -> Vec<cuguard_recording::RecordedKind> {
        let kind = |kind: &ResourceKind| cuguard_recording::RecordedKind {
            name: kind.name().to_owned(),
            on_device: kind.is_device_memory(),
            is_memory: kind.is_memory(),
        };
        ResourceKind::ALL.iter().map(kind).collect()
    }

    fn stack(&self, id: u32) -> Option<StackDefinition> {
        let call_site = call_site::get(id)?;
        let site = |site: &Location<'_>| Site {
            file: site.file().to_owned(),
            line: site.line(),
            column: site.column(),
        };
        Some(StackDefinition {
            site: call_site.site.map(site),
            type_name: call_site.type_name,
            frames: &call_site.stack,
        })
    }

    fn name(&self, id: u32) -> Option<String> {
        caller::name_text(id)
    }
}

/// Starts a recording of everything that the registries of this process see from now on. What is alive already is not
/// in it.
///
/// # Errors
/// The file cannot be created, or the process records already.
///
/// ```
/// use cuguard_registry::start_recording;
///
/// let error = start_recording(&cuguard_recording::Options::new("/nowhere/run.cgr")).unwrap_err();
/// assert!(error.to_string().starts_with("cannot record into /nowhere/run.cgr: "));
/// ```
pub fn start_recording(options: &Options) -> Result<(), StartError> {
    cuguard_recording::start(options, &Interned)?;
    note_sampling();
    Ok(())
}

/// The largest number of any registry: each records at least one resource in so many, and some may record all.
static SAMPLE: AtomicU32 = AtomicU32::new(1);

/// A registry records one resource in `one_in`. The recording may begin later.
#[cold]
pub(crate) fn sampled(one_in: u32) {
    SAMPLE.fetch_max(one_in, Ordering::SeqCst);
    note_sampling();
}

fn note_sampling() {
    let one_in = SAMPLE.load(Ordering::SeqCst);
    if one_in > 1 {
        cuguard_recording::note_sampling(one_in);
    }
}

/// Ends the recording, because the process exits.
pub fn end_recording() {
    cuguard_recording::note_exit(caller::snapshot_nanoseconds());
}

/// Records that a context was created, or used for the first time. `context` is its number, from 1.
pub fn record_context_created(context: u32, device: u32) {
    if is_on() {
        write(
            clock::nanoseconds(),
            What::ContextCreated { context, device },
        );
    }
}

/// Records that a context was destroyed or released.
pub fn record_context_ended(context: u32) {
    if is_on() {
        write(clock::nanoseconds(), What::ContextEnded { context });
    }
}

/// Records that there was no memory for an allocation of `bytes` bytes. `context` is 0 where it is unknown.
///
/// ```
/// use cuguard_registry::{Trace, record_out_of_memory};
///
/// let failed = record_out_of_memory(1 << 40, || Trace::here(None), 1); // nothing without a recording
/// failed.diagnose(|| unreachable!());
/// ```
pub fn record_out_of_memory(
    bytes: u64,
    trace: impl FnOnce() -> Trace,
    context: u32,
) -> FailedAllocation {
    if !is_on() {
        return FailedAllocation(None);
    }
    let what = What::OutOfMemory {
        bytes,
        stack: trace().id(),
        context,
    };
    let (time, thread) = (clock::nanoseconds(), caller::thread());
    let event = Event { time, thread, what };
    record(&event);
    FailedAllocation(Some(event))
}

fn write(time: u64, what: What) {
    let thread = caller::thread();
    record(&Event { time, thread, what });
}

/// The context of a record, and its label: a record by address has the number of the context in place of a label.
fn context_and_label(own: u32, key: Key, record: &Record) -> (u32, EventLabel) {
    match key.is_by_address() {
        true => (record.context(), EventLabel::Scope(0)),
        false => (own, EventLabel::of(record)),
    }
}

/// The label of an event, which is not freed before the event is recorded.
enum EventLabel {
    /// A record without a name has that of its scope: the thread's, or that of other records.
    Scope(NameId),
    /// The scope and the name of a record, as one.
    Joined(ActiveLabel),
}

impl EventLabel {
    fn of(record: &Record) -> Self {
        match record.name {
            0 => Self::Scope(record.scope),
            name => {
                let label = labels::joined(record.scope, name).unwrap_or_default();
                Self::Joined(ActiveLabel::new(&label))
            }
        }
    }

    fn id(&self) -> NameId {
        match self {
            Self::Scope(id) => *id,
            Self::Joined(label) => label.id(),
        }
    }
}

/// A record was inserted. `own` is the number of the registry's context.
#[cold]
#[inline(never)]
pub(crate) fn allocated(own: u32, key: Key, record: &Record) {
    allocated_at(own, key, record, record.created_nanoseconds());
}

/// A record was inserted again, or under another key.
#[cold]
#[inline(never)]
pub(crate) fn allocated_again(own: u32, key: Key, record: &Record) {
    allocated_at(own, key, record, clock::nanoseconds());
}

fn allocated_at(own: u32, key: Key, from: &Record, time: u64) {
    let (context, label) = context_and_label(own, key, from);
    let what = What::Allocated {
        kind: key.kind.index() as u8,
        address: key.address,
        bytes: from.bytes(),
        stack: from.call_site,
        stream: from.stream(),
        context,
        label: label.id(),
    };
    record(&Event {
        time,
        thread: caller::thread(),
        what,
    });
}

/// A record was removed, because its resource is freed next.
#[cold]
#[inline(never)]
pub(crate) fn freed(own: u32, key: Key, record: &Record) {
    freed_at(own, key, record, clock::nanoseconds());
}

/// A record was removed, because its address appears again: it was freed at an unknown time before `time`, which is that of
/// the new record. Readers order events by time, and those at one time by chunk: the two may be in any chunks.
#[cold]
#[inline(never)]
pub(crate) fn replaced(own: u32, key: Key, record: &Record, time: u64) {
    freed_at(own, key, record, time.saturating_sub(1));
}

/// A record was removed, because its context ended, or a teardown freed it.
#[cold]
#[inline(never)]
pub(crate) fn reclaimed(own: u32, key: Key, record: &Record) {
    let what = What::Reclaimed {
        kind: key.kind.index() as u8,
        address: key.address,
        context: context_of(own, key, record),
    };
    write(clock::nanoseconds(), what);
}

fn freed_at(own: u32, key: Key, from: &Record, time: u64) {
    let what = What::Freed {
        kind: key.kind.index() as u8,
        address: key.address,
        context: context_of(own, key, from),
    };
    let thread = caller::thread();
    record_freed(&Event { time, thread, what }, from.created_nanoseconds());
}

fn context_of(own: u32, key: Key, record: &Record) -> u32 {
    match key.is_by_address() {
        true => record.context(),
        false => own,
    }
}

/// A record got a name.
#[cold]
pub(crate) fn labelled(key: Key, record: &Record) {
    let label = EventLabel::of(record);
    record_label(&Label {
        time: clock::nanoseconds(),
        thread: caller::thread(),
        kind: key.kind.index() as u8,
        address: key.address,
        created: record.created_nanoseconds(),
        label: label.id(),
    });
}
