//! A recording as a trace of Perfetto and Chrome: JSON in the trace event format, which ui.perfetto.dev and chrome://tracing open.
//!
//! Each run is a process of the trace, with
//!
//! - counter tracks of live bytes: by device, by kind of memory, and by the functions that hold most ([`counters`]),
//! - a track for each of the functions that allocate, with its largest allocations as async slices ([`slices`]): they overlap,
//!   which slices of a thread may not,
//! - instant events for out-of-memory errors, the peak and the begin of the exit, and slices for contexts.
//!
//! The size of a trace is bounded, as viewers hold all of it: what is left out is in its `otherData`. Runs of several files are
//! aligned by the time of day at which they started.

mod counters;
mod events;
mod slices;

use std::io::Write;

use cuguard_report::ByteSize;
use serde_json::{Map, json};

use crate::error::ViewError;
use crate::look::Frames;
use crate::moment::peak;
use crate::run::{Mark, MarkKind, Run};
use events::{Events, Process, Track, arguments, stack};

/// How many moments the counters have at most, where more changes are recorded.
const MOMENTS: usize = 10_000;
/// How many allocations are shown as slices at most.
const SLICES: usize = 2_000;

/// Writes runs as a trace.
///
/// ```
/// use cuguard_view::{Allocation, Frames, RecordedKind, Run, trace};
///
/// let device = RecordedKind { name: "device".to_owned(), on_device: true, is_memory: true };
/// let block = Allocation { start: 1_500, end: 2_000, bytes: 512, ..Allocation::default() };
/// let run = Run { kinds: vec![device], allocations: vec![block], end: 4_000, ..Run::default() };
/// let mut json = Vec::new();
/// trace(&[run], Frames::Program, &mut json)?;
/// let json = String::from_utf8(json).unwrap();
/// assert!(json.contains(r#"{"ph":"C","name":"live bytes by kind","pid":1,"ts":1.500,"cat":"memory","tid":1000000,"args":{"device memory":512}}"#));
/// # Ok::<(), cuguard_view::ViewError>(())
/// ```
///
/// # Errors
/// It cannot be written.
pub fn trace(runs: &[Run], frames: Frames, out: &mut dyn Write) -> Result<(), ViewError> {
    write(runs, frames, MOMENTS, SLICES, out).map_err(|error| ViewError::Write {
        what: "trace",
        error,
    })
}

fn write(
    runs: &[Run],
    frames: Frames,
    moments: usize,
    slices: usize,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let mut events = Events::default();
    let mut notes = Vec::new();
    let first = runs.iter().map(|run| run.started).min().unwrap_or(0);
    for (index, run) in runs.iter().enumerate() {
        let mut process = Process {
            events: &mut events,
            // Ranks on several machines may have the same process id.
            pid: index + 1,
            // Where the time of day is not known, all runs begin together.
            offset: if first == 0 { 0 } else { run.started - first },
        };
        process.describe(run);
        counters::add(&mut process, run, moments);
        let left_out = slices::add(&mut process, run, frames, slices);
        marks(&mut process, run, frames);
        notes.push(json!({
            "file": run.source,
            "process": run.pid,
            "command": run.command,
            "times_count_from": run.origin.words(),
            "allocations_without_a_slice": left_out,
            "caveats": run.caveats(),
            "problems": run.problems,
        }));
    }
    let other = json!({"tool": "cuguard", "version": env!("CARGO_PKG_VERSION"), "runs": notes});
    write!(
        out,
        "{{\"displayTimeUnit\":\"ms\",\"otherData\":{other},\"traceEvents\":["
    )?;
    let mut separator = "\n";
    for event in events.in_order() {
        write!(out, "{separator}{event}")?;
        separator = ",\n";
    }
    out.write_all(b"\n]}\n")
}

/// Out-of-memory errors, contexts, the peak and the exit.
fn marks(process: &mut Process<'_>, run: &Run, frames: Frames) {
    for (index, Mark { time, kind }) in run.marks.iter().enumerate() {
        match kind {
            MarkKind::OutOfMemory {
                bytes,
                site,
                thread,
                diagnosis,
            } => {
                let name = match bytes {
                    0 => "out of memory".to_owned(),
                    bytes => format!("out of memory: {}", ByteSize(*bytes)),
                };
                let mut members =
                    arguments(json!({"bytes": bytes, "call site": stack(run, *site, frames)}));
                if !diagnosis.is_empty() {
                    members.insert("diagnosis".to_owned(), json!(diagnosis));
                }
                process.instant(*time, &name, Some(*thread), members);
            }
            MarkKind::ContextCreated { context, device } => {
                let end = run.marks[index..].iter().find(|later| {
                    matches!(later.kind, MarkKind::ContextEnded { context: ended } if ended == *context)
                });
                let name = format!("context {context} on device {device}");
                let track = Track {
                    category: "context",
                    name: &name,
                    thread: 0,
                };
                let span = (*time, end.map_or(run.end, |end| end.time));
                process.slice(track, span, Map::new());
            }
            MarkKind::ContextEnded { .. } => {}
        }
    }
    let peak = peak(run);
    if peak.bytes != 0 && !run.is_report {
        let members = arguments(json!({"device_bytes": peak.device_bytes, "bytes": peak.bytes}));
        let bytes = if peak.device_bytes == 0 {
            peak.bytes
        } else {
            peak.device_bytes
        };
        process.instant(
            peak.time,
            &format!("peak: {}", ByteSize(bytes)),
            None,
            members,
        );
    }
    if let Some(time) = run.exit_begins {
        process.instant(time, "exit begins", None, Map::new());
    }
}

#[cfg(test)]
mod tests;
