//! The events of a trace: what all of them have, in the text of the format, in order of time.

use serde_json::{Map, Value, json};

use crate::look::{Frames, UNKNOWN};
use crate::run::{MarkKind, Run};
use crate::stack_text::columns;

/// Events as text, with their times in nanoseconds.
#[derive(Default)]
pub(super) struct Events(Vec<(u64, String)>);

impl Events {
    /// In order of time; of the same time as they were added.
    pub(super) fn in_order(mut self) -> impl Iterator<Item = String> {
        self.0.sort_by_key(|(time, _)| *time);
        self.0.into_iter().map(|(_, event)| event)
    }
}

/// A run in a trace.
pub(super) struct Process<'e> {
    pub(super) events: &'e mut Events,
    pub(super) pid: usize,
    /// Nanoseconds from the begin of the trace to the origin of the run.
    pub(super) offset: u64,
}

/// An event without its process and time. `phase` is the letter that the format has for its type.
pub(super) struct Event<'a> {
    pub(super) phase: &'static str,
    pub(super) name: &'a str,
    /// Before the arguments, such as the category and the thread.
    pub(super) more: &'a [(&'static str, Value)],
    pub(super) arguments: Map<String, Value>,
}

impl Process<'_> {
    pub(super) fn add(&mut self, time: u64, event: Event<'_>) {
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
    pub(super) fn describe(&mut self, run: &Run) {
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

    /// A moment, drawn for the whole process.
    pub(super) fn instant(
        &mut self,
        time: u64,
        name: &str,
        thread: Option<u32>,
        arguments: Map<String, Value>,
    ) {
        let more = [
            ("s", json!("p")),
            ("cat", json!("cuguard")),
            ("tid", json!(tid(self.pid, thread.unwrap_or(0)))),
        ];
        let event = Event {
            phase: "i",
            name,
            more: &more,
            arguments,
        };
        self.add(time, event);
    }

    /// An async slice, from its begin to its end.
    pub(super) fn slice(
        &mut self,
        track: Track<'_>,
        span: (u64, u64),
        arguments: Map<String, Value>,
    ) {
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
pub(super) struct Track<'a> {
    pub(super) category: &'static str,
    pub(super) name: &'a str,
    pub(super) thread: u32,
}

/// The number of a thread in the trace, by the index of its name: no two processes share one, as viewers may expect. Index 0 is for
/// what no known thread did.
pub(super) fn tid(pid: usize, thread: u32) -> u64 {
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
        .map(|((index, name), _)| match name.as_str() {
            "" => (index, "unnamed thread"),
            name => (index, name),
        })
        .collect()
}

/// Arguments from the macro.
pub(super) fn arguments(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// A stack trace, a frame on each line, innermost first.
pub(super) fn stack(run: &Run, site: u32, frames: Frames) -> String {
    let lines = run.sites.get(site as usize).map(|site| {
        let lines = site.shown(frames).map(|frame| match columns(frame) {
            (function, location) if location.is_empty() => function,
            (function, location) => format!("{function}  {location}"),
        });
        lines.collect::<Vec<_>>().join("\n")
    });
    lines
        .filter(|lines| !lines.is_empty())
        .unwrap_or_else(|| UNKNOWN.to_owned())
}
