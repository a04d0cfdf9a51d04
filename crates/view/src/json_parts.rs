//! Parts that all JSON documents have; docs/recording-schema.md describes them.

use serde_json::{Value, json};

use crate::look::Frames;
use crate::run::{CallSite, Frame, Run};
use cuguard_registry::Amount;

/// The version of the document; it changes when a member is removed or changes its meaning.
pub(crate) const VERSION: u32 = 1;

pub(crate) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// A name that may be missing.
pub(crate) fn optional(text: &str) -> Value {
    match text {
        "" => Value::Null,
        text => text.into(),
    }
}

pub(crate) fn amount(amount: Amount) -> Value {
    json!({ "count": amount.count, "bytes": amount.bytes })
}

pub(crate) fn stack(site: &CallSite, frames: Frames) -> Value {
    site.shown(frames).map(frame).collect()
}

fn frame(frame: &Frame) -> Value {
    let line = match frame.line {
        0 => Value::Null,
        line => line.into(),
    };
    json!({
        "function": frame.function,
        "file": optional(&frame.file),
        "line": line,
        "library": optional(&frame.library),
        "in_app": frame.in_app,
    })
}

/// Who a run is.
pub(crate) fn identity(run: &Run) -> Value {
    json!({
        "source": run.source,
        "command": run.command,
        "process": run.pid,
        "host": optional(&run.host),
        "rank": run.rank,
    })
}

/// A number that may be larger than JSON's readers expect.
pub(crate) fn clamped(number: i128) -> i64 {
    number.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}
