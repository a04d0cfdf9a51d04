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
mod slices;

use std::io::Write;

use cuguard_report::ByteSize;
use serde_json::{Map, Value, json};

use crate::error::ViewError;
use crate::look::Frames;
use crate::moment::peak;
use crate::run::{Mark, MarkKind, Run};
use crate::stack_text::columns;

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

/// Events as text, with their times in nanoseconds.
#[derive(Default)]
struct Events(Vec<(u64, String)>);

impl Events {
    /// In order of time; of the same time as they were added.
    fn in_order(mut self) -> impl Iterator<Item = String> {
        self.0.sort_by_key(|(time, _)| *time);
        self.0.into_iter().map(|(_, event)| event)
    }
}

/// A run in a trace.
struct Process<'e> {
    events: &'e mut Events,
    pid: usize,
    /// Nanoseconds from the begin of the trace to the origin of the run.
    offset: u64,
}

/// An event's letter, its name and what else it has; the process and the time are added.
struct Event<'a> {
    phase: &'static str,
    name: &'a str,
    /// Before the arguments, such as the category and the thread.
    more: &'a [(&'static str, Value)],
    arguments: Map<String, Value>,
}

impl Process<'_> {
    fn add(&mut self, time: u64, event: Event<'_>) {
        let time = self.offset.saturating_add(time);
        let mut text = format!(
            "{{\"ph\":\"{}\",\"name\":{}",
            event.phase,
            json!(event.name)
        );
        text += &format!(",\"pid\":{}", self.pid);
        // Microseconds, exact: a number with a fraction of nanoseconds would be rounded after some hours.
        text += &format!(",\"ts\":{}.{:03}", time / 1000, time % 1000);
        for (name, value) in event.more {
            text += &format!(",\"{name}\":{value}");
        }
        if !event.arguments.is_empty() {
            text += &format!(",\"args\":{}", Value::Object(event.arguments));
        }
        text.push('}');
        self.events.0.push((time, text));
    }

    /// What the process and its threads are called.
    fn describe(&mut self, run: &Run) {
        let title = match run.command.as_str() {
            "" => run.title(),
            command => format!("{command} ({})", run.title()),
        };
        let pid = self.pid;
        let mut name = |what: &str, thread: Option<u32>, name: &str, value: Value| {
            let thread = thread.map_or_else(String::new, |thread| {
                format!(",\"tid\":{}", tid(pid, thread))
            });
            let event = format!(
                "{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{pid}{thread},\"args\":{}}}",
                json!({name: value})
            );
            self.events.0.push((0, event));
        };
        name("process_name", None, "name", json!(title));
        name("process_sort_index", None, "sort_index", json!(pid));
        for (thread, called) in threads(run) {
            name("thread_name", Some(thread), "name", json!(called));
        }
    }

    fn instant(
        &mut self,
        time: u64,
        name: &str,
        thread: Option<u32>,
        arguments: Map<String, Value>,
    ) {
        // `p`: drawn for the whole process.
        let mut more = vec![("s", json!("p")), ("cat", json!("cuguard"))];
        more.push(("tid", json!(tid(self.pid, thread.unwrap_or(0)))));
        let event = Event {
            phase: "i",
            name,
            more: &more,
            arguments,
        };
        self.add(time, event);
    }

    /// An async slice, from its begin to its end.
    fn slice(&mut self, track: Track<'_>, span: (u64, u64), arguments: Map<String, Value>) {
        let tid = tid(self.pid, track.thread);
        // The number of events so far is a new one for each slice. Hexadecimal, as all viewers read it.
        let more = [
            ("cat", json!(track.category)),
            ("id", json!(format!("{:#x}", self.events.0.len()))),
            ("tid", json!(tid)),
        ];
        let mut arguments = Some(arguments);
        for (phase, time) in [("b", span.0), ("e", span.1.max(span.0))] {
            let event = Event {
                phase,
                name: track.name,
                more: &more,
                arguments: arguments.take().unwrap_or_default(),
            };
            self.add(time, event);
        }
    }
}

/// Where an async slice is shown: viewers put those of one category and name together.
struct Track<'a> {
    category: &'static str,
    name: &'a str,
    thread: u32,
}

/// The number of a thread in the trace: viewers may expect that no two processes share one. The name without characters, which is
/// the first of a run, is that of what no known thread did.
fn tid(pid: usize, thread: u32) -> u64 {
    pid as u64 * 1_000_000 + u64::from(thread % 1_000_000)
}

/// The threads that allocate, or that were refused memory, by the index of their names.
fn threads(run: &Run) -> Vec<(u32, &str)> {
    let refused = run.marks.iter().filter_map(|mark| match mark.kind {
        MarkKind::OutOfMemory { thread, .. } => Some(thread),
        _ => None,
    });
    let mut is_thread = vec![false; run.names.len()];
    for thread in run.allocations.iter().map(|it| it.thread).chain(refused) {
        if let Some(is_thread) = is_thread.get_mut(thread as usize) {
            *is_thread = true;
        }
    }
    let names = (0..).zip(&run.names).zip(is_thread);
    names
        .filter(|(_, is_thread)| *is_thread)
        .map(|((index, name), _)| {
            (
                index,
                if name.is_empty() {
                    "unnamed thread"
                } else {
                    name
                },
            )
        })
        .collect()
}

/// Arguments from the macro.
fn arguments(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// A stack trace, a frame on each line, innermost first.
fn stack(run: &Run, site: u32, frames: Frames) -> String {
    let lines = run.sites.get(site as usize).map(|site| {
        let lines = site.shown(frames).map(|frame| match columns(frame) {
            (function, location) if location.is_empty() => function,
            (function, location) => format!("{function}  {location}"),
        });
        lines.collect::<Vec<_>>().join("\n")
    });
    lines
        .filter(|lines| !lines.is_empty())
        .unwrap_or_else(|| crate::look::UNKNOWN.to_owned())
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
